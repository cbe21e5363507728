"""What the scheduler says of a pod without a node: which of it waits, which never ends, and the words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.places.scheduling import no_node

GPUS = ("nvidia.com/gpu",)
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def message(nodes: int, listed: str, victims: int | None = None) -> str:
    """As the scheduler writes it; `victims`: on so many nodes others hold what is short."""
    said = f"0/{nodes} nodes are available: {listed}."
    if victims is None:
        return said
    counts = ((nodes - victims, NOT_HELPFUL), (victims, NO_VICTIMS))
    told = ", ".join(f"{count} {why}" for count, why in counts if count)
    return f"{said} no new claims to deallocate, preemption: 0/{nodes} nodes are available: {told}."


TAINT = "1 node(s) had untolerated taint(s)"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            message(3, f"2 Insufficient nvidia.com/gpu, {TAINT}", 2),
            "2 of 3 nodes have no free GPU, 1 has a taint that this pod does not tolerate",
        ),
        (message(2, "2 Insufficient nvidia.com/gpu", 2), "2 of 2 nodes have no free GPU"),
        (
            message(5, "5 Insufficient nvidia.com/gpu", 2),
            "2 of 5 nodes have no free GPU, 3 have too few or none",
        ),
        (message(1, "1 Insufficient nvidia.com/gpu", 1), "the only node has no free GPU"),
        (message(2, "2 Insufficient nvidia.com/gpu"), "2 of 2 nodes have no free GPU"),
        (
            message(2, "1 Insufficient cpu, 2 Insufficient nvidia.com/gpu", 1),
            "2 of 2 nodes have no free GPU, 1 has too little free CPU",
        ),
        (
            message(2, f"1 Insufficient memory, 1 {AFFINITY}", 1),
            "1 of 2 nodes has too little free memory, 1 does not match where it may run",
        ),
        (message(1, "1 Too many pods", 1), "the only node already runs the maximum number of pods"),
        # DRA: both halves say nothing of whether a node has such devices
        (message(2, "2 cannot allocate all claims", 0), "2 of 2 nodes have no free GPU"),
        # not eligible for preemption: nobody says whether a node could serve it
        (
            message(2, "2 Insufficient nvidia.com/gpu")
            + " preemption: not eligible due to preemptionPolicy=Never.",
            "2 of 2 nodes have no free GPU",
        ),
        # before 1.34, and where DRA is off
        (
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod..",
            "the only node has no free GPU",
        ),
        # HAMi's extender; other schedulers; before the first node
        (message(1, "1 1/1 CardInsufficientMemory", 1), "the only node has no free GPU"),
        (message(2, "2 something new", 2), "2 of 2 nodes say: something new"),
        (
            "Resources were not found for pod alice/x due to: no nodes with enough GPUs",
            "the scheduler cannot find a node: no nodes with enough GPUs",
        ),
        (
            "no nodes available to schedule pods",
            "the scheduler cannot find a node: no nodes available to schedule pods",
        ),
    ],
)
def test_what_is_only_in_use_waits(said: str, words: str) -> None:
    found = no_node(said, GPUS)
    assert (found.words, found.waits, found.never) == (words, True, False)


@pytest.mark.parametrize(
    ("said", "words", "cure"),
    [
        (
            message(2, "2 Insufficient nvidia.com/gpu", 0),
            "2 of 2 nodes have too few GPUs or none",
            "fewer GPUs",
        ),
        (
            message(3, f"2 Insufficient nvidia.com/gpu, {TAINT}", 0),
            "2 of 3 nodes have too few GPUs or none, 1 has a taint that this pod does not tolerate",
            "toleration",
        ),
        (
            message(
                2,
                "1 node(s) had untolerated taint {nvidia.com/gpu: present}, 1 Insufficient nvidia.com/gpu",
                0,
            ),
            "1 has the taint nvidia.com/gpu, which this pod does not tolerate",
            "toleration",
        ),
        (message(2, f"2 {AFFINITY}", 0), "2 of 2 nodes do not match where it may run", "to certain nodes"),
        (message(2, f"2 {AFFINITY}"), "2 of 2 nodes do not match where it may run", "to certain nodes"),
        (
            message(
                2, "1 Insufficient nvidia.com/gpu, 1 node(s) didn't match PersistentVolume's node affinity", 0
            ),
            "1 of 2 nodes has too few GPUs or none, 1 cannot have its volume",
            "ReadWriteMany",
        ),
        (
            message(1, "1 Insufficient memory", 0),
            "the only node has too little free memory",
            "no node is large enough",
        ),
        (
            message(2, "1 node(s) were unschedulable, 1 Insufficient nvidia.com/gpu", 0),
            "1 is closed",
            "closed",
        ),
        (
            message(2, "2 node(s) didn't match pod anti-affinity rules", 2),
            "that it must not share a node with",
            "certain",
        ),
    ],
)
def test_what_only_another_node_could_serve_does_not_wait(said: str, words: str, cure: str) -> None:
    found = no_node(said, GPUS)
    assert words in found.words
    assert cure in found.next_step
    assert (found.waits, found.never) == (False, False)


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ('persistentvolumeclaim "home" not found. not found', 'persistentvolumeclaim "home" not found'),
        ('persistentvolumeclaim "home" not found', 'persistentvolumeclaim "home" not found'),
        ('persistentvolumeclaim "home" is being deleted', 'persistentvolumeclaim "home" is being deleted'),
        ("pod has unbound immediate PersistentVolumeClaims", "has no storage"),
        (
            "1 Insufficient nvidia.com/gpu, 1 node(s) unavailable due to PersistentVolumeClaim with "
            "ReadWriteOncePod access mode already in-use by another pod",
            "the notebook is using it",
        ),
        (
            "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            "has lost its storage",
        ),
    ],
)
def test_a_volume_that_no_node_can_have_is_an_error_at_once(listed: str, words: str) -> None:
    found = no_node(message(2, listed, 2 if "Insufficient" in listed else 0), GPUS)
    assert words in found.words
    assert (found.waits, found.never) == (False, True)
    assert found.next_step


def test_only_the_rules_own_resources_are_gpus() -> None:
    said = message(2, "2 Insufficient nvidia.com/mig-1g.5gb", 2)
    assert no_node(said, GPUS).words == "2 of 2 nodes have too little free nvidia.com/mig-1g.5gb"
    assert no_node(said, ("nvidia.com/mig-1g.5gb",)).words == "2 of 2 nodes have no free GPU"


def test_a_message_that_is_cut_waits_as_nobody_knows_its_end() -> None:
    listed = ", ".join(f"1 node(s) had untolerated taint {{team-{number}: x}}" for number in range(1000))
    found = no_node(message(1000, listed, 0), GPUS)
    assert found.waits
    assert len(found.words) <= 200


pieces = st.sampled_from(
    [
        "0/3",
        " nodes are available:",
        " preemption: ",
        "2 ",
        ", ",
        ".",
        "Insufficient ",
        "nvidia.com/gpu",
        NOT_HELPFUL,
        "{",
        "9" * 30,
        "²",
    ]
)


@given(st.lists(pieces | st.text(max_size=5), max_size=20).map("".join))
def test_any_text_is_told_in_one_short_line(said: str) -> None:
    found = no_node(said, GPUS)
    assert found.words.isprintable()
    assert 0 < len(found.words) <= 200
