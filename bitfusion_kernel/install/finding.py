"""One line of the doctor's report: PASS, WARN or FAIL, what was checked, what was found, what to do next."""

from __future__ import annotations

from typing import NamedTuple

from bitfusion_client.errors import BitfusionError

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"


class Finding(NamedTuple):
    """What one check has found. `next_step` says what to do about a WARN or FAIL."""

    verdict: str
    subject: str
    found: str
    next_step: str = ""

    @classmethod
    def from_error(cls, subject: str, error: BitfusionError) -> Finding:
        """A failed check, told in the words of one of our errors."""
        first, *rest = error.user_message.split("\n")
        answer = next((line for line in rest if line.startswith("Answer: ")), "")
        found = first.rstrip(".") + (f" ({answer[len('Answer: ') :]})" if answer else "")
        return cls(FAIL, subject, found, error.next_step)

    def lines(self) -> list[str]:
        """As printed."""
        first = f"[{self.verdict}] {self.subject}: {self.found}"
        return [first, f"       {self.next_step}"] if self.next_step else [first]
