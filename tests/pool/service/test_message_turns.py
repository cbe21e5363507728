"""MessageTurns: each user in turn, no more than its rate, a bug of one connection is no other's."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from bitfusion_pool.service.connections.client_connection import ClientConnection
from bitfusion_pool.service.connections.message_turns import MessageTurns


class Connection:
    def __init__(self, name: str, lines: int, done: list[str], fails: bool = False) -> None:
        self.name, self.left, self.done, self.fails = name, lines, done, fails

    def handle_one(self) -> bool:
        if self.fails:
            raise RuntimeError("a bug")
        self.done.append(self.name)
        self.left -= 1
        return self.left > 0

    def close(self) -> None:
        self.done.append(f"{self.name} closed")


def run(per_second: float, at_once: float, *users: list[Connection]) -> float:
    """Let all be handled; returns how long it took."""

    async def until_done() -> float:
        loop = asyncio.get_running_loop()
        turns = MessageTurns(per_second, at_once, loop)
        began = loop.time()
        for uid, connections in enumerate(users):
            for connection in connections:
                turns.add(uid, cast(ClientConnection, connection))
        while any(one.left and not one.fails for connections in users for one in connections):
            await asyncio.sleep(0.001)
        return loop.time() - began

    return asyncio.run(until_done())


def test_many_connections_of_one_user_get_no_more_than_one_of_another() -> None:
    done: list[str] = []
    run(1000, 100, [Connection(f"a{n}", 5, done) for n in range(5)], [Connection("b", 3, done)])
    assert done[:6] == ["a0", "b", "a1", "b", "a2", "b"]
    assert len(done) == 28


def test_a_user_over_its_rate_waits_and_others_do_not() -> None:
    done: list[str] = []
    took = run(50, 2, [Connection("a", 7, done)], [Connection("b", 2, done)])
    assert done[:4] == ["a", "b", "a", "b"]
    assert took >= 0.09


def test_a_bug_that_one_connection_meets_ends_that_one_only(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    with caplog.at_level(logging.ERROR):
        run(1000, 100, [Connection("a", 1, done, fails=True)], [Connection("b", 2, done)])
    assert done == ["a closed", "b", "b"]
    assert "a message could not be handled" in caplog.text
