"""How long a program may go on whose pool is out of reach: never longer than its service keeps the lease."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.client.keeper.reach import Reach

CLOSED_S, SILENT_S = 15.0, 120.0


@pytest.mark.parametrize(
    ("events", "told", "killed"),
    [
        ([], 100 + 90, 100 + 102),  # silence
        ([("answered", 150)], 150 + 90, 150 + 102),
        ([("hung_up",)], 100 + 12, 100 + 13.5),
        ([("hung_up",), ("answered", 108)], 108 + 90, 108 + 102),
        ([("answered", 120), ("answered", 110)], 120 + 90, 120 + 102),
        ([("answered", 120), ("hung_up",)], 120 + 12, 120 + 13.5),
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

    def __init__(self, now: float, closed_s: float, silent_s: float) -> None:
        self.closed_s, self.silent_s = closed_s, silent_s
        self.heard_at = now
        self.closed_at: float | None = None

    @property
    def frees_at(self) -> float:
        ends = [self.heard_at + self.silent_s]
        if self.closed_at is not None:
            ends.append(self.closed_at + self.closed_s)
        return min(ends)


Events = list[tuple[str, float, float]]
EVENTS = (
    *("word", "unheard", "unanswered", "reset", "end_for_service_alone"),
    *("hang_up", "resume", "resume_lost", "restart"),
)


@pytest.mark.parametrize(("closed_s", "silent_s"), [(CLOSED_S, SILENT_S), (102.0, 120.0), (15.0, 15.0)])
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.floats(0, 8),  # seconds since the event before
            st.floats(0, 4),  # seconds that a message takes, each way
        ),
        max_size=12,
    )
)
def test_the_program_is_killed_before_the_service_frees_the_lease(
    closed_s: float, silent_s: float, events: Events
) -> None:
    now = 1000.0
    reach, service, is_open = Reach(closed_s, silent_s, now), Service(now, closed_s, silent_s), True
    ended_there = False  # and the client does not know
    for event, pause, way in events:
        now += pause
        if now >= min(reach.ends_at, service.frees_at):
            break
        if ended_there and event in ("word", "unanswered"):
            continue  # swallowed
        if event == "end_for_service_alone" and is_open:
            ended_there = True
        elif event == "word" and is_open:
            service.heard_at = now + way
            reach.answered(now)
            now += 2 * way
        elif event == "unheard" and is_open:
            pass  # swallowed on its way to the service
        elif event == "unanswered" and is_open:
            service.heard_at = now + way
        elif event == "reset" and is_open:
            is_open = ended_there = False
        elif event == "hang_up":  # the keeper is killed
            if is_open and not ended_there:
                service.closed_at = now + way
            is_open = ended_there = False
            reach.hung_up()
        elif event == "resume" and not is_open:
            service.heard_at, service.closed_at = now + way, None
            is_open = True
            reach.answered(now)
            now += 2 * way
        elif event == "resume_lost" and not is_open:
            # the service has taken it, and then the new connection is reset
            service.heard_at, service.closed_at = now + way, None
            now += 2 * way
        elif event == "restart":
            # with the word that it ends; the next one gives all of `silent_s`
            service.heard_at, service.closed_at = now + way, None
            is_open = ended_there = False
        assert reach.killed_at <= service.frees_at
