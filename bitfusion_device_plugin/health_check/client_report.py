"""Runs `bitfusion health` and passes its report on as it comes, so that the job's log has it in its words."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitfusion_client.one_line import one_line

LONGEST_REPORT = 1 << 20
"""Bytes that are kept and shown: a server has some two thousand."""
_LONGEST_WORDS = 1 << 14  # of standard error
REPORT, WORDS = "report", "words"
_AT_ONCE = 1 << 16
_LOOK_S = 0.2
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class ClientReport:
    """What the client printed to standard output, and how it failed, in one line; empty: it did not."""

    text: str
    problem: str


def run_health(
    client: Sequence[str],
    limit_s: float,
    show: Callable[[str, bytes], None],
    environ: Mapping[str, str] | None = None,
    longest: int = LONGEST_REPORT,
) -> ClientReport:
    """One run. Never raises for what the client does; it and all that it has started have ended then.

    What it has started may keep its pipes: the report ends with the client.

    Args:
        client: The command, to which ``health`` is added.
        limit_s: How long it may take.
        show: Gets every piece as it comes: `REPORT` or `WORDS`, and bytes.
        environ: The client's environment; the process's.
        longest: Bytes of the report.
    """
    try:
        process = subprocess.Popen(
            [*client, "health"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # what it has started can be ended with it
            env=environ,
        )
    except OSError as error:
        return ClientReport("", f"{client[0]} cannot be started: {error.strerror}")
    kept = {REPORT: bytearray(), WORDS: bytearray()}
    try:
        problem = _read(process, kept, time.monotonic() + limit_s, show, longest)
        if problem is None:
            problem = f"the client did not answer within {limit_s:g} s"
        elif not problem:
            problem = _how_it_ended(process.returncode, bytes(kept[WORDS]))
    finally:
        _end(process)
    return ClientReport(kept[REPORT].decode(errors="replace"), problem)


def _read(
    process: subprocess.Popen[bytes],
    kept: dict[str, bytearray],
    until: float,
    show: Callable[[str, bytes], None],
    longest: int,
) -> str | None:
    """Read both pipes until it has ended: empty; what is wrong with the report; or None: it took too long."""
    bounds = {REPORT: longest, WORDS: _LONGEST_WORDS}
    with selectors.DefaultSelector() as selector:
        for pipe, name in ((process.stdout, REPORT), (process.stderr, WORDS)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, name)
        while True:
            has_ended = process.poll() is not None  # before the look: what it printed last is there then
            if time.monotonic() >= until:
                return "" if has_ended else None
            ready = selector.select(0 if has_ended else _LOOK_S)
            if has_ended and not ready:
                return ""
            for key, _ in ready:
                data = os.read(key.fd, _AT_ONCE)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                room = bounds[key.data] - len(kept[key.data])
                kept[key.data] += data[:room]
                show(key.data, data[:room])
                if key.data == REPORT and len(data) > room:
                    return f"its report is longer than {longest >> 10} KiB"


def _how_it_ended(status: int, words: bytes) -> str:
    if not status:
        return ""
    lines = [line for line in words.decode(errors="replace").splitlines() if line.strip()]
    said = f": {one_line(lines[-1])}" if lines else ""
    return f"`bitfusion health` ended with status {status}{said}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # all of them have ended
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        pass  # it hangs in the kernel, and ends with the pod
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
