"""Connections are taken also where descriptors have run out; a loop that cannot take any does not spin."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from bitfusion_client.listening.acceptor import AT_ONCE, Acceptor


class Poor(socket.socket):
    """A listening socket whose process has no descriptor free until somebody closes one."""

    room = 0
    asked = 0
    error = errno.EMFILE

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        if not self.room:
            raise OSError(self.error, "no room")
        self.room -= 1
        return super().accept()


def listening() -> Poor:
    poor = Poor()
    poor.bind(("127.0.0.1", 0))
    poor.listen(100)
    return poor


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_a_descriptor_nothing_is_tried_for_a_moment(number: int) -> None:
    async def main() -> tuple[int, int]:
        poor = listening()
        taken: list[socket.socket] = []
        poor.error = number
        with socket.create_connection(poor.getsockname()):
            acceptor = Acceptor(
                poor, asyncio.get_running_loop(), lambda connected, _: taken.append(connected)
            )
            await asyncio.sleep(0.35)
            asked = poor.asked
            poor.room = 1
            while not taken:
                await asyncio.sleep(0.01)
            acceptor.close()
        for connected in taken:
            connected.close()
        return asked, len(taken)

    asked, taken = asyncio.run(main())
    assert asked <= 5
    assert taken == 1


def test_room_that_can_be_made_is_made_at_once() -> None:
    async def main() -> int:
        poor = listening()
        taken: list[socket.socket] = []

        def make_room() -> bool:
            poor.room += 1
            return True

        acceptor = Acceptor(
            poor, asyncio.get_running_loop(), lambda connected, _: taken.append(connected), make_room
        )
        clients = [socket.create_connection(poor.getsockname()) for _ in range(3)]
        await asyncio.sleep(0.05)
        acceptor.close()
        for each in (*clients, *taken):
            each.close()
        return len(taken)

    assert asyncio.run(main()) == 3


def test_a_few_are_taken_before_others_have_their_turn() -> None:
    async def main() -> list[int]:
        poor = listening()
        taken: list[socket.socket] = []
        poor.room = 100
        clients = [socket.create_connection(poor.getsockname()) for _ in range(AT_ONCE + 1)]
        acceptor = Acceptor(poor, asyncio.get_running_loop(), lambda connected, _: taken.append(connected))
        counts = []
        while len(taken) <= AT_ONCE:
            await asyncio.sleep(0)
            counts.append(len(taken))
        acceptor.close()
        acceptor.close()
        for each in (*clients, *taken):
            each.close()
        return counts

    assert AT_ONCE in asyncio.run(main())
