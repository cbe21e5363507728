"""The order of a fair queue: one user's many keep nobody's first waiting, and nobody starves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.ledger.queue.fair_order import LATER_S, Present, due_time
from bitfusion_pool.ledger.waiting import DEFAULT_TIMEOUT_S

ANN, BOB, CAT = 1, 2, 3
T = LATER_S


@dataclass
class Request:
    """One that has come: `had` is how many its user had then."""

    number: int
    owner: int
    came: float
    due: float
    had: int


class Model:
    """All that is there, leases included."""

    def __init__(self) -> None:
        self.present: list[Request] = []
        self.count = 0

    def come(self, owner: int, now: float = 0.0) -> Request:
        found = [Present(one.owner, one.came, one.due) for one in self.present]
        had = sum(one.owner == owner for one in self.present)
        self.count += 1
        request = Request(self.count, owner, now, due_time(found, owner, now), had)
        self.present.append(request)
        return request


def order(requests: list[Request]) -> list[int]:
    return [one.number for one in sorted(requests, key=lambda one: (one.due, one.number))]


TABLE: dict[str, tuple[list[tuple[int, float]], list[int]]] = {
    "first come, first served": ([(ANN, 0), (BOB, 0), (CAT, 0)], [1, 2, 3]),
    "a second behind others' first": ([(ANN, 0), (ANN, 1), (BOB, 2)], [1, 3, 2]),
    "each in turn": ([(ANN, 0), (ANN, 0), (ANN, 0), (BOB, 0), (BOB, 0)], [1, 4, 2, 5, 3]),
    "until half an hour is over": ([(ANN, 0), (ANN, 0), (BOB, T)], [1, 2, 3]),
    "just before": ([(ANN, 0), (ANN, 0), (BOB, T - 1)], [1, 3, 2]),
    "a third for twice as long": ([(ANN, 0), (ANN, 0), (ANN, 0), (BOB, T + 1)], [1, 2, 4, 3]),
    "time that was set back": ([(ANN, 100), (BOB, 50), (CAT, 70)], [1, 2, 3]),
    "and a second then": ([(ANN, 5 * T), (ANN, 1), (BOB, 2)], [1, 3, 2]),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_order(name: str) -> None:
    rows, wanted = TABLE[name]
    model = Model()
    assert order([model.come(*row) for row in rows]) == wanted


def test_the_end_of_a_lease_does_not_put_its_users_next_before_others() -> None:
    model = Model()
    lease, second, first = model.come(ANN), model.come(ANN), model.come(BOB)
    model.present.remove(lease)
    assert order([second, first]) == [first.number, second.number]
    # who has nothing any more counts as somebody new
    model.present.remove(second)
    assert model.come(ANN, 5).due == 5


def test_ones_own_keep_their_order_also_when_what_counted_has_ended() -> None:
    model = Model()
    leases = [model.come(ANN) for _ in range(3)]
    fourth = model.come(ANN)
    for lease in leases:
        model.present.remove(lease)
    fifth = model.come(ANN, 1.0)
    assert order([fourth, fifth]) == [fourth.number, fifth.number]


def test_a_second_request_waits_behind_others_first_for_as_long_as_requests_wait() -> None:
    assert LATER_S == DEFAULT_TIMEOUT_S


EVENTS = st.lists(
    st.tuples(st.sampled_from([ANN, BOB, CAT]), st.floats(0, T), st.none() | st.integers(0, 50)), max_size=40
)


@given(EVENTS)
def test_who_overtakes_whom(events: list[tuple[int, float, int | None]]) -> None:
    """Each event: somebody comes, so much later than the one before; and perhaps something has ended."""
    model, now = Model(), 0.0
    seen: list[Request] = []
    met: set[tuple[int, int]] = set()
    for owner, later, ends in events:
        now += later
        if ends is not None and model.present:
            model.present.pop(ends % len(model.present))
        seen.append(model.come(owner, now))
        met |= {(one.number, model.count) for one in model.present}
    place = {number: index for index, number in enumerate(order(seen))}
    for one in seen:
        for other in seen[one.number :]:  # those that came later
            if (one.number, other.number) not in met:
                continue
            if place[other.number] < place[one.number]:
                # nobody starves: only until it is due, never by the same user, only by who had less
                assert other.came < one.due
                assert other.owner != one.owner
                assert other.had < one.had or one.due > one.came + one.had * T
            elif not other.had:
                # one user's many keep nobody's first waiting
                assert other.came >= one.came + one.had * T
