"""When an idle kernel gives its GPU back, what keeps it, and what is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.gpu.idle_release import (
    LOOK_AT_THE_END,
    LOOK_EVERY,
    SHORTEST_WARNING,
    IdleRelease,
    Step,
    Work,
)
from bitfusion_kernel.processes.work_watch import SHORTEST_INTERVAL
from bitfusion_kernel.settings.values import SHORTEST_IDLE_RELEASE

CLOCK = 1_800_000_000.0


@pytest.mark.parametrize(
    ("after", "warned_at"),
    [(60, 30), (120, 90), (150, 120), (200, 160), (600, 480), (1200, 960), (1500, 1200), (7200, 6900)],
)
def test_the_warning_comes_after_four_fifths_30_s_to_5_min_before_the_release(
    after: float, warned_at: float
) -> None:
    idle = IdleRelease(after, 1000.0)
    warn = idle.next_at
    assert warn is not None
    assert warn == pytest.approx(1000 + warned_at)
    assert idle.step(warn - 0.01) is Step.NOTHING
    assert [idle.step(warn), idle.step(warn)] == [Step.WARN, Step.NOTHING]
    assert idle.next_at == 1000 + after
    assert idle.step(1000 + after - 0.01) is Step.NOTHING
    assert [idle.step(1000 + after), idle.step(1e9)] == [Step.RELEASE, Step.NOTHING]
    assert idle.next_at is None


def _warned() -> IdleRelease:
    """20 minutes from 0 on, warned at 960."""
    idle = IdleRelease(1200.0, 0.0)
    assert idle.step(960.0) is Step.WARN
    return idle


@pytest.mark.parametrize("what", Work)
def test_all_that_counts_as_work_cancels_a_warning_and_the_time_begins_anew(what: Work) -> None:
    idle = _warned()
    assert idle.touched(what, 1199.0)
    assert not idle.touched(what, 1199.0)  # nothing to take back any more
    assert (idle.last, idle.idle_since) == (what, 1199.0)
    assert idle.next_at == 1199 + 960
    assert [idle.step(1200.0), idle.step(1199.0 + 960)] == [Step.NOTHING, Step.WARN]


@pytest.mark.parametrize("what", [Work.CELL, Work.SUBSHELL])
def test_what_is_in_work_keeps_the_gpu_as_long_as_it_lasts(what: Work) -> None:
    idle = _warned()
    assert (idle.in_work(what, 1100.0), idle.next_at) == (True, None)
    assert not idle.in_work(what, 1150.0)
    assert idle.step(1e6) is Step.NOTHING
    assert not idle.touched(Work.OUTPUT, 1e6)
    assert not idle.in_work(None, 1e6)
    assert (idle.last, idle.idle_since, idle.next_at) == (what, 1e6, 1e6 + 960)
    assert not idle.in_work(None, 2e6)  # known already
    assert idle.idle_since == 1e6


def test_a_loop_that_stood_still_warns_before_it_releases() -> None:
    idle = IdleRelease(1200.0, 0.0)
    assert idle.step(5000.0) is Step.WARN
    assert idle.next_at == 5000 + SHORTEST_WARNING
    assert [idle.step(5029.9), idle.step(5030.0)] == [Step.NOTHING, Step.RELEASE]


def test_what_comes_after_the_release_changes_nothing() -> None:
    idle = _warned()
    idle.step(1200.0)
    assert not idle.touched(Work.PROCESSES, 1201.0)
    assert not idle.in_work(Work.CELL, 1201.0)
    assert (idle.last, idle.idle_since, idle.look_every) == (Work.START, 0.0, 0)


def test_off_it_asks_for_nothing_and_knows_since_when_the_kernel_is_idle() -> None:
    idle = IdleRelease(0.0, 0.0)
    assert not idle.touched(Work.COMM, 7.0)
    assert (idle.next_at, idle.look_every, idle.step(1e9)) == (None, 0, Step.NOTHING)
    assert idle.status(67.0, CLOCK).startswith("idle for 1 min 00 s, since ")
    assert idle.status(67.0, CLOCK).endswith("; last work: a message of a widget (comm)")


def test_processes_are_looked_at_more_often_before_the_end() -> None:
    idle = IdleRelease(1200.0, 0.0)
    assert idle.look_every == LOOK_EVERY
    idle.step(960.0)
    assert idle.look_every == LOOK_AT_THE_END
    idle.touched(Work.PROCESSES, 970.0)
    assert idle.look_every == LOOK_EVERY
    assert IdleRelease(SHORTEST_IDLE_RELEASE, 0.0).look_every >= LOOK_AT_THE_END >= SHORTEST_INTERVAL


# -- whatever happens ------------------------------------------------------------------------------

happenings = st.lists(
    st.tuples(
        st.floats(0, 400),
        st.one_of(
            st.tuples(st.just("touched"), st.sampled_from(Work)),
            st.tuples(st.just("in work"), st.sampled_from([None, Work.CELL, Work.SUBSHELL])),
            st.tuples(st.just("step"), st.none()),
            st.tuples(st.just("steps"), st.none()),
        ),
    ),
    max_size=40,
)


@given(st.floats(SHORTEST_IDLE_RELEASE, 7200), happenings)
def test_never_released_too_early_nor_while_busy_nor_without_a_warning(
    after: float, happened: list[tuple[float, tuple[str, Work | None]]]
) -> None:
    """Its loop calls `step` in time ("steps"), some time, or not at all."""
    idle = IdleRelease(after, 0.0)
    now = last = 0.0
    busy = False
    warned_at: float | None = None

    def step(at: float) -> Step:
        nonlocal warned_at
        done = idle.step(at)
        if done is Step.WARN:
            assert warned_at is None
            assert not busy
            warned_at = at
        elif done is Step.RELEASE:
            assert not busy
            assert warned_at is not None
            assert at - warned_at >= SHORTEST_WARNING * 0.999
            assert at - last >= after * 0.999999
        return done

    for seconds, (how, what) in happened:
        if how == "steps":
            while (due := idle.next_at) is not None and due <= now + seconds:
                if step(max(now, due)) is Step.RELEASE:
                    return
        now += seconds
        if how == "step" and step(now) is Step.RELEASE:
            return
        if how in ("touched", "in work"):
            was_warned, was_busy = warned_at is not None, busy
            if how == "touched":
                assert what is not None
                void = idle.touched(what, now)
            else:
                void = idle.in_work(what, now)
                busy = what is not None
            if how == "touched" or busy or was_busy:
                last = now
                assert void is was_warned
                warned_at = None
    if busy:
        idle.in_work(None, now)
        last, busy = now, False
    while (due := idle.next_at) is not None:  # nothing works any more
        step(max(now, due))
    assert warned_at is not None


# -- in words ----------------------------------------------------------------------------------------


def test_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitfusion_kernel.gpu.idle_release.clock_time", _clock)
    idle = IdleRelease(1200.0, 0.0)
    idle.in_work(Work.CELL, 10.0)
    assert idle.status(20.0, CLOCK) == "works: a cell"
    idle.in_work(None, 100.0)
    assert idle.status(160.0, CLOCK) == (
        "idle for 1 min 00 s, since T-60; last work: a cell; "
        "gives its GPU back at T+1140 unless it works (idle_release 20m)"
    )
    idle.step(1060.0)
    assert idle.warning(1060.0, CLOCK)["text/plain"] == (
        "This kernel gives its GPU back at T+240, in 4 min 00 s (as of T+0)\n"
        "Idle for 16 min 00 s (last activity: a cell); idle_release is 20m.\n"
        "Its variables are lost with it. To keep both, run any cell."
    )
    assert "in 1 min 00 s" in idle.warning(1240.0, CLOCK)["text/html"]
    idle.step(1300.0)
    assert idle.released(1301.0, CLOCK)["text/plain"] == (
        "This kernel gave its GPU back at T+0\n"
        "It was idle for 20 min 01 s (last activity: a cell); idle_release is 20m.\n"
        "Its variables are lost. The next cell takes a GPU again and starts from an empty namespace."
    )
    assert idle.status(1301.0, CLOCK).endswith("last work: a cell; its GPU is given back")


def test_a_warning_that_is_void_says_by_what() -> None:
    idle = _warned()
    idle.touched(Work.PROCESSES, 1000.0)
    text = idle.kept(CLOCK)["text/plain"]
    assert text.startswith("This kernel kept its GPU: at ")
    assert text.endswith(" work resumed (a thread or child process that computes)")


def _clock(at: float, now: float, *, seconds: bool = False) -> str:
    return f"T{at - CLOCK:+.0f}"
