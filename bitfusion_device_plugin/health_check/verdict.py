"""What a health report means: its result, in words for people and for an exit status. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.client_reports import HealthReport, parse_health
from bitfusion_client.one_line import one_line

PASSED, MARGINAL, FATAL, UNKNOWN = "passed", "marginal", "fatal", "unknown"
RESULTS = (PASSED, MARGINAL, FATAL, UNKNOWN)
"""By how bad they are; a metric has the place."""
LOCALHOST = "localhost"
_MOST_CHECKS = 5
_LONGEST_CHECK = 150
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of `RESULTS`, and what to tell people in a few hundred characters."""

    result: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether the job fails: something is fatal, or nobody knows."""
        return self.result in (FATAL, UNKNOWN)


def verdict(report_text: str, problem: str) -> Verdict:
    """The verdict on what `bitfusion health` printed.

    Args:
        report_text: Its report, which may be empty or cut off.
        problem: How the client failed, in one line; empty where it did not. It ends with a status for FATAL
            checks, too, so that a report with such a check says more.
    """
    report = parse_health(report_text)
    totals = report.totals
    count = sum(totals.values())
    if totals.get("FATAL"):
        return Verdict(FATAL, f"{_of(totals['FATAL'], count)} FATAL: {_listed(report, 'FATAL')}")
    if problem:
        return Verdict(UNKNOWN, f"The pool could not be checked: {one_line(problem)}")
    if not any(section.name != LOCALHOST for section in report.sections):
        return Verdict(UNKNOWN, "The pool could not be checked: the report has no server")
    if totals.get("MARGINAL"):
        marginal = _of(totals["MARGINAL"], count)
        return Verdict(MARGINAL, f"{marginal} MARGINAL, none is FATAL: {_listed(report, 'MARGINAL')}")
    return Verdict(PASSED, f"None of {count} checks is FATAL or MARGINAL")


def _of(bad: int, count: int) -> str:
    return f"{bad} of {count} checks {'is' if bad == 1 else 'are'}"


def _listed(report: HealthReport, tag: str) -> str:
    """The checks with this tag, the first few of them, with where they were made."""
    found = [
        f"{one_line(section.name, _LONGEST_NAME)}: {one_line(check.text, _LONGEST_CHECK)}"
        for section in report.sections
        for check in section.checks
        if check.tag == tag
    ]
    more = report.totals[tag] - min(len(found), _MOST_CHECKS)
    shown = "; ".join(found[:_MOST_CHECKS])
    return f"{shown}; and {more} more" if more > 0 and shown else shown or "see the job's log"
