"""What is told of the time at which an idle kernel gives its GPUs back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.idle_watch import TELL_FROM, IdleWatch
from tests.kernel.proxy.parts import Parts, cell

START = 1000.0
EPOCH = 1e9
"""`time.time()` less `time.monotonic()`."""


class Watched:
    """A kernel with an `idle_release` of 10 minutes, on a clock of the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.time", lambda: EPOCH + self.now)
        self.parts = Parts()
        self.told = 0
        nothing = cast(Any, None)
        link: Any = self.parts.link
        self.watch = IdleWatch(
            600.0,
            self.parts.loop,
            self.parts.sent,
            link,
            self.parts.publisher,
            nothing,
            lambda seconds: None,
            self._tell,
        )

    def _tell(self) -> None:
        self.told += 1

    def state(self) -> tuple[float | None, int]:
        """When it will be, and how often that was told."""
        return self.watch.release_at, self.told

    def run(self) -> QueuedRequest:
        """A cell begins."""
        request = cell("1")
        self.parts.sent.sent(request)
        self.watch.on_cells()
        return request


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_it_is_known_while_nothing_works_and_moves_with_each_work(watched: Watched) -> None:
    assert watched.state() == (EPOCH + START + 600, 1)
    running = watched.run()
    assert watched.state() == (None, 2)
    watched.now += 100
    watched.watch.touched("KEEP")
    assert watched.state() == (None, 2), "a cell runs"
    watched.parts.sent.answered(running.message.id)
    watched.watch.on_cells()
    assert watched.state() == (EPOCH + START + 700, 3)
    watched.now += 50
    watched.watch.touched("KEEP")
    assert watched.state() == (EPOCH + START + 750, 4)


def test_output_all_the_time_is_told_once_a_second_at_most(watched: Watched) -> None:
    for _ in range(1000):
        watched.now += 0.01
        watched.watch.touched("OUTPUT")
    assert watched.told <= 1 + 10 / TELL_FROM
    assert watched.watch.release_at == pytest.approx(EPOCH + watched.now + 600, abs=TELL_FROM)
