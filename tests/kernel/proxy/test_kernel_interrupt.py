"""When an interrupt is sent to the kernel, by its state and the time; the time is the test's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.kernel.kernel_interrupt import (
    LONGEST_SETTLING,
    PATIENCE,
    SETTLED,
    KernelInterrupt,
    takes_sigint,
)
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import ManualLoop, Parts, cell, message


class Kernel:
    """A kernel and an interrupt for it; `pass_time` moves the clock by steps of a look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("bitfusion_kernel.proxy.kernel.kernel_interrupt.time.monotonic", lambda: self.now)
        self.loop = ManualLoop()
        self.delivered: list[Message | None] = []
        self.cell: str | None = "first"
        self.takes = True
        self.answered: list[Message] = []
        self.interrupt = KernelInterrupt(
            self.loop,
            self.delivered.append,
            running_cell=lambda: self.cell,
            takes_interrupts=lambda: self.takes,
            answer=self.answered.append,
        )

    @property
    def sent(self) -> int:
        """How many interrupts the kernel has got."""
        return len(self.delivered)

    def pass_time(self, seconds: float) -> None:
        """The looks of so many seconds."""
        end = self.now + seconds
        while "kernel interrupt" in self.loop.timers and self.loop.timers["kernel interrupt"][0] <= end:
            self.now = self.loop.timers["kernel interrupt"][0]
            self.loop.fire("kernel interrupt")
        self.now = end


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.mark.parametrize("takes", [True, False])
def test_an_idle_kernel_gets_it_at_once(kernel: Kernel, takes: bool) -> None:
    kernel.cell, kernel.takes = None, takes
    request = message("interrupt_request")
    kernel.interrupt.send(request)
    kernel.interrupt.send()
    assert kernel.delivered == [request, None]


def test_a_cell_that_runs_is_hit_after_a_moment(kernel: Kernel) -> None:
    kernel.interrupt.send()
    kernel.pass_time(SETTLED / 2)
    assert kernel.sent == 0
    kernel.pass_time(SETTLED)
    assert kernel.sent == 1
    assert not kernel.loop.timers


def test_a_cell_that_has_not_begun_is_hit_when_it_has(kernel: Kernel) -> None:
    kernel.takes = False
    kernel.interrupt.send()
    kernel.pass_time(PATIENCE / 2)
    assert kernel.sent == 0
    kernel.takes = True
    kernel.pass_time(SETTLED / 2)
    assert kernel.sent == 0, "ipykernel loses one that hits the first moments of a cell"
    kernel.pass_time(SETTLED)
    assert kernel.sent == 1


def test_the_cell_that_follows_is_hit_when_it_has_run_for_a_moment(kernel: Kernel) -> None:
    kernel.interrupt.send()
    kernel.pass_time(SETTLED / 2)
    kernel.cell = "second"
    kernel.pass_time(SETTLED * 0.8)
    assert kernel.sent == 0
    kernel.pass_time(SETTLED)
    assert kernel.sent == 1


def test_many_short_cells_are_no_shelter(kernel: Kernel) -> None:
    kernel.interrupt.send()
    for number in range(int(LONGEST_SETTLING * 2 / SETTLED) + 1):
        kernel.cell, kernel.takes = f"short {number}", False  # ipykernel ignores SIGINT between two cells
        kernel.pass_time(SETTLED / 4)
        kernel.takes = True
        kernel.pass_time(SETTLED / 2)
    assert kernel.sent == 1


def test_a_cell_that_ends_by_itself_leaves_nothing_to_hit(kernel: Kernel) -> None:
    kernel.interrupt.send()
    kernel.cell = None
    kernel.pass_time(SETTLED / 2)
    assert kernel.sent == 1, "somebody waits for the reply"


def test_a_cell_that_ignores_sigint_gets_it_in_the_end(kernel: Kernel) -> None:
    kernel.takes = False
    kernel.interrupt.send()
    kernel.pass_time(PATIENCE + 1)
    assert kernel.sent == 1


def test_several_at_a_time_are_one_and_each_is_answered(kernel: Kernel) -> None:
    first, second = message("interrupt_request"), message("interrupt_request")
    kernel.interrupt.send()
    kernel.interrupt.send(first)
    kernel.interrupt.send(second)
    kernel.interrupt.send()
    kernel.pass_time(SETTLED * 2)
    assert kernel.delivered == [first]
    assert kernel.answered == [second]


def test_a_shutdown_sends_what_is_kept_back(kernel: Kernel) -> None:
    kernel.takes = False
    kernel.interrupt.flush()
    assert kernel.sent == 0
    kernel.interrupt.send()
    kernel.interrupt.flush()
    kernel.pass_time(PATIENCE * 2)
    assert kernel.sent == 1


# -- the last moments of a wait ------------------------------------------------------------------------


def test_an_interrupt_in_the_last_150_ms_of_a_wait_goes_to_the_kernel() -> None:
    parts, waited = Parts(), cell()
    control = parts.make_control()
    parts.submit(waited)
    control.interrupt()
    parts.launch()
    parts.lifecycle.kernel_connected()
    control.on_kernel_connected()
    assert not parts.signals, "a shutdown may still follow"
    parts.loop.fire("interrupt")
    assert parts.signals == [signal.SIGINT]
    assert parts.lifecycle.state is KernelState.RUNNING


def test_a_shutdown_in_the_last_150_ms_of_a_wait_takes_its_interrupt_with_it() -> None:
    parts, shutdown = Parts(), message("shutdown_request")
    control = parts.make_control()
    control.watch()
    parts.submit(cell())
    control.interrupt()
    parts.connect()
    control.on_kernel_connected()
    parts.control.incoming.append(shutdown.frames)
    parts.loop.handlers[parts.control]()
    assert parts.link.control == [shutdown.frames]
    assert "interrupt" not in parts.loop.timers


# -- what a process does on SIGINT ---------------------------------------------------------------------


@pytest.mark.parametrize("ignores", [True, False])
def test_what_a_process_does_on_sigint_is_read(ignores: bool) -> None:
    action = "SIG_IGN" if ignores else "default_int_handler"
    code = f"import signal, sys; signal.signal(2, signal.{action}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert takes_sigint(process.pid) is not ignores
        process.communicate()


def test_a_process_that_cannot_be_read_is_interrupted_at_once(tmp_path: Path) -> None:
    assert takes_sigint(os.getpid(), str(tmp_path))
    (tmp_path / "1").mkdir()
    for text in ("", "Name: x\n", "SigIgn:\n", "SigIgn: nonsense\n"):
        (tmp_path / "1" / "status").write_text(text)
        assert takes_sigint(1, str(tmp_path))
    (tmp_path / "1" / "status").write_text(f"SigIgn:\t{1 << (signal.SIGINT - 1):016x}\n")
    assert not takes_sigint(1, str(tmp_path))
