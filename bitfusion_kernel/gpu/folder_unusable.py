"""The error of a cell whose kernel can't be started because its sockets have no place."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError


class FolderUnusable(BitfusionError):
    """The private folder is full, read-only, or can be made nowhere. `answered` names it and why."""

    headline = "The folder for this kernel's sockets cannot be used."
    next_step = (
        "make room there and run the cell again, or start Jupyter with XDG_RUNTIME_DIR set to a folder of "
        "yours that has room."
    )
