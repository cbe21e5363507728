"""The bitfusion client as a child of the proxy: output, exit code, limits."""

from __future__ import annotations

import sys

import pytest

from bitfusion_client.errors import ClientFailed
from bitfusion_kernel.proxy.cells.client_command import TIME_LIMIT, ClientCommand
from bitfusion_kernel.proxy.event_loop import EventLoop
from tests.kernel.proxy.parts import ManualLoop


class Ran:
    """A client command that has run to its end in a loop of its own."""

    def __init__(self, code: str, limit: float = TIME_LIMIT) -> None:
        self.chunks: list[str] = []
        self.ends: list[int | None] = []
        loop = EventLoop()
        self.client = ClientCommand(
            loop,
            [sys.executable, "-c", code],
            {},
            self.chunks.append,
            lambda _, status: self.ends.append(status),
            limit,
        )
        loop.run(until=lambda: bool(self.ends))


def test_output_and_exit_code_of_a_client() -> None:
    ran = Ran("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)")
    assert ran.ends == [3]
    assert ran.client.output == "".join(ran.chunks) == "out\nerr\n"


def test_a_client_that_closes_its_output_and_stays_is_killed() -> None:
    assert Ran("import os, time; os.close(1); os.close(2); time.sleep(60)").ends == [-9]


def test_a_client_that_takes_too_long_is_killed() -> None:
    assert Ran("import time; time.sleep(60)", 0.05).ends == [None]


def test_the_limit_of_one_client_is_not_that_of_another_beside_it() -> None:
    loop = EventLoop()
    ends: list[int | None] = []
    for code, limit in (("import time; time.sleep(600)", 0.05), ("print(1)", TIME_LIMIT)):
        argv = [sys.executable, "-c", code]
        ClientCommand(loop, argv, {}, lambda _: None, lambda _, status: ends.append(status), limit)
    loop.run(until=lambda: len(ends) == 2)
    assert sorted(ends, key=str) == [0, None]


def test_a_client_that_cannot_be_executed_is_an_error() -> None:
    with pytest.raises(ClientFailed, match="No such file"):
        ClientCommand(ManualLoop(), ["/no/such"], {}, print, lambda *_: None, TIME_LIMIT)
