"""Asks the pool how many GPUs it has, by ``bitfusion list_gpus``: a process, bounded in time and size."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bitfusion_client.command.client_reports import parse_list_gpus
from bitfusion_client.one_line import shown_value
from bitfusion_device_plugin.plugin.pool_size import pool_units

LONGEST_ANSWER = 4 << 20  # a server's line and its GPUs' are below 1 kB each
LONGEST_END_S = 5.0  # of a process that was killed


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """What one probe has found.

    Attributes:
        units: Of the whole pool; None where it has not answered.
        problem: Why not, for a person, in one line; empty where it has.
        seconds: How long it took.
    """

    units: int | None
    problem: str
    seconds: float


class _TooLong(Exception):
    """The client has printed more than an answer can be."""


async def ask_pool(client: Sequence[str], overcommit: float, time_limit_s: float) -> PoolAnswer:
    """One probe. Raises nothing but what cancels it; the client and its children have ended then, too."""
    begun = time.monotonic()
    units, problem = None, ""
    try:
        output, words, status = await _run([*client, "list_gpus"], time_limit_s)
    except asyncio.TimeoutError:  # before OSError: from Python 3.11 on it is one
        problem = f"the client did not answer within {time_limit_s:g} s"
    except OSError as error:
        problem = f"{client[0]} cannot be started: {error.strerror}"
    except _TooLong:
        problem = f"the client printed more than {LONGEST_ANSWER >> 20} MiB"
    else:
        units = pool_units(parse_list_gpus(output), overcommit)
        if status or not units:
            # a server that is away leaves the list of the others: only an answer without any GPU is none
            said = _last_line(words) or _last_line(output)
            how = f"the client ended with status {status}" if status else "the pool has no GPUs"
            units, problem = None, f"{how}: {said}" if said else how
    return PoolAnswer(units, problem, time.monotonic() - begun)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return shown_value(lines[-1]) if lines else ""


class _Client(asyncio.SubprocessProtocol):
    """One run of the client; what it prints is always read, and kept up to a limit.

    Attributes:
        done: Set when the process and its pipes have ended, or it has printed too much.
        gone: Set when they have ended.
    """

    def __init__(self) -> None:
        self.printed = {1: bytearray(), 2: bytearray()}
        self.too_long = False
        self.done, self.gone = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if len(self.printed[fd]) + len(data) <= LONGEST_ANSWER:
            self.printed[fd] += data
        else:
            self.too_long = True
            self.done.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set()
        self.gone.set()


async def _run(command: Sequence[str], time_limit_s: float) -> tuple[str, str, int]:
    """Standard output, standard error, exit status. Raises OSError, TimeoutError and _TooLong."""
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            _Client,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # whatever it starts can be ended with it
        )
    )
    try:
        # Who is cancelled while it starts has a process already, whose children asyncio would leave behind.
        await asyncio.wait({starting})
        transport, client = starting.result()
        await _wait(client.done, time_limit_s)
        if client.too_long:
            raise _TooLong
        if not client.done.is_set():
            raise asyncio.TimeoutError
        output, words = (client.printed[fd].decode(errors="replace") for fd in (1, 2))
        return output, words, transport.get_returncode() or 0
    finally:
        await asyncio.wait({starting})
        if starting.exception() is None:
            await _end(*starting.result())


async def _end(transport: asyncio.SubprocessTransport, client: _Client) -> None:
    """End what still runs of the client and of what it has started."""
    try:
        os.killpg(transport.get_pid(), signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # all of them have ended
    transport.close()
    await _wait(client.gone, LONGEST_END_S)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """For an event, but not longer. Not asyncio.wait_for: before Python 3.12 it may lose a cancellation."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
