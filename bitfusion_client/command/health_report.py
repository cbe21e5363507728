"""A health report: groups of checks with their results (PASS, MARGINAL, FATAL, …) and totals, as text."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TAGS = ("PASS", "INFO", "SKIPPED", "MARGINAL", "FATAL")


class Report:
    """The report about one machine, in which `title` names it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.totals = dict.fromkeys(TAGS, 0)
        self._lines = [title, "=====", ""]
        self._group = ""

    def group(self, name: str) -> None:
        """Begin a group of checks, or go on with it."""
        if name == self._group:
            return
        if self._group:
            self._lines.append("")
        self._group = name
        self._lines += [f"{name} checks:", "====="]

    def add(self, tag: str, text: str) -> None:
        """Add a result; `tag` is one of TAGS."""
        self.totals[tag] += 1
        self._lines.append(f"[{tag:<8}] {text}")

    def check(self, text: str, examine: Callable[[], str]) -> bool:
        """Make a check: PASS with what `examine` returns, FATAL with its OSError or BitfusionError.

        Returns:
            Whether it passed.
        """
        try:
            found = examine()
        except (OSError, BitfusionError) as error:
            self.add("FATAL", f"{text}: {getattr(error, 'strerror', None) or error}")
            return False
        self.add("PASS", f"{text}: {found}" if found else text)
        return True

    def text(self) -> str:
        """The whole report."""
        totals = [f"{tag}: {count}" for tag, count in self.totals.items()]
        return "\n".join([*self._lines, "", *totals, "", ""])
