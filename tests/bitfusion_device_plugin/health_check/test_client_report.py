"""The client is run once, whatever it does, and nothing of it is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bitfusion_device_plugin.health_check.client_report import REPORT, WORDS, ClientReport, run_health
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def client(folder: Path, script: str) -> list[str]:
    file = folder / "bitfusion"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return [str(file)]


def run(command: list[str], limit_s: float = 60.0, longest: int = 1 << 20) -> tuple[ClientReport, bytes]:
    shown = {REPORT: bytearray(), WORDS: bytearray()}
    found = run_health(command, scaled(limit_s), lambda what, data: shown[what].extend(data), longest=longest)
    assert len(shown[WORDS]) <= 1 << 14
    return found, bytes(shown[REPORT])


def test_its_report_is_shown_and_kept_as_it_is(tmp_path: Path) -> None:
    found, shown = run(client(tmp_path, 'echo "[PASS   ] $1 ü"; echo "[WARN] x" >&2'))
    assert found == ClientReport("[PASS   ] health ü\n", "")
    assert shown == b"[PASS   ] health \xc3\xbc\n"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 1", "`bitfusion health` ended with status 1"),
        (
            "echo a >&2; echo Error: none >&2; exit 3",
            "`bitfusion health` ended with status 3: Error: none",
        ),
        ("kill -9 $$", "`bitfusion health` ended with status -9"),
    ],
)
def test_how_it_failed_is_told_in_its_last_words(tmp_path: Path, script: str, problem: str) -> None:
    assert run(client(tmp_path, script))[0].problem == problem


def test_no_client(tmp_path: Path) -> None:
    found, _ = run([str(tmp_path / "none")])
    assert found == ClientReport("", f"{tmp_path}/none cannot be started: No such file or directory")


def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    command = client(tmp_path, f"echo begun; sleep 600 & echo $! > {tmp_path}/child; wait")
    begun = time.monotonic()
    found = run_health(command, 1.0, lambda what, data: None)
    assert found == ClientReport("begun\n", "the client did not answer within 1 s")
    assert time.monotonic() - begun < scaled(60)
    until_gone(tmp_path / "child")


def until_gone(file: Path) -> None:
    """The process whose number the file has ends."""
    process = int(file.read_text())

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_until(is_gone, "the process to end")


def test_a_child_that_keeps_the_pipes_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Client 4.0 starts a process for telemetry."""
    found, _ = run(client(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; echo done"), 300)
    assert found == ClientReport("done\n", "")
    until_gone(tmp_path / "child")


def test_one_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    found, _ = run(client(tmp_path, "echo done; exec >&- 2>&-; sleep 1; exit 7"))
    assert found == ClientReport("done\n", "`bitfusion health` ended with status 7")


def test_one_that_never_stops_printing_is_cut_off(tmp_path: Path) -> None:
    found, shown = run(client(tmp_path, "exec yes '[FATAL  ] x'"), longest=2048)
    assert found.problem == "its report is longer than 2 KiB"
    assert len(found.text) == len(shown) == 2048
    assert run(client(tmp_path, "echo 1234567"), longest=8)[0] == ClientReport("1234567\n", "")


def test_one_that_never_stops_complaining_is_still_read(tmp_path: Path) -> None:
    found, shown = run(client(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x >&2; echo done"))
    assert (found.problem, shown) == ("", b"done\n")
