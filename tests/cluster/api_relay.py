"""The apiserver as pods of a box see it: ``python api_relay.py PID ADDRESS PORT TARGET-PORT``.

Listens on ADDRESS:PORT in the network of the process PID, for as long as that lives, and passes connections
on to TARGET-PORT of 127.0.0.1 in its own, where the apiserver listens. Standard library only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_PIECE = 1 << 16


def listener_in(pid: int, address: str, port: int) -> socket.socket:
    """A listening socket of another process's network; this process stays in its own."""
    sys.path.insert(0, str(Path(__file__).parents[2]))  # run with -I
    from tests.cluster.box_enter import enter, open_namespaces

    own = open_namespaces(os.getpid(), "net")
    enter(open_namespaces(pid, "net"))
    try:
        return socket.create_server((address, port), backlog=128)
    finally:
        enter(own)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _serve(listener: socket.socket, target: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()  # as refused
            return
        try:
            await asyncio.gather(_pass_on(reader, to[1]), _pass_on(to[0], writer))
        finally:
            for each in (writer, to[1]):
                each.close()

    async with await asyncio.start_server(connected, sock=listener):
        await asyncio.get_running_loop().create_future()


def _end_with(process: int) -> None:
    """Our sockets would keep that network alive."""
    asyncio.get_running_loop().add_reader(process, os._exit, 0)


async def main(pid: int, address: str, port: int, target: int) -> None:
    _end_with(os.pidfd_open(pid))
    await _serve(listener_in(pid, address, port), target)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
