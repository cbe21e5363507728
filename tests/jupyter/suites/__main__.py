"""The Jupyter projects' own tests with our kernel as `python3`, beside plain ipykernel: are they equal?

    make jupyter-suites
    make jupyter-suites SUITES='nbclient papermill'
    make jupyter-suites SUITES='nbclient --pods'

Versions are those of requirements/lock.txt. Tests whose outcomes differ are run again, with both kernels:
some of them fail now and then with any kernel. The end is a table; the status is 1 where a test that passes
with plain ipykernel fails with ours and is not named in `exceptions`, and where a run was empty.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.jupyter.suites.exceptions import NAMED
from tests.jupyter.suites.outcomes import Comparison, EmptyRun, Outcomes, better, compare, count, doubtful
from tests.jupyter.suites.runs import OURS, PLAIN, Kernels, Result, run
from tests.jupyter.suites.sources import ROOT, CannotFetch, fetch, locked_versions

CLOUDS = ("s3", "abs", "adl", "gcs")
# Without it pytest-asyncio warns, and warnings are errors.
SCOPE = ("-o", "asyncio_default_fixture_loop_scope=function")
WITHOUT_ASYNCIO = ("-p", "no:asyncio")  # these bring their own
TESTS = {
    "ipykernel": ["tests", *SCOPE],
    "jupyter-client": ["tests", *WITHOUT_ASYNCIO],
    "nbclient": ["tests", *SCOPE],
    # Not the notebooks in clouds: no kernel takes part, and boto3 does not go with the locked packages.
    "papermill": ["papermill/tests", *(f"--ignore=papermill/tests/test_{cloud}.py" for cloud in CLOUDS)],
    "jupyter-server": ["tests", *WITHOUT_ASYNCIO],
}
"""pytest's arguments for each."""

AGAIN = 3
"""Rounds in which tests that differ get another chance, with both kernels."""


@dataclass
class Row:
    """One suite in the table."""

    suite: str
    plain: Result
    ours: Result
    comparison: Comparison


def main() -> int:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(TESTS)}; all by default")
    parser.add_argument(
        "--python", type=Path, required=True, help="of the environment with their dependencies"
    )
    parser.add_argument(
        "--pods", action="store_true", help="our kernels run in namespaces of their own, as in GPU pods"
    )
    options = parser.parse_args()
    unknown = set(options.suites) - set(TESTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TESTS)}")
    folder = ROOT / "build" / "jupyter-suites"
    kernels = Kernels(options.python.absolute(), folder / "kernels")
    kernels.install()
    versions, rows = locked_versions(), []
    for suite in options.suites or TESTS:
        try:
            rows.append(_suite(kernels, suite, versions[suite], folder, options.pods))
        except (CannotFetch, EmptyRun) as error:
            print(f"{suite}: {error}", file=sys.stderr)
            return 1
    print()
    for row in rows:
        _show(row)
    return 0 if all(_is_good(row) for row in rows) else 1


def _suite(kernels: Kernels, suite: str, version: str, folder: Path, in_pods: bool) -> Row:
    print(f"· {suite} {version}", flush=True)
    root = fetch(suite, version, kernels.python, folder)
    # The installed package is tested, with the kernels of both prefixes; papermill's tests stand in it.
    if suite != "papermill":
        (root / suite.replace("-", "_")).rename(root / "_not_imported")
    logs = {kernel: folder / f"{suite}-{kernel}.log" for kernel in (PLAIN, OURS)}
    results = {}
    for kernel, log in logs.items():
        log.write_text("")
        results[kernel] = run(kernels, kernel, root, TESTS[suite], log, in_pods=in_pods)
        print(f"  {kernel}: {_line(results[kernel])}", flush=True)
    outcomes = {kernel: [result.outcomes] for kernel, result in results.items()}
    for _ in range(AGAIN):
        again = doubtful(*map(better, outcomes.values()))
        again = [test for test in again if _in_both(results, test) and test not in NAMED.get(suite, {})]
        if not again:
            break
        print(f"  again: {len(again)} that differ", flush=True)
        for kernel, log in logs.items():
            chosen = [*again, *(option for option in TESTS[suite][1:] if not option.startswith("--ignore"))]
            outcomes[kernel].append(_again(kernels, kernel, root, chosen, log, in_pods))
    best = {kernel: better(found) for kernel, found in outcomes.items()}
    return Row(suite, results[PLAIN], results[OURS], compare(best[PLAIN], best[OURS], NAMED.get(suite, {})))


def _in_both(results: dict[str, Result], test: str) -> bool:
    return all(test in result.outcomes for result in results.values())


def _again(kernels: Kernels, kernel: str, root: Path, tests: list[str], log: Path, in_pods: bool) -> Outcomes:
    try:
        return run(kernels, kernel, root, tests, log, in_pods=in_pods).outcomes
    except EmptyRun:
        return {}  # all of them are skipped, or need no GPU


def _line(result: Result) -> str:
    asked = f", {result.requests} GPUs asked for" if result.requests else ""
    return f"{count(result.outcomes)} in {result.seconds:.0f} s{asked}, left behind: {len(result.left)}"


def _is_good(row: Row) -> bool:
    return row.comparison.is_equal and len(row.ours.left) <= len(row.plain.left)


def _show(row: Row) -> None:
    found = row.comparison
    print(f"{row.suite:15} {'equal' if _is_good(row) else 'NOT EQUAL'} but for {len(found.named)} named")
    for kernel, result in ((PLAIN, row.plain), (OURS, row.ours)):
        print(f"    {kernel:6} {_line(result)}")
    for word, tests in (
        ("worse", found.worse),
        ("better", found.better),
        ("only with one", found.missing),
        ("named", [f"{test}: {NAMED[row.suite][test]}" for test in found.named]),
        ("named, but equal", found.equal_now),
        ("left behind", row.ours.left),
    ):
        for test in tests:
            print(f"    {word}: {test}")


if __name__ == "__main__":
    sys.exit(main())
