"""What a health report means: its result, in words for people and for an exit status. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.command.client_reports import OVERDUE_WORDS, HealthCheck, HealthReport, parse_health
from bitfusion_client.one_line import one_line

PASSED, MARGINAL, FATAL, UNKNOWN = "passed", "marginal", "fatal", "unknown"
RESULTS = (PASSED, MARGINAL, FATAL, UNKNOWN)
"""By how bad they are; a metric has the place."""
LOCALHOST = "localhost"
_TOKEN = "Check pool token:"
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
    """The verdict on what `bitfusion health` printed in a cluster.

    Args:
        report_text: Its report, which may be empty or cut off.
        problem: How the client failed, in one line; empty where it did not. It ends with a status for FATAL
            checks, too, so that a report with such a check says more.
    """
    report = parse_health(report_text)
    totals = report.totals
    count = sum(totals.values())
    renewed = sum(_is_renewed_in_time(check) for section in report.sections for check in section.checks)
    marginal = totals.get("MARGINAL", 0) - renewed
    if totals.get("FATAL"):
        return Verdict(
            FATAL, f"{_of(totals['FATAL'], count)} FATAL: {_listed(report, 'FATAL', totals['FATAL'])}"
        )
    if problem:
        return Verdict(UNKNOWN, f"The pool could not be checked: {one_line(problem)}")
    if not any(section.name != LOCALHOST for section in report.sections):
        return Verdict(UNKNOWN, "The pool could not be checked: the report has no server")
    broken = _broken_off(report)
    if broken:
        return Verdict(UNKNOWN, f"The pool could not be checked: the report about {broken} is incomplete")
    if marginal > 0:
        words = f"{_of(marginal, count)} MARGINAL, none is FATAL"
        return Verdict(MARGINAL, f"{words}: {_listed(report, 'MARGINAL', marginal)}")
    return Verdict(PASSED, f"All is well: {count} check{'' if count == 1 else 's'}")


def _broken_off(report: HealthReport) -> str:
    """A server of which there is no check, or the last one if its totals are missing; empty: none.

    A section without totals before the last one is taken as it is: not each version may print them.
    """
    empty = [one for one in report.sections if one.name != LOCALHOST and not any(dict(one.totals).values())]
    last = report.sections[-1]
    has_totals = any(section.is_whole for section in report.sections)
    cut = empty or ([last] if has_totals and not last.is_whole else [])
    return one_line(cut[0].name, _LONGEST_NAME) if cut else ""


def _of(bad: int, count: int) -> str:
    return f"{bad} of {count} checks {'is' if bad == 1 else 'are'}"


def _is_renewed_in_time(check: HealthCheck) -> bool:
    """Whether it says that the token ends soon, which the cluster sees to: tokens there live for weeks."""
    is_of_token = check.tag == "MARGINAL" and check.text.startswith(_TOKEN)
    return is_of_token and not check.text.endswith(OVERDUE_WORDS)


def _listed(report: HealthReport, tag: str, total: int) -> str:
    """The checks with this tag, the first few of `total`, with where they were made."""
    found = [
        f"{one_line(section.name, _LONGEST_NAME)}: {one_line(check.text, _LONGEST_CHECK)}"
        for section in report.sections
        for check in section.checks
        if check.tag == tag and not _is_renewed_in_time(check)
    ]
    more = total - min(len(found), _MOST_CHECKS)
    shown = "; ".join(found[:_MOST_CHECKS])
    return f"{shown}; and {more} more" if more > 0 and shown else shown or "see the job's log"
