"""How the outcomes of other projects' tests are read and compared: nothing empty, nothing left out."""

from __future__ import annotations

import pytest

from tests.jupyter.suites.outcomes import (
    FAILED,
    PASSED,
    SKIPPED,
    EmptyRun,
    better,
    compare,
    count,
    read_report,
)
from tests.jupyter.suites.sources import locked_versions

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_x.TestIt" name="test_a[tcp]" file="tests/test_x.py"/>
<testcase classname="tests.test_x" name="test_b" file="tests/test_x.py"><failure/></testcase>
<testcase classname="tests.test_x" name="test_c" file="tests/test_x.py"><skipped/></testcase>
<testcase classname="tests.test_x" name="test_d" file="tests/test_x.py"/>
<testcase classname="tests.test_x" name="test_d" file="tests/test_x.py"><error/></testcase>
</testsuite></testsuites>"""


def test_a_report_names_each_test_as_pytest_does() -> None:
    outcomes = read_report(REPORT)
    assert outcomes == {
        "tests/test_x.py::TestIt::test_a[tcp]": PASSED,
        "tests/test_x.py::test_b": FAILED,
        "tests/test_x.py::test_c": SKIPPED,
        "tests/test_x.py::test_d": FAILED,
    }
    assert count(outcomes) == "4 (1 passed, 2 failed, 1 skipped)"


@pytest.mark.parametrize("cases", ["", '<testcase classname="a" name="b" file="a.py"><skipped/></testcase>'])
def test_a_run_in_which_nothing_was_tested_is_an_error(cases: str) -> None:
    with pytest.raises(EmptyRun, match="none of them ran"):
        read_report(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_a_test_that_passes_once_can_be_passed() -> None:
    runs = [{"a": FAILED, "b": PASSED, "c": FAILED}, {"a": PASSED, "b": FAILED, "c": FAILED}]
    assert better(runs) == {"a": PASSED, "b": PASSED, "c": FAILED}


def test_only_what_is_named_may_be_worse_and_nothing_may_be_missing() -> None:
    plain = {
        "same": FAILED,
        "worse": PASSED,
        "better": FAILED,
        "named": PASSED,
        "gone": PASSED,
        "cured": PASSED,
    }
    ours = {
        "same": FAILED,
        "worse": SKIPPED,
        "better": PASSED,
        "named": FAILED,
        "new": PASSED,
        "cured": PASSED,
    }
    found = compare(plain, ours, {"named": "a reason", "cured": "none any more"})
    assert (found.worse, found.better, found.named) == (["worse"], ["better"], ["named"])
    assert (found.missing, found.equal_now, found.is_equal) == (["gone", "new"], ["cured"], False)
    assert compare({"named": PASSED}, {"named": FAILED}, {"named": "a reason"}).is_equal
    assert not compare({"a": PASSED}, {"a": PASSED, "b": PASSED}, {}).is_equal
    assert not compare({"a": PASSED}, {"a": FAILED}, {}).is_equal


def test_each_suite_has_a_locked_version() -> None:
    wanted = {"jupyter-client", "ipykernel", "nbclient", "papermill", "jupyter-server"}
    assert wanted <= locked_versions().keys()
