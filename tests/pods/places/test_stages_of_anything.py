"""Whatever a pod and its events are, how far it has come is told in one short line, and soon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.places.stages import ENDED, FAILED, RETRY, RUNS, STARTS, WAITS, stage
from tests.pods.places.anything import anything, broken
from tests.pods.places.recorded import (
    NO_GPU_NODE,
    NOW,
    clock,
    condition,
    container,
    event,
    gated,
    on_n2,
    terminated,
    unscheduled,
    waiting,
)

SHAPES = st.sampled_from(
    [
        unscheduled(NO_GPU_NODE),
        gated("kueue.x-k8s.io/admission"),
        on_n2(container(waiting("ContainerCreating")), init=[container(terminated(1), "istio-init")]),
        on_n2(container(waiting("ErrImagePull", "not found"))),
        on_n2(phase="Failed", reason="OutOfcpu", message="Pod was rejected: x"),
        on_n2(container(terminated(137, "OOMKilled")), phase="Failed", deleted=clock(1)),
    ]
)
EVENTS = [event("Pulling", at=19), event("FailedMount", "x", 20), event("TriggeredScaleUp", "x")]


@given(anything, anything)
def test_anything_at_all_is_told_in_one_short_line(made: object, events: object) -> None:
    check(made, events)


@given(SHAPES, anything, st.lists(st.integers(0, 20), max_size=8), st.lists(st.integers(0, 20), max_size=5))
def test_a_pod_with_something_wrong_anywhere_is_told(
    made: object, by: object, path: list[int], other: list[int]
) -> None:
    check(broken(made, by, path), broken(EVENTS, by, other))


def check(made: object, events: object) -> None:
    found = stage(made, events, NOW)
    assert found.kind in (WAITS, STARTS, RUNS, RETRY, FAILED, ENDED)
    assert 0 < len(found.words) <= 200
    assert found.words.isprintable()
    assert found.next_step.isprintable()
    assert len(found.next_step) <= 400


def test_a_thousand_events_of_a_megabyte_are_read_in_no_time() -> None:
    long = "x, 2 " * 200_000
    events = [event("FailedMount", long, 20 + number % 30) for number in range(1000)]
    made = on_n2(
        container(waiting("CreateContainerError", long)), conditions=[condition("Ready", "False", "", long)]
    )
    assert len(stage(made, events, NOW).words) <= 200
    assert len(stage(unscheduled(long), events, NOW).words) <= 200
