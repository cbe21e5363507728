"""What a process says that cannot start."""

from __future__ import annotations

import errno
import os

from bitfusion_client.errors import BitfusionError


class CannotStart(BitfusionError):
    """Something this process needs is not there; `headline` says what, `next_step` what to do."""

    def __init__(self, headline: str, next_step: str) -> None:
        super().__init__(next_step=next_step)
        self.args = (headline, next_step)
        self.headline = headline


def port_not_opened(error: OSError, address: str, port: int, option: str) -> CannotStart:
    """What to raise for the error of a listener; `option` chooses another port."""
    in_use = error.errno == errno.EADDRINUSE
    reason = os.strerror(error.errno) if error.errno else str(error)  # asyncio's words repeat the address
    what = "is in use" if in_use else f"cannot be opened: {reason}"
    return CannotStart(
        f"Port {port} of {address} {what}.", f"end what uses it, or choose another port by {option}."
    )
