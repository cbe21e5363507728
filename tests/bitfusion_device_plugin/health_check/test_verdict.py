"""What a report means, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.health_check.verdict import (
    FATAL,
    MARGINAL,
    PASSED,
    RESULTS,
    UNKNOWN,
    Verdict,
    verdict,
)

DOCUMENTED = (Path(__file__).parents[2] / "client" / "logs" / "health-whole.txt").read_text()
GOOD = """\
Health report for server: 10.0.0.1:56001
=====
[PASS   ] Check CUDA version >= 9000: Current version: 10020
PASS: 1
FATAL: 0
Health report for localhost
=====
[SKIPPED] Cannot perform PCIe diagnosis without root access
"""
BAD = GOOD.replace("PASS: 1\nFATAL: 0\n", "[FATAL  ] Check GPU ECC errors: 3 on GPU 0\nPASS: 1\nFATAL: 1\n")


@pytest.mark.parametrize(
    ("report", "problem", "result", "message"),
    [
        (GOOD, "", PASSED, "All is well: 2 checks"),
        (BAD, "", FATAL, "1 of 3 checks is FATAL: 10.0.0.1:56001: Check GPU ECC errors: 3 on GPU 0"),
        # the stand-in ends with 1 where a check is FATAL: the check says more
        (
            BAD,
            "`bitfusion health` ended with status 1",
            FATAL,
            "1 of 3 checks is FATAL: 10.0.0.1:56001: Check GPU ECC errors: 3 on GPU 0",
        ),
        (
            GOOD + "[MARGINAL] Check MTU Size: low\n",
            "",
            MARGINAL,
            "1 of 3 checks is MARGINAL, none is FATAL: localhost: Check MTU Size: low",
        ),
        (GOOD, "no answer within 1 s", UNKNOWN, "The pool could not be checked: no answer within 1 s"),
        ("", "", UNKNOWN, "The pool could not be checked: the report has no server"),
        (
            GOOD.partition("Health report for localhost")[1] + GOOD.partition("localhost")[2],
            "",
            UNKNOWN,
            "The pool could not be checked: the report has no server",
        ),
        # totals without the check's own line
        (
            "Health report for server: a:1\nPASS: 3\nFATAL: 2\n",
            "",
            FATAL,
            "2 of 5 checks are FATAL: see the job's log",
        ),
    ],
)
def test_a_verdict(report: str, problem: str, result: str, message: str) -> None:
    assert verdict(report, problem) == Verdict(result, message)
    assert verdict(report, problem).failed == (result in (FATAL, UNKNOWN))


def test_the_documented_report_is_marginal() -> None:
    found = verdict(DOCUMENTED, "")
    assert found.result == MARGINAL
    assert "drops reported in file: /sys/class/net/ens160/" in found.message
    assert found.message.endswith("; and 1 more")  # its totals count four, and three are there


BROKEN_OFF = "The pool could not be checked: the report about {} is incomplete"


@pytest.mark.parametrize(
    ("report", "server"),
    [
        ("Health report for server: a:1\n=====\n\nSoftware Ver", "a:1"),
        ("Health report for server: a:1\n=====\nHealth report for localhost\n[PASS   ] x\n", "a:1"),
        # the others end with their totals
        (DOCUMENTED[: DOCUMENTED.index("Health report for localhost")] + GOOD, "localhost"),
        (DOCUMENTED[: DOCUMENTED.rindex("Consistency")], "localhost"),
        (DOCUMENTED[: DOCUMENTED.rindex("FATAL")], "localhost"),
    ],
)
def test_a_report_that_is_broken_off_is_none(report: str, server: str) -> None:
    assert verdict(report, "") == Verdict(UNKNOWN, BROKEN_OFF.format(server))


@pytest.mark.parametrize("totals", ["PASS: 3\n", "PASS: 3\nINFO: 0\nSKIPPED: 0\nMARGINAL: 0\nFATAL: 0\n", ""])
def test_no_total_and_no_cut_hides_a_fatal_line(totals: str) -> None:
    found = verdict(f"Health report for server: a:1\n[FATAL  ] Check GPUs: none\n{totals}", "")
    assert (found.result, found.message.partition(": ")[2]) == (FATAL, "a:1: Check GPUs: none")


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("accepted, it ends on 2026-12-25, renew it", PASSED),
        ("accepted, it ends on 2026-12-25, renew it: three quarters of its lifetime have passed", MARGINAL),
    ],
)
def test_a_token_that_the_cluster_renews_is_told_only_if_it_was_not(words: str, result: str) -> None:
    found = verdict(GOOD + f"[MARGINAL] Check pool token: {words}\n", "")
    assert found.result == result
    assert result == PASSED or found.message == (
        f"1 of 3 checks is MARGINAL, none is FATAL: localhost: Check pool token: {words}"
    )


def test_many_servers_with_many_faults_stay_short() -> None:
    text = "".join(
        f"Health report for server: 10.0.{n}.1:56001\n" + "[FATAL  ] Check of something: " + "x" * 400 + "\n"
        for n in range(300)
    )
    found = verdict(text, "")
    assert found.message.startswith("300 of 300 checks are FATAL: 10.0.0.1:56001: Check of something: xxx")
    assert found.message.endswith("; and 295 more")
    assert len(found.message) < 950


@given(
    st.text(alphabet="Healthrpofsv:[]PASFMGINDLK 0123\n\x1b=", max_size=400), st.sampled_from(["", "gone"])
)
def test_no_report_is_an_error_or_reaches_a_terminal_as_it_is(report: str, problem: str) -> None:
    found = verdict(report, problem)
    assert found.result in RESULTS
    assert found.message.isprintable()
    assert not problem or found.failed
