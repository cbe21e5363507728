"""What the tests of a suite came to: read from pytest's report, and compared between two kernels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"

Outcomes = dict[str, str]
"""By pytest's id of the test: `PASSED`, `SKIPPED` or `FAILED`."""


class EmptyRun(Exception):
    """Nothing was tested: it proves nothing, and must not look like success."""


def read_report(xml: str) -> Outcomes:
    """The outcomes in a report of `--junitxml` of the family xunit1, which names the files.

    Raises:
        EmptyRun: No test ran: none was collected, or all were skipped.
    """
    outcomes: Outcomes = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        file = case.get("file", "")
        module = file.removesuffix(".py").replace("/", ".")
        classes = case.get("classname", "").removeprefix(module).strip(".")
        test = "::".join([file, *filter(None, classes.split(".")), case.get("name", "")])
        if any(case.find(kind) is not None for kind in ("failure", "error")):
            outcomes[test] = FAILED
        elif case.find("skipped") is not None:
            outcomes.setdefault(test, SKIPPED)
        else:
            outcomes.setdefault(test, PASSED)
    if not set(outcomes.values()) - {SKIPPED}:
        raise EmptyRun(f"{len(outcomes)} tests were collected and none of them ran")
    return outcomes


def better(outcomes: Iterable[Outcomes]) -> Outcomes:
    """Of several runs, the best outcome of each test: a test that passes once can be passed."""
    found: Outcomes = {}
    for run in outcomes:
        for test, outcome in run.items():
            if found.get(test) != PASSED:
                found[test] = outcome
    return found


def doubtful(plain: Outcomes, ours: Outcomes) -> list[str]:
    """The tests to run again, with both: those whose outcomes differ."""
    return sorted(test for test in plain.keys() | ours.keys() if plain.get(test) != ours.get(test))


@dataclass
class Comparison:
    """One suite with both kernels.

    Attributes:
        worse: Passed with plain ipykernel, and not with ours; without the `named`.
        better: The other way round.
        named: Those of the named exceptions that differ, with the reason.
        equal_now: Named exceptions that do not differ.
        missing: Collected with one kernel only.
    """

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    equal_now: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether ours is as plain, but for the named exceptions."""
        return not (self.worse or self.missing)


def compare(plain: Outcomes, ours: Outcomes, exceptions: Mapping[str, str]) -> Comparison:
    """Compare the outcomes of all tests; `exceptions` are ids of tests, each with its reason."""
    found = Comparison()
    for test in sorted(plain.keys() | ours.keys()):
        if test not in plain or test not in ours:
            found.missing.append(test)
        elif plain[test] == ours[test]:
            if test in exceptions:
                found.equal_now.append(test)
        elif test in exceptions:
            found.named.append(test)
        elif plain[test] == PASSED:
            found.worse.append(test)
        else:
            found.better.append(test)
    return found


def count(outcomes: Outcomes) -> str:
    """For example `102 (98 passed, 4 skipped)`."""
    numbers = {kind: list(outcomes.values()).count(kind) for kind in (PASSED, FAILED, SKIPPED)}
    return f"{len(outcomes)} (" + ", ".join(f"{n} {kind}" for kind, n in numbers.items() if n) + ")"
