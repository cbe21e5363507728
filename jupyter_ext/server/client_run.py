"""Runs the `bitfusion` command beside the server's event loop, with bounds on its output and time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import ClientFailed

MOST_BYTES = 1 << 20
"""Of output; the report of a thousand GPUs has a tenth of it."""

TIME_LIMIT = 60.0
"""Seconds; the real client asks servers one by one, and each may take its 3 s to fail."""

_END_LIMIT = 2.0
"""Seconds for a client that has closed its output, or was killed, to end."""


async def run_client(argv: Sequence[str], environ: Mapping[str, str], *, limit: float = TIME_LIMIT) -> str:
    """What a client prints that succeeds. Whatever becomes of it, and of us, its processes are ended.

    Args:
        argv: Command and arguments; no shell sees them.
        environ: Its environment.
        limit: Seconds.

    Raises:
        BitfusionError: It failed, cannot be started, takes too long or prints too much.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        raise ClientFailed(argv[0], error.strerror or "it cannot be started") from None
    status: int | None = None
    closed = False
    try:
        assert process.stdout is not None
        output = await asyncio.wait_for(_read(process.stdout), limit)
        closed = len(output) <= MOST_BYTES
        if closed:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                status = await asyncio.wait_for(process.wait(), _END_LIMIT)
    except (asyncio.TimeoutError, TimeoutError):
        raise ClientFailed(" ".join(argv), f"it did not answer within {limit:g} s") from None
    finally:
        if not closed or process.returncode is None:
            await _end(process)
    if len(output) > MOST_BYTES:
        raise ClientFailed(" ".join(argv), f"it printed more than {MOST_BYTES} bytes")
    text = output.decode("utf-8", "replace")
    if status != 0:
        raise error_from_output(text.splitlines(), status)
    return text


async def _read(stream: asyncio.StreamReader) -> bytes:
    """All of it, or the first bytes with one too many."""
    parts, length = [], 0
    while length <= MOST_BYTES and (chunk := await stream.read(65536)):
        parts.append(chunk)
        length += len(chunk)
    return b"".join(parts)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of its process group lives on; what it had still to say is read, or its pipe stayed open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(_read_to_end(process), _END_LIMIT)


async def _read_to_end(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass
    await process.wait()
