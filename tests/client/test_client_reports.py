"""What `list_gpus` and `health` print is read, whatever stands between."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.client_reports import (
    GpuStatus,
    HealthCheck,
    ServerStatus,
    parse_health,
    parse_list_gpus,
)

LOGS = Path(__file__).parent / "logs"


def test_list_gpus() -> None:
    assert parse_list_gpus((LOGS / "list_gpus.txt").read_text()) == [
        ServerStatus(0, "10.202.8.209:56001", 0, (GpuStatus(0, 16160, 16160), GpuStatus(1, 16160, 16160)))
    ]


def test_list_gpus_between_other_lines() -> None:
    text = """[INFO] 2021-03-27T04:26:40Z Query server a:1 to claim client id: x
   |- GPU 7: free memory 1 MiB / 2 MiB
- server 0 [a:1]: running 1 tasks
   |- GPU 0: free memory 8080 MiB / 16160 MiB  Simulated Tesla V100-PCIE-16GB
   |- GPU 1: free memory 0 MiB / 143771 MiB (NVIDIA H200)
   |- GPU 2: on fire
   |- GPU 3: free memory 1 MiB / x MiB
   |- GPU 4: free memory x MiB / 1 MiB
- server x [b:2]: running 1 tasks
- server 1 [b:2]: running 12 tasks
"""
    servers = parse_list_gpus(text)
    assert servers == [
        ServerStatus(
            0,
            "a:1",
            1,
            (
                GpuStatus(0, 8080, 16160, "Simulated Tesla V100-PCIE-16GB"),
                GpuStatus(1, 0, 143771, "NVIDIA H200"),
            ),
        ),
        ServerStatus(1, "b:2", 12),
    ]
    assert [gpu.simulated for gpu in servers[0].gpus] == [True, False]


def test_who_holds_a_gpu_is_told_from_whatever_else_is_said_of_it() -> None:
    text = """- server 0 [a:1]: running 1 tasks
   |- GPU 0: free memory 3000 MiB / 16000 MiB (NVIDIA A2)
   |  |- 5000 MiB used outside the pool: 7 MiB held by ada: x of bob (pid 7)
   |  |- 8000 MiB held by ada: a.ipynb (1 GPU × 50 %, since 14:03)
   |- GPU 1: free memory 0 MiB / 16000 MiB (NVIDIA A2)
   |  |- it is lost
"""
    (server,) = parse_list_gpus(text)
    first, second = server.gpus
    assert first.holders == ("8000 MiB held by ada: a.ipynb (1 GPU × 50 %, since 14:03)",)
    assert first.notes == ("5000 MiB used outside the pool: 7 MiB held by ada: x of bob (pid 7)",)
    assert (second.holders, second.notes) == ((), ("it is lost",))


def test_health() -> None:
    report = parse_health((LOGS / "health.txt").read_text(encoding="utf-8"))
    server, localhost = report.sections
    assert (server.name, localhost.name) == ("172.16.31.206:56001", "localhost")
    assert server.checks[0] == HealthCheck("PASS", "Check library dependency")
    assert server.checks[-1] == HealthCheck(
        "MARGINAL",
        "Check Network Errors/Drops: drops reported in file: /sys/class/net/ens160/statistics/rx_dropped",
    )
    assert dict(server.totals) == {"PASS": 17, "INFO": 0, "SKIPPED": 0, "MARGINAL": 2, "FATAL": 0}
    # this excerpt has no totals for localhost
    assert dict(localhost.totals) == {"PASS": 0, "INFO": 0, "SKIPPED": 1, "MARGINAL": 2, "FATAL": 0}
    assert report.totals == {"PASS": 17, "INFO": 0, "SKIPPED": 1, "MARGINAL": 4, "FATAL": 0}


def test_the_whole_health_report_of_the_document_as_it_is_printed_there() -> None:
    """Its long lines are broken, and its totals are not the numbers of its lines."""
    report = parse_health((LOGS / "health-whole.txt").read_text(encoding="utf-8"))
    assert report.totals == {"PASS": 23, "INFO": 0, "SKIPPED": 1, "MARGINAL": 4, "FATAL": 0}
    assert [section.is_whole for section in report.sections] == [True, True]
    assert sum(check.tag == "PASS" for section in report.sections for check in section.checks) == 24
    marginal = [
        check.text for section in report.sections for check in section.checks if check.tag == "MARGINAL"
    ]
    assert len(marginal) == 3
    assert marginal[-1] == "Check MTU Size: 10000Mbps interface ens192 has low MTU: 1500 < 4K"


@pytest.mark.parametrize(
    ("lines", "fatal", "passed", "is_whole"),
    [
        ("[FATAL  ] x\nPASS: 3\nINFO: 0\nSKIPPED: 0\nMARGINAL: 0\nFATAL: 0", 1, 3, True),
        ("[PASS   ] y\n[FATAL  ] x\nPASS: 3", 1, 3, False),  # cut off in its totals
        ("[PASS   ] y\n[FATAL  ] x", 1, 1, False),
        ("PASS: 3\nINFO: 0\nSKIPPED: 0\nMARGINAL: 0\nFATAL: 2", 2, 3, True),
        ("", 0, 0, False),
    ],
)
def test_no_total_hides_a_fatal_line(lines: str, fatal: int, passed: int, is_whole: bool) -> None:
    (section,) = parse_health(f"Health report for server: a:1\n{lines}\n").sections
    totals = dict(section.totals)
    assert (totals["FATAL"], totals["PASS"], section.is_whole) == (fatal, passed, is_whole)


def test_health_without_a_report() -> None:
    assert parse_health("PASS: 3\n[PASS ] x").sections == ()
    assert parse_health("").totals == {}


@given(st.lists(st.one_of(st.text(), st.text("-|[]: PASFGU0123server running task MiB/free memory"))))
def test_no_text_crashes_the_readers(lines: list[str]) -> None:
    text = "- server 0 [a:1]: running 1 tasks\nHealth report for localhost\n" + "\n".join(lines)
    assert parse_list_gpus(text)[0].address == "a:1"
    assert parse_health(text).sections[0].name == "localhost"
