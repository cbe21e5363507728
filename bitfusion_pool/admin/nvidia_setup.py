"""`bitfusion-pool init --nvidia`: the pool.toml of a user's own pool that hands out NVIDIA cards."""

from __future__ import annotations

import socket

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.nvidia.nvidia_configuration import configuration_text
from bitfusion_pool.inventory.nvidia.reading_process import no_gpus, read_cards

if TYPE_CHECKING:
    from collections.abc import Mapping

WARNING = """\
These are real GPUs, and this pool is yours alone: the pool of another user of this machine would hand out the
same GPUs a second time. Shares of a GPU's memory are cooperative: PyTorch, TensorFlow and JAX keep to them,
other programs may not. `bitfusion-pool simulate` goes back to simulated GPUs.
"""


def nvidia_configuration(environ: Mapping[str, str]) -> tuple[str, str]:
    """The text of the pool.toml, and what to tell who asked for it.

    Raises:
        NvidiaUnusable: The cards cannot be read, or there is none.
    """
    reading = read_cards(environ)
    if not reading.devices():
        raise no_gpus(reading)
    notes = "".join(f"Not in the pool: {note}\n" for note in reading.left_out())
    return configuration_text(reading.devices(), reading, socket.gethostname()), notes + WARNING
