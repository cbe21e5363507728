"""A pool that is out of reach while a kernel runs: one display in one cell, and the reason of an end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bitfusion_client.command.client_output import format_back_in_reach, format_out_of_reach, format_pool_lost
from bitfusion_kernel.processes.messages import KernelExitedEvent, OutputEvent, WrapperExitedEvent
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.kernel_events import LAST_OUTPUT_DELAY, LAST_WORDS_DELAY
from tests.kernel.proxy.parts import LAUNCHED, cell
from tests.kernel.proxy.test_kernel_events import POSITION, Served

POOL = "gpu.example:56001"
AWAY = OutputEvent(
    "stderr", "[WARN] 2026-11-21T00:00:00Z " + format_out_of_reach(POOL, "no answer for 5 s", 85)
)
CUT = OutputEvent(
    "stderr", "[WARN] 2026-11-21T00:00:05Z " + format_out_of_reach(POOL, "Connection reset by peer", 12)
)
BACK = OutputEvent("stderr", "[INFO] 2026-11-21T00:00:42Z " + format_back_in_reach(POOL, 42))
LOST = OutputEvent("stderr", "Error: " + format_pool_lost(POOL, 90))


@pytest.fixture
def served() -> Served:
    return Served()


def shown(served: Served, request: QueuedRequest) -> list[tuple[str, str, str]]:
    """Type, display id and text of what was displayed in a cell."""
    return [
        (each.type, each.content["transient"]["display_id"], each.content["data"]["text/plain"])
        for each in served.parts.iopub.messages()
        if each.parent_header.get("msg_id") == request.message.id and "data" in each.content
    ]


def test_the_cell_that_runs_shows_it_and_the_return_changes_that_display(served: Served) -> None:
    running, behind = cell(), cell()
    served.run(running, behind)
    served.tell(AWAY, CUT, BACK)
    first, second, third = shown(served, running)
    assert [first[0], second[0], third[0]] == ["display_data", "update_display_data", "update_display_data"]
    assert first[1] == second[1] == third[1]
    assert f"The GPU pool {POOL} is out of reach since " in first[2]
    assert "no answer for 5 s" in first[2]
    assert "Connection reset by peer" in second[2]
    assert f"The GPU pool {POOL} was out of reach from " in third[2]
    assert not shown(served, behind)


def test_each_outage_has_a_display_of_its_own(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(AWAY, BACK, AWAY)
    types = [each[0] for each in shown(served, running)]
    assert types == ["display_data", "update_display_data", "display_data"]
    assert len({each[1] for each in shown(served, running)}) == 2


def test_where_no_cell_runs_the_next_one_shows_it_and_no_other(served: Served) -> None:
    served.run()
    served.tell(AWAY)
    assert not served.parts.iopub.messages()
    silent, first, second = cell(silent=True), cell(), cell()
    served.parts.submit(silent, first, second)
    assert [each[0] for each in shown(served, first)] == ["display_data"]
    assert not shown(served, silent)
    assert not shown(served, second)
    served.parts.kernel_replies(first)
    served.tell(BACK)
    assert [each[0] for each in shown(served, first)] == ["display_data", "update_display_data"]


def test_an_outage_that_is_over_before_a_cell_runs_is_not_shown(served: Served) -> None:
    served.run()
    served.tell(AWAY, BACK)
    later = cell()
    served.parts.submit(later)
    assert not shown(served, later)


def test_a_wait_shows_it_in_its_own_display_and_the_kernels_cell_once_it_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = cell()
    served.wait(waiting)
    monkeypatch.setattr("bitfusion_kernel.proxy.cells.wait_display.SHOW_AFTER", 0.0)
    served.tell(OutputEvent("stderr", POSITION.format(1)), AWAY)
    assert "is out of reach since" in shown(served, waiting)[-1][2]
    served.tell(LAUNCHED)
    served.parts.link.opened[-1][1]()
    assert shown(served, waiting)[-1][0] == "display_data"
    assert "is out of reach since" in shown(served, waiting)[-1][2]


def lost(served: Served, running: QueuedRequest) -> dict[str, Any]:
    assert not served.parts.shell.sent, "a reply would be one of a kernel that lives"
    assert served.parts.lifecycle.exit_status == 1
    return served.told(running)


@pytest.mark.parametrize("words_first", [False, True])
def test_a_kernel_that_is_ended_for_it_says_so_in_the_clients_words(
    served: Served, words_first: bool
) -> None:
    running = cell()
    served.run(running)
    served.tell(AWAY)
    ends = [LOST, KernelExitedEvent(-9)] if words_first else [KernelExitedEvent(-9), LOST]
    served.tell(*ends, WrapperExitedEvent(1, 1))
    error = lost(served, running)
    assert error["ename"] == "PoolLost"
    assert error["traceback"] == [
        "\x1b[0;31mPoolLost\x1b[0m: The GPU pool was out of reach for too long, so this kernel was ended.",
        "Asked for: 1 GPU",
        f"Answer: {format_pool_lost(POOL, 90)}",
        "What to do: when the pool is back (`%bitfusion health`), restart the kernel, unless Jupyter has "
        "done that already, and run the cells again from the first one.",
    ]


def test_the_last_words_are_waited_for_longer_while_the_pool_is_out_of_reach(served: Served) -> None:
    running = cell()
    served.run(running)
    before = time.monotonic()
    served.tell(AWAY, KernelExitedEvent(-9))
    assert served.parts.loop.timers["kernel lost"][0] - before >= LAST_WORDS_DELAY
    served.tell(LOST)
    served.parts.loop.fire("kernel lost")
    assert lost(served, running)["ename"] == "PoolLost"


def test_a_death_after_its_return_is_told_as_soon_as_any(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(AWAY, BACK, KernelExitedEvent(-9))
    assert served.parts.loop.timers["kernel lost"][0] - time.monotonic() <= LAST_OUTPUT_DELAY
    served.tell(WrapperExitedEvent(1, 137))
    assert lost(served, running)["ename"] == "KernelDied"


def test_a_wait_that_ends_for_it_says_so(served: Served) -> None:
    waiting = cell()
    served.wait(waiting)
    served.tell(LOST, WrapperExitedEvent(1, 1))
    assert served.parts.shell.messages()[0].content["ename"] == "PoolLost"
