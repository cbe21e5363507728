"""Readings of the NVIDIA cards that do not block the event loop, whatever the driver does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from subprocess import Popen
from typing import IO

from bitfusion_pool.inventory.nvidia.cards import Reading
from bitfusion_pool.inventory.nvidia.reading_process import (
    LIMIT_S,
    MOST_BYTES,
    reading_of_answer,
    start_reading,
    too_slow,
)

_END_S = 1.0  # so long a process may take to end after its last word, or once it is killed
_LOOK_S = 0.02


class CardReader:
    """Reads the cards; one reading at a time, for which the driver may take `limit_s` seconds."""

    def __init__(self, environ: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
        self._environ = dict(environ)
        self._limit_s = limit_s
        self._process: Popen[bytes] | None = None

    async def read(self) -> Reading:
        """All cards now.

        Raises:
            NvidiaUnusable: There is no reading.
        """
        if self._process is not None and self._process.poll() is None:
            # killed, but in the driver, where no signal reaches it: a second one would only hang, too
            raise too_slow(self._limit_s)
        process = start_reading(self._environ)
        self._process = process
        assert process.stdout is not None
        try:
            with process.stdout:
                out = await _read_all(process.stdout, self._limit_s)
            if out is None:
                raise too_slow(self._limit_s)
            status = await _status_of(process)
            return reading_of_answer(out, 0 if status is None else status)
        finally:
            if process.poll() is None:
                process.kill()
                await _status_of(process)


async def _read_all(pipe: IO[bytes], limit_s: float) -> bytes | None:
    """What comes until the end of the pipe; None if that does not come in time."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    found = bytearray()
    fd = pipe.fileno()
    os.set_blocking(fd, False)

    def readable() -> None:
        data = os.read(fd, MOST_BYTES)
        found.extend(data)
        if not data or len(found) > MOST_BYTES:
            loop.remove_reader(fd)
            ended.set_result(None)

    loop.add_reader(fd, readable)
    try:
        await asyncio.wait({ended}, timeout=limit_s)
        return bytes(found) if ended.done() else None
    finally:
        loop.remove_reader(fd)
        ended.cancel()


async def _status_of(process: Popen[bytes]) -> int | None:
    """The exit status, once the process has ended; None if it does not end."""
    until = asyncio.get_running_loop().time() + _END_S
    while process.poll() is None and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(_LOOK_S)
    return process.returncode
