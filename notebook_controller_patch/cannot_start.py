"""What a process says that cannot start."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError


class CannotStart(BitfusionError):
    """Something this process needs is not there; `headline` says what, `next_step` what to do."""

    def __init__(self, headline: str, next_step: str) -> None:
        super().__init__(next_step=next_step)
        self.args = (headline, next_step)
        self.headline = headline
