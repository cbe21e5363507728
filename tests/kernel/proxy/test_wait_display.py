"""When the display of a wait is shown in a cell, brought up to date, and taken away."""

from __future__ import annotations

import time

import pytest

from bitfusion_client.kernel_state import states
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.cells.wait_display import SHOW_AFTER, SHOW_SILENT_WAIT_AFTER, UPDATE_EVERY
from tests.kernel.proxy.parts import LAUNCHED, Parts, cell

TIMER = "wait display"
POSITION = "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 2 of 3; held by ada"


def _waiting(*, position: bool = True) -> tuple[Parts, QueuedRequest]:
    parts = Parts()
    parts.lifecycle.request()
    if position:
        parts.started[0].on_line(POSITION, 0.0)
    waiting = cell()
    parts.display.show_in(waiting)
    return parts, waiting


def _due(parts: Parts) -> float:
    return parts.loop.timers[TIMER][0]


def _make_young(parts: Parts) -> None:
    parts.display._since += 1000


def test_a_wait_is_shown_after_a_moment_and_then_updated_in_place() -> None:
    parts, waiting = _waiting()
    assert not parts.iopub.sent
    assert _due(parts) == parts.display._since + SHOW_AFTER
    parts.loop.fire(TIMER)
    before = time.monotonic()
    parts.loop.fire(TIMER)
    assert parts.published(waiting) == ["display_data", "update_display_data"]
    shown, updated = (m.content for m in parts.iopub.messages())
    assert shown["transient"] == updated["transient"]
    assert "Position 2 of 3" in shown["data"]["text/plain"]
    assert before <= _due(parts) - UPDATE_EVERY <= time.monotonic()


def test_programs_get_the_kernels_state_as_it_is_then_beside_text_and_html() -> None:
    parts, _ = _waiting()
    parts.loop.fire(TIMER)
    parts.state["state"] = "starting"
    parts.loop.fire(TIMER)
    shown, updated = (m.content["data"] for m in parts.iopub.messages())
    assert shown.keys() == updated.keys() == {"text/plain", "text/html", states.MIME_TYPE}
    assert [each[states.MIME_TYPE]["state"] for each in (shown, updated)] == ["waiting", "starting"]


@pytest.mark.parametrize("allow_stdin", [True, False])
def test_a_cell_that_nobody_watches_shows_what_counts_its_wait(allow_stdin: bool) -> None:
    parts = Parts()
    parts.submit(cell(allow_stdin=allow_stdin))
    parts.started[0].on_line(POSITION, 0.0)
    parts.loop.fire(TIMER)
    shown = parts.iopub.messages()[-1].content["data"]["text/plain"]
    assert ("A time limit for cells counts this wait." in shown) is not allow_stdin


@pytest.mark.parametrize("allow_stdin", [True, False])
def test_a_wait_that_nobody_watches_is_told_on_stderr_once_a_minute(
    allow_stdin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool such as nbclient shows no display while it runs, but what the kernel's process says."""
    logged: list[str] = []
    monkeypatch.setattr("bitfusion_kernel.proxy.jupyter.jupyter_log.write_line", logged.append)
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    parts = Parts()
    parts.submit(cell(allow_stdin=allow_stdin))
    parts.started[0].on_line(POSITION, 0.0)
    for seconds in (SHOW_AFTER, *range(1, 122)):
        now = 1000.0 + seconds
        parts.loop.fire(TIMER)
    times = [] if allow_stdin else ["1 s", "1 min 01 s", "2 min 01 s"]
    waits = "bitfusion_kernel: a cell has waited for 1 GPU for {} (position 2 of 3; held by ada)"
    assert logged == [waits.format(each) for each in times]


def test_while_a_cell_waits_the_kernel_stays_busy_with_it() -> None:
    parts, waiting = _waiting()
    parts.publisher.status("idle", {"msg_id": "before it is shown"})
    parts.loop.fire(TIMER)
    parts.publisher.status("idle", {"msg_id": "while it is shown"})
    assert parts.published(waiting) == ["busy", "display_data", "busy"]
    parts.display.end()
    parts.publisher.status("idle", {"msg_id": "after it"})
    assert parts.published(waiting)[3:] == ["clear_output"]


def test_a_cell_that_joins_a_wait_leaves_the_display_where_it_is() -> None:
    parts, waiting = _waiting()
    parts.loop.fire(TIMER)
    joins = cell()
    parts.display.show_in(joins)
    parts.loop.fire(TIMER)
    parts.display.end()
    assert parts.published(waiting) == ["display_data", "update_display_data", "clear_output"]
    assert parts.published(joins) == []


def test_a_client_that_says_nothing_gets_more_time() -> None:
    parts, waiting = _waiting(position=False)
    _make_young(parts)
    parts.loop.fire(TIMER)
    assert not parts.iopub.sent
    assert _due(parts) == parts.display._since + SHOW_SILENT_WAIT_AFTER
    parts.display._since -= 2000
    parts.loop.fire(TIMER)
    assert parts.published(waiting) == ["display_data"]


def test_a_wait_that_is_over_before_it_was_shown_is_not_shown() -> None:
    parts, waiting = _waiting()
    parts.lifecycle.launched(LAUNCHED, time.monotonic())
    parts.loop.fire(TIMER)
    assert parts.display.end() is waiting
    assert not parts.iopub.sent
    assert TIMER not in parts.loop.timers


def test_a_grant_is_shown_where_the_wait_was() -> None:
    parts, waiting = _waiting()
    parts.loop.fire(TIMER)
    parts.lifecycle.launched(LAUNCHED, time.monotonic())
    parts.loop.fire(TIMER)
    text = parts.iopub.messages()[-1].content["data"]["text/plain"]
    assert text.startswith("Got 1 GPU – starting the kernel")
    assert parts.display.cell is waiting


def test_a_new_position_is_shown_at_once_but_not_in_a_young_wait() -> None:
    parts, waiting = _waiting()
    _make_young(parts)
    parts.display.refresh()
    assert not parts.iopub.sent
    parts.display._since -= 2000
    parts.display.refresh()
    assert parts.published(waiting) == ["display_data"]


def test_the_end_clears_what_was_shown_once() -> None:
    parts, waiting = _waiting()
    parts.loop.fire(TIMER)
    assert parts.display.end() is waiting
    shown = ["display_data", "clear_output"]
    assert parts.published(waiting) == shown
    parts.display.end()
    parts.display.refresh()
    assert parts.published(waiting) == shown


def test_another_wait_has_another_display() -> None:
    parts, _ = _waiting()
    parts.loop.fire(TIMER)
    parts.display.end()
    later = cell()
    parts.display.show_in(later)
    parts.display.show_in(later)
    parts.loop.fire(TIMER)
    ids = {m.content["transient"]["display_id"] for m in parts.iopub.messages() if m.type == "display_data"}
    assert len(ids) == 2


def test_a_wait_without_a_kernel_shows_nothing() -> None:
    parts = Parts()
    parts.display.show_in(cell())
    parts.loop.fire(TIMER)
    assert not parts.iopub.sent
