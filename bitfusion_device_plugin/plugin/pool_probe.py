"""Asks the pool how many GPUs it has, by ``bitfusion list_gpus``: a process, bounded in time and size."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bitfusion_client.client_reports import parse_list_gpus
from bitfusion_client.one_line import shown_value
from bitfusion_device_plugin.plugin.pool_size import pool_units

LONGEST_ANSWER = 4 << 20  # a server's line and its GPUs' are below 1 kB each
_PIECE = 1 << 16


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
    except OSError as error:
        problem = f"{client[0]} cannot be started: {error.strerror}"
    except asyncio.TimeoutError:
        problem = f"the client has not answered within {time_limit_s:g} s"
    except _TooLong:
        problem = f"the client has printed more than {LONGEST_ANSWER >> 20} MiB"
    else:
        units = pool_units(parse_list_gpus(output), overcommit)
        if status or not units:
            # a server that is away leaves the list of the others: only an answer without any GPU is none
            said = _last_line(words) or _last_line(output)
            how = f"the client has ended with status {status}" if status else "the pool has no GPUs"
            units, problem = None, f"{how}: {said}" if said else how
    return PoolAnswer(units, problem, time.monotonic() - begun)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return shown_value(lines[-1]) if lines else ""


async def _run(command: Sequence[str], time_limit_s: float) -> tuple[str, str, int]:
    """Standard output, standard error, exit status. Raises OSError, TimeoutError and _TooLong."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # whatever it starts can be ended with it
    )
    assert process.stdout is not None
    assert process.stderr is not None
    work = asyncio.ensure_future(asyncio.gather(_read(process.stdout), _read(process.stderr), process.wait()))
    try:
        # not asyncio.wait_for: before Python 3.12 it may lose a cancellation, and with it a SIGTERM
        await asyncio.wait({work}, timeout=time_limit_s)
        if not work.done():
            raise asyncio.TimeoutError
        output, words, status = work.result()
        return output.decode(errors="replace"), words.decode(errors="replace"), status
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of them have ended
        work.cancel()
        await asyncio.wait({work})
        await process.wait()
        if not work.cancelled():
            work.exception()  # has been raised above, or came with the end


async def _read(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while piece := await stream.read(_PIECE):
        found += piece
        if len(found) > LONGEST_ANSWER:
            raise _TooLong
    return bytes(found)
