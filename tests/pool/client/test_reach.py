"""How long a program may go on whose pool is out of reach: never longer than its service keeps the lease."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.client.reach import Reach

CLOSED_S, SILENT_S = 15.0, 120.0


@pytest.mark.parametrize(
    ("events", "told", "killed"),
    [
        ([], 100 + 90, 100 + 102),  # silence
        ([("answered", 150)], 150 + 90, 150 + 102),
        ([("lost_connection",)], 100 + 12, 100 + 13.5),
        ([("lost_connection",), ("answered", 108)], 108 + 90, 108 + 102),
        ([("answered", 120), ("answered", 110)], 120 + 90, 120 + 102),
        ([("perhaps_resumed", 105)], 105 + 12, 105 + 13.5),  # after the service's word that it ends
        ([("lost_connection",), ("perhaps_resumed", 105)], 100 + 12, 100 + 13.5),
        ([("perhaps_resumed", 105), ("perhaps_resumed", 107)], 105 + 12, 105 + 13.5),
        ([("perhaps_resumed", 105), ("answered", 108)], 108 + 90, 108 + 102),
    ],
)
def test_when_the_program_is_told_and_killed(
    events: list[tuple[str, float]], told: float, killed: float
) -> None:
    reach = Reach(CLOSED_S, SILENT_S, 100.0)
    for name, *values in events:
        getattr(reach, name)(*values)
    assert reach.ends_at == pytest.approx(told)
    assert reach.killed_at == pytest.approx(killed)


class Service:
    """What a service knows of one lease, and when it frees it."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.closed_at: float | None = None

    @property
    def frees_at(self) -> float:
        ends = [self.heard_at + SILENT_S]
        if self.closed_at is not None:
            ends.append(self.closed_at + CLOSED_S)
        return min(ends)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["word", "unheard", "unanswered", "reset", "resume", "resume_lost", "restart"]),
        st.floats(0, 8),  # seconds since the event before
        st.floats(0, 4),  # seconds that a message takes, each way
    ),
    max_size=12,
)


@given(EVENTS)
def test_the_program_is_killed_before_the_service_frees_the_lease(
    events: list[tuple[str, float, float]],
) -> None:
    now = 1000.0
    reach, service, is_open = Reach(CLOSED_S, SILENT_S, now), Service(now), True
    for event, pause, way in events:
        now += pause
        if now >= min(reach.ends_at, service.frees_at):
            break
        if event == "word" and is_open:
            service.heard_at = now + way
            reach.answered(now)
            now += 2 * way
        elif event == "unheard" and is_open:
            pass  # swallowed on its way to the service
        elif event == "unanswered" and is_open:
            service.heard_at = now + way
        elif event == "reset" and is_open:
            service.closed_at, is_open = now, False
            reach.lost_connection()
        elif event == "resume" and not is_open:
            service.heard_at, service.closed_at = now + way, None
            is_open = True
            reach.answered(now)
            now += 2 * way
        elif event == "resume_lost" and not is_open:
            # the service has taken it, and then the new connection is reset
            service.heard_at, service.closed_at = now + way, now + way
            reach.perhaps_resumed(now)
            now += 2 * way
        elif event == "restart":
            # with the word that it ends; the next one gives all of `silent_s`
            service.heard_at, service.closed_at, is_open = now + way, None, False
        assert reach.killed_at <= service.frees_at
