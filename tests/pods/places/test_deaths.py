"""Why a pod that ran is gone: one sentence, what to do, and the program's status where somebody saw it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.places.deaths import (
    DEADLINE,
    DELETED,
    EVICTED,
    NODE_LOST,
    OUT_OF_MEMORY,
    PREEMPTED,
    UNKNOWN,
    death_of,
    held_by_lost_node,
    remembering,
)
from bitfusion_pods.places.deaths import ENDED as PROGRAM_ENDED
from bitfusion_pods.places.statuses import exit_code_of, node_is_silent
from tests.pods.places.anything import anything
from tests.pods.places.recorded import NOW, RUNNING, Raw, clock, condition, container, pod, terminated

PREEMPTED_BY_KUEUE = (
    "Preempted to accommodate a workload (UID: 1f0c, JobUID: 77aa) due to prioritization in the ClusterQueue"
    "; preemptor path: /gpus; preemptee path: /gpus"
)
KILLED = terminated(137)


def ran(state: Raw = KILLED, *conditions: Raw, **more: Any) -> Raw:
    """A pod of n2 that is over."""
    return pod(container(state), node="n2", conditions=list(conditions), **({"phase": "Failed"} | more))


def disrupted(reason: str, message: str) -> Raw:
    return condition("DisruptionTarget", "True", reason, message)


def queued(reason: str, message: str) -> Raw:
    """As Kueue leaves it: condition, then deletion."""
    made = ran(RUNNING, condition("TerminationTarget", "True", reason, message), phase="Running")
    made["metadata"]["deletionTimestamp"] = clock(60)
    return made


@pytest.mark.parametrize(
    ("last", "reason", "words"),
    [
        (
            ran(
                terminated(137, "OOMKilled"),
                spec={"containers": [{"name": "program", "resources": {"limits": {"memory": "8Gi"}}}]},
            ),
            OUT_OF_MEMORY,
            "the pod ran out of memory (its limit is 8Gi)",
        ),
        (
            ran(
                KILLED,
                disrupted("TerminationByKubelet", "The node was low on resource: memory. "),
                reason="Evicted",
                message="The node was low on resource: memory. Threshold quantity: 100Mi, available: 32Mi. "
                "Container program was using 12Gi, request is 8Gi, has larger consumption of memory. ",
            ),
            EVICTED,
            "the pod was evicted from n2: the node ran short of memory",
        ),
        (
            ran(KILLED, reason="Evicted", message="The node was low on resource: ephemeral-storage. "),
            EVICTED,
            "the pod was evicted from n2: the node ran short of disk",
        ),
        (
            ran(
                KILLED, reason="Evicted", message='Usage of EmptyDir volume "dshm" exceeds the limit "1Gi". '
            ),
            EVICTED,
            'the pod was evicted from n2: its volume "dshm" is full',
        ),
        (
            ran(
                KILLED,
                reason="Evicted",
                message="Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. ",
            ),
            EVICTED,
            "the pod was evicted from n2: it wrote more to the node's disk than allowed",
        ),
        (
            ran(
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
                spec={"activeDeadlineSeconds": 3600},
            ),
            DEADLINE,
            "the pod was ended because it reached the longest run time of a GPU pod (3600 s)",
        ),
        (
            ran(reason="Preempting", message="Preempted in order to admit critical pod"),
            PREEMPTED,
            "n2 needed the space for a system pod",
        ),
        (
            ran(reason="Terminated", message="Pod was terminated in response to imminent node shutdown."),
            NODE_LOST,
            "n2 was shut down",
        ),
        (
            ran(reason="NodeLost", message="Node n2 which was running pod x is unresponsive"),
            NODE_LOST,
            "n2 no longer answers",
        ),
        (
            pod(
                node="n2",
                phase="Failed",
                reason="UnexpectedAdmissionError",
                message="Pod was rejected: Allocate failed",
            ),
            EVICTED,
            "n2 did not accept the pod again after its kubelet restarted: UnexpectedAdmissionError",
        ),
        (
            ran(
                KILLED,
                disrupted(
                    "PreemptionByScheduler",
                    "default-scheduler: preempting to accommodate a higher priority pod",
                ),
            ),
            PREEMPTED,
            "a pod of higher priority took the space on n2",
        ),
        (
            ran(KILLED, disrupted("EvictionByEvictionAPI", "Eviction API: evicting")),
            EVICTED,
            "the pod was evicted from n2, for example because the node is drained for maintenance",
        ),
        (
            ran(
                RUNNING,
                disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
                phase="Running",
            ),
            NODE_LOST,
            "n2 no longer answers or got a taint that excludes this pod",
        ),
        (
            ran(RUNNING, disrupted("DeletionByPodGC", "PodGC: node no longer exists"), phase="Failed"),
            NODE_LOST,
            "n2 no longer answers and was removed from the cluster",
        ),
        (
            queued("WorkloadEvictedDueToPreempted", PREEMPTED_BY_KUEUE),
            PREEMPTED,
            "Kueue gave the GPU to others, who have priority (prioritization in the ClusterQueue)",
        ),
        (
            queued("WorkloadEvictedDueToPodsReadyTimeout", "Exceeded the PodsReady timeout alice/x"),
            PREEMPTED,
            "Kueue ended the pod because it took too long to start (waitForPodsReady)",
        ),
        (
            queued("WorkloadEvictedDueToLocalQueueStopped", "The LocalQueue is stopped"),
            PREEMPTED,
            "the queue was stopped: The LocalQueue is stopped",
        ),
        (
            queued("NotAdmitted", "Not admitted by cluster queue"),
            PREEMPTED,
            "Kueue ended the pod: Not admitted by cluster queue",
        ),
        (
            queued("WorkloadDeleted", "Workload is deleted"),
            DELETED,
            "somebody deleted the pod's Workload in Kueue",
        ),
        (
            ran(RUNNING, phase="Running", deleted=clock(58)),
            DELETED,
            "somebody deleted the pod, or the notebook's pod that owns it",
        ),
        (ran(RUNNING, phase="Running", deleted=clock(20)), NODE_LOST, "n2 no longer answers"),
        (ran(terminated(0, "Completed"), phase="Succeeded"), PROGRAM_ENDED, "the program has ended"),
        (ran(terminated(143)), PROGRAM_ENDED, "the program was ended by signal 15"),
        (
            ran(KILLED),
            PROGRAM_ENDED,
            "the program was killed (SIGKILL), by somebody or because memory ran out",
        ),
        (ran(terminated(137, "ContainerStatusUnknown", "gone")), UNKNOWN, "the program never ran: gone"),
        # of a program that ends so by itself nothing but its status is known
        (ran(terminated(127)), PROGRAM_ENDED, "the program has ended with status 127"),
        (
            ran(terminated(127, message="a: not found")),
            PROGRAM_ENDED,
            "the program has ended with status 127",
        ),
    ],
)
def test_each_death_has_its_sentence(last: Raw, reason: str, words: str) -> None:
    found = death_of(last, NOW)
    assert found is not None
    assert (found.reason, found.words) == (reason, words)
    assert found.next_step or "program has ended" in words


def test_an_image_without_a_python_says_so_in_the_words_of_the_start_script() -> None:
    said = (
        "Error: this image has no Python for the bitfusion client. What to do: take an image\nwith Python 3\n"
    )
    found = death_of(ran(terminated(127, message=said)), NOW)
    assert found is not None
    assert (found.reason, found.words) == (UNKNOWN, "this image has no Python for the bitfusion client")
    assert found.next_step == "take an image with Python 3."


def test_a_pod_that_is_well_has_no_death_until_it_is_gone() -> None:
    well = ran(RUNNING, phase="Running")
    assert death_of(well, NOW) is None
    gone = death_of(well, NOW, gone=True)
    assert gone is not None
    assert gone.reason == DELETED


def test_a_pod_that_was_preempted_is_gone_for_that_reason() -> None:
    found = death_of(queued("WorkloadEvictedDueToPreempted", PREEMPTED_BY_KUEUE), NOW + 100, gone=True)
    assert found is not None
    assert found.reason == PREEMPTED


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (terminated(7), 7),
        (terminated(0, "Completed"), 0),
        (terminated(137, "OOMKilled"), 137),
        (terminated(137, "ContainerStatusUnknown"), None),
        (terminated(128, "StartError"), None),
        (terminated(10**400), None),
        (RUNNING, None),
    ],
)
def test_the_programs_status_is_told_where_somebody_saw_it(state: Raw, code: int | None) -> None:
    assert exit_code_of(ran(state)) == code


def test_a_gpu_is_held_by_a_lost_node_when_nobody_ends_its_pod() -> None:
    lost = ran(RUNNING, phase="Running", deleted=clock(20))
    assert not held_by_lost_node(lost, NOW - 11)  # 29 s after its grace
    assert held_by_lost_node(lost, NOW)
    assert not held_by_lost_node(ran(KILLED, deleted=clock(20)), NOW)
    assert not held_by_lost_node(ran(RUNNING, phase="Running"), NOW)


def test_a_silent_node_is_one_that_the_cluster_has_taken_ready_from() -> None:
    ready, containers = condition("Ready", "False"), condition("ContainersReady", "True")
    assert node_is_silent(ran(RUNNING, ready, containers))
    assert not node_is_silent(ran(RUNNING, ready, condition("ContainersReady", "False")))
    assert not node_is_silent(ran(RUNNING, condition("Ready", "True"), containers))


@given(anything, st.booleans())
def test_anything_at_all_has_a_short_sentence(last: object, gone: bool) -> None:
    found = death_of(last, NOW, gone)
    assert found is None or 0 < len(found.words) <= 200
    held_by_lost_node(last, NOW)
    node_is_silent(last)


def test_who_ends_a_pod_is_known_after_the_scheduler_has_written_its_own_conditions_over_it() -> None:
    """As Kubernetes 1.36 and Kueue 0.17 were seen to do when somebody lifts the gate of a pod that waits."""
    told = queued("NotAdmitted", "Not admitted by cluster queue")
    told["metadata"]["uid"] = "4f0a"
    overwritten = {
        **told,
        "status": {"phase": "Pending", "conditions": [condition("PodScheduled", "True", "", "")]},
    }
    assert death_of(overwritten, NOW) != death_of(told, NOW)
    remembered = remembering(overwritten, told)
    assert [each["type"] for each in remembered["status"]["conditions"]] == [
        "TerminationTarget",
        "PodScheduled",
    ]
    found = death_of(remembering(overwritten, remembered), NOW)
    assert found is not None
    assert found.words == "Kueue ended the pod: Not admitted by cluster queue"


@pytest.mark.parametrize("uid", ["4f0a", "another"])
def test_nothing_is_remembered_of_another_pod_or_of_what_was_withdrawn(uid: str) -> None:
    told = queued("NotAdmitted", "Not admitted by cluster queue")
    told["metadata"]["uid"] = uid
    status = "True" if uid == "another" else "False"
    told["status"]["conditions"][0]["status"] = status
    now = pod(container(RUNNING), metadata={"uid": "4f0a"})
    assert remembering(now, told) == now
    assert remembering({}, told) == {}


@given(anything, anything)
def test_remembering_takes_pods_of_any_shape(earlier: object, status: object) -> None:
    now = {"metadata": {"uid": "1"}, "status": status}
    death_of(remembering(now, {"metadata": {"uid": "1"}, "status": earlier}), NOW)
