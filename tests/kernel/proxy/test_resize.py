"""Another size that is asked for beside the one that the kernel has: what the cell is told."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import BESIDE_LIMIT, Acquisition
from bitfusion_kernel.processes.messages import GrantedEvent, OutputEvent, WrapperExitedEvent
from bitfusion_kernel.proxy.resize import Resize, SizeKept
from tests.kernel.proxy.parts import Parts, cell

POSITION = "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 1 of 2; held by ada"
NOT_IN_TIME = "not to be had within 30 s"
LIMIT_OF_USER = (
    "Error: limit of the pool: one user of this pool may have 1 GPUs, you have or wait for 1, "
    "and this request is for 1; end something of yours first"
)


class Asked:
    """A resize, and what it did. It stands for the supervisor and the starter as well."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.dropped = 0
        self.beside: Acquisition | None = None
        self.asked: list[tuple[GpuRequest, float]] = []
        self.ends: list[BitfusionError | None] = []
        self.cell = cell()
        self.resize = Resize(
            cast(Any, self.parts.loop), cast(Any, self), cast(Any, self), self.parts.publisher
        )

    def start_beside(self, request: GpuRequest, seconds: float) -> Acquisition:
        self.asked.append((request, seconds))
        return Acquisition(len(self.asked) + 1, request, 0.0)

    def drop(self) -> None:
        self.dropped += 1

    def start(self) -> None:
        self.resize.start(GpuRequest(2), "1 GPU", self.cell, self.ends.append)
        self.resize.on_started(4711)

    def told(self) -> SizeKept:
        (error,) = self.ends
        assert isinstance(error, SizeKept)
        return error


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr("bitfusion_kernel.proxy.resize.time.monotonic", lambda: 5.0)
    made = Asked()
    made.start()
    return made


def test_what_has_come_waits_for_the_next_start(asked: Asked) -> None:
    assert asked.asked == [(GpuRequest(2), BESIDE_LIMIT)]
    asked.resize.on_granted(GrantedEvent(3))  # of another
    assert asked.ends == []
    asked.resize.on_granted(GrantedEvent(2))
    assert asked.ends == [None]
    assert asked.beside is not None
    assert asked.beside.number == 2
    asked.resize.on_output(OutputEvent("stderr", POSITION, 2), 0.0)
    assert asked.beside.queue is not None, "its lines are heard until it has taken the place"
    asked.resize.on_taken()
    assert asked.resize.wrapper_pid is None


def test_what_is_lost_before_the_next_start_is_asked_for_anew(asked: Asked) -> None:
    asked.resize.on_granted(GrantedEvent(2))
    asked.resize.on_exited(WrapperExitedEvent(2, 1))
    assert asked.beside is None
    assert asked.ends == [None], "the cell goes on, and waits"


@pytest.mark.parametrize(
    ("now", "lines", "status", "answered"),
    [
        (BESIDE_LIMIT + 0.2, [POSITION], -15, f"{NOT_IN_TIME}: position 1 of 2 at last; held by ada"),
        (BESIDE_LIMIT + 0.2, [], -15, NOT_IN_TIME),
        (1.0, [LIMIT_OF_USER], 1, "you have or wait for 1"),
    ],
)  # fmt: skip
def test_what_does_not_come_is_told_with_the_reason(
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
    now: float,
    lines: list[str],
    status: int,
    answered: str,
) -> None:
    for line in lines:
        asked.resize.on_output(OutputEvent("stderr", line, 2), 0.0)
    monkeypatch.setattr("bitfusion_kernel.proxy.resize.time.monotonic", lambda: now)
    asked.resize.on_exited(WrapperExitedEvent(2, status))
    assert asked.told().asked == "2 GPUs"
    assert answered in asked.told().answered
    assert asked.resize.wrapper_pid is None


def test_who_cancels_is_told_when_nothing_is_asked_for_any_more(asked: Asked) -> None:
    assert asked.resize.cancel("interrupted")
    assert (asked.dropped, asked.ends) == (1, [])
    asked.resize.on_granted(GrantedEvent(2))  # in the same moment: it is not taken
    assert (asked.beside, asked.ends) == (None, [])
    asked.resize.on_exited(WrapperExitedEvent(2, -15))
    assert asked.told().answered == "interrupted after 5 s of waiting"
    assert not asked.resize.cancel("cancelled")


def test_only_one_is_asked_for_at_a_time_and_another_one_after_it(asked: Asked) -> None:
    with pytest.raises(UsageError, match="asks for another size already"):
        asked.start()
    asked.resize.on_exited(WrapperExitedEvent(2, 1))
    asked.start()
    assert len(asked.asked) == 2


def test_the_cell_shows_the_wait_and_what_is_kept(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.resize.on_output(OutputEvent("stderr", POSITION, 2), 0.0)
    asked.parts.loop.fire("resize")
    shown = asked.parts.iopub.messages()[-1].content["data"]["text/plain"]
    assert "Position 1 of 2 in the queue" in shown
    assert "This kernel keeps 1 GPU, and tries for 30 s at most." in shown
    asked.resize.on_exited(WrapperExitedEvent(2, 1))
    assert asked.parts.published(asked.cell)[-1] == "clear_output"
    assert "resize" not in asked.parts.loop.timers
