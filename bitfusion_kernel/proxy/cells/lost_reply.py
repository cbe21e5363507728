"""What a cell shows that the kernel has left without a reply: imported when it happens."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError


class ReplyLost(BitfusionError):
    """The kernel has answered what came later, so this cell is over, and nobody knows how it has ended."""

    headline = "The kernel has gone on without saying how this cell has ended."
    next_step = (
        "look at what the cell has done, and run it again. An interrupt between two cells does this, "
        "a result that cannot be sent, or code that replaces the kernel's program (os.execv)."
    )
