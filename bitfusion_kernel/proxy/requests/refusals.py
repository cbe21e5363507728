"""Why a request is refused that only a kernel could serve, and for which none is started."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError


class NoKernelYet(BitfusionError):
    """Nothing runs that could answer, and nobody has run a cell."""

    headline = "This kernel has not started yet; it starts with the first cell, which takes a GPU."
    next_step = "run a cell, then do this again."
