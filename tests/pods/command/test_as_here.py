"""A command line with a program in a pod beside the same with the program here: the same output and status.

`$RUN` in it is nothing here, and `bitfusion run … --` there.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pods.command.pods import ROOT, Pods, pods_in
from tests.support.machine import scaled

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with pods_in(tmp_path) as made:
        yield made


def outcome(pods: Pods, line: str, *, there: bool) -> tuple[int, bytes]:
    """Its status and what it has printed."""
    run = shlex.join(pods.command()) if there else ""
    done = subprocess.run(
        ["bash", "-c", line.replace("$RUN", run)],
        cwd=ROOT,
        env=os.environ | pods.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=scaled(40),
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


BYTES = "head -c 3000000 /dev/zero | tr '\\0' '\\377'"


@pytest.mark.parametrize(
    "line",
    [
        "$RUN sh -c 'exit 7'",
        "$RUN sh -c 'exit 255'; echo $?",
        "$RUN sh -c 'kill -SEGV $$'; echo $?",
        "$RUN yes | head -3; echo ${PIPESTATUS[@]}",
        "yes | $RUN head -3; echo ${PIPESTATUS[@]}",
        "$RUN seq 300000 | head -c 100000 | sha256sum",
        f"{BYTES} | $RUN cat | sha256sum; echo ${{PIPESTATUS[@]}}",
        f'$RUN sh -c "{BYTES}; {BYTES} >&2" 2>&1 >/dev/null | sha256sum',
        "$RUN cat <&-; echo $?",
        "$RUN sh -c 'test -e /proc/self/fd/0; echo $?' <&-",
        "$RUN sh -c 'echo x; echo $? >&2' 2>&1 >&-",
        "$RUN sh -c 'echo x >&2; echo $?' 2>&-",
        "$RUN sh -c 'echo x >&2; echo $?' <&- 2>&-",
        "$RUN true <&- >&- 2>&-; echo $?",
        "$RUN cat /dev/zero >/dev/full; echo $((! $?))",
        "$RUN sh -c 'echo x' >/dev/full; echo $((! $?))",
        "(echo a; sleep 0.3; echo b) | $RUN sh -c 'cat; echo after'",
        "yes | $RUN sh -c 'exec <&-; sleep 0.5; exit 3'; echo ${PIPESTATUS[@]}",
        "$RUN sh -c 'read line; echo got $line; cat' < /etc/hostname",
        "$RUN cat < /dev/null",
        "$RUN printf '%s|' 'a b' '' '*' $'new\\nline' '$HOME'",
    ],
)
def test_it_is_as_here(pods: Pods, line: str) -> None:
    assert outcome(pods, line, there=True) == outcome(pods, line, there=False)


def test_files_are_appended_to_and_keep_their_place(pods: Pods, tmp_path: Path) -> None:
    said = []
    for there in (False, True):
        file = tmp_path / f"said-{there}"
        line = f"(echo first; $RUN sh -c 'echo second; echo third'; echo fourth) >> {file}; cat {file}"
        said.append(outcome(pods, line, there=there))
    assert said[0] == said[1]


def test_a_full_disk_is_told(pods: Pods) -> None:
    line = "$RUN sh -c 'echo x' 2>&1 >/dev/full"
    status, told = outcome(pods, line, there=True)
    assert (status, told) == (1, b"Error: not written: No space left on device\n")


def test_a_program_that_closes_its_output_ends_its_readers_input(pods: Pods) -> None:
    process = pods.start("sh", "-c", "echo said; exec >&-; read word; exit 3", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read() == b"said\n"
    process.communicate(b"and on\n", timeout=scaled(20))
    assert process.returncode == 3


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.parametrize("numbers", [range(low, low + 64) for low in range(0, 256, 64)], ids=str)
def test_each_exit_code_comes_back(pods: Pods, numbers: range) -> None:
    found = []
    for number in numbers:
        process = pods.start("sh", "-c", f"exit {number}")
        process.communicate(timeout=scaled(20))
        found.append(process.returncode)
    assert found == list(numbers)


NOT_DEADLY = {17, 18, 19, 20, 21, 22, 23, 28}  # CHLD, CONT, those that stop, URG, WINCH


@pytest.mark.long
@pytest.mark.timeout(500)
def test_each_deadly_signal_comes_back_as_a_shell_tells_it(pods: Pods) -> None:
    for number in sorted(set(range(1, 32)) - NOT_DEADLY):
        line = f"$RUN sh -c 'ulimit -c 0; kill -{number} $$'; echo $?"
        assert outcome(pods, line, there=True) == outcome(pods, line, there=False), number


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_gigabyte_through_stdin_and_stdout_has_the_same_checksum(pods: Pods) -> None:
    size, piece = 1 << 30, os.urandom(1 << 20)
    process = pods.start("cat", stdin=subprocess.PIPE)
    sent, came = hashlib.sha256(), hashlib.sha256()
    assert process.stdin is not None
    assert process.stdout is not None
    into, number = process.stdin, size // len(piece)

    def feed() -> None:
        for _ in range(number):
            left = memoryview(piece)
            while left:
                left = left[os.write(into.fileno(), left) :]
            sent.update(piece)
        into.close()

    feeder, began, total = threading.Thread(target=feed, daemon=True), time.monotonic(), 0
    feeder.start()
    figures: list[int] = []
    while data := os.read(process.stdout.fileno(), 1 << 18):
        came.update(data)
        total += len(data)
        if total // (size // 8) > len(figures):
            figures.append(resident_kib(process.pid))
    feeder.join()
    seconds = time.monotonic() - began
    assert process.wait(scaled(20)) == 0
    process.stdin = None
    process.communicate()
    assert (total, came.digest()) == (size, sent.digest())
    assert max(figures) - figures[0] < 3000, figures
    print(f"{size >> 20} MiB both ways in {seconds:.1f} s; memory of the command {figures} KiB")


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
