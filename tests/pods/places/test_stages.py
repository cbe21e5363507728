"""How far a pod has come: what waits, what starts, what is tried again, and what is an error, when."""

from __future__ import annotations

import pytest

from bitfusion_pods.places.stages import (
    ENDED,
    FAILED,
    RETRY,
    RUNS,
    STARTS,
    UNFIT,
    UNSEEN,
    WAITS,
    Patience,
    Stages,
    stage,
)
from tests.pods.places.recorded import (
    FULL,
    GATED,
    NO_GPU_NODE,
    NOW,
    RUNNING,
    Raw,
    clock,
    condition,
    container,
    event,
    gated,
    on_n2,
    pod,
    terminated,
    unscheduled,
    waiting,
)

CREATING = waiting("ContainerCreating")
INITIALIZING = waiting("PodInitializing")
IMAGE = "quay.io/jupyter/tensorflow-notebook:2026-11-01"


@pytest.mark.parametrize(
    ("made", "events", "kind", "words"),
    [
        # -- waits --
        (pod(), [], WAITS, "the scheduler default-scheduler has not looked at it for 1 min 00 s"),
        (unscheduled(FULL), [], WAITS, "1 of 2 nodes has no free GPU, 1 has too few or none"),
        (
            unscheduled("etcd is slow", reason="SchedulerError"),
            [],
            WAITS,
            "the scheduler reports a problem: etcd is slow",
        ),
        (
            gated("kueue.x-k8s.io/admission", {"kueue.x-k8s.io/queue-name": "team-a"}),
            [],
            WAITS,
            "Kueue: waiting in the queue team-a",
        ),
        (
            pod(conditions=[GATED]),
            [],
            WAITS,
            "released by its queue: the scheduler is looking for a node",
        ),
        (gated("example.com/budget"), [], WAITS, "held back by the scheduling gate example.com/budget"),
        (
            unscheduled(NO_GPU_NODE),
            [
                event(
                    "TriggeredScaleUp",
                    "pod triggered scale-up: [{gpu 0->1 (max: 4)}]",
                    20,
                    source="cluster-autoscaler",
                )
            ],
            WAITS,
            "a new node is being started, 40 s (2 of 2 nodes have too few GPUs or none)",
        ),
        (
            unscheduled(NO_GPU_NODE),
            [event("Nominated", "Pod should schedule on: nodeclaim/gpu-x2", 20, source="karpenter")],
            WAITS,
            "a new node is being started, 40 s (2 of 2 nodes have too few GPUs or none)",
        ),
        # -- starts --
        (on_n2(), [event("Scheduled", at=2)], STARTS, "n2 has not started it for 58 s"),
        (
            on_n2(container(INITIALIZING), conditions=[condition("PodReadyToStartContainers", "False")]),
            [],
            STARTS,
            "on n2: its volumes are being attached and mounted",
        ),
        (
            on_n2(container(INITIALIZING), init=[container(RUNNING, "istio-init") | {"ready": False}]),
            [event("Started", at=5, field="spec.initContainers{istio-init}")],
            STARTS,
            "istio-init is preparing the pod",
        ),
        (
            on_n2(container(CREATING)),
            [event("Pulling", f'Pulling image "{IMAGE}"', 19, field="spec.containers{program}")],
            STARTS,
            "pulling the image, 41 s",
        ),
        (
            on_n2(container(INITIALIZING)),
            [event("Pulling", 'Pulling image "istio"', 57, field="spec.initContainers{istio-init}")],
            STARTS,
            "pulling the image of istio-init, 3 s",
        ),
        (
            on_n2(container(CREATING)),
            # in one second: the name tells which is newer
            [
                event("Pulling", at=19),
                event("Pulled", f'Container image "{IMAGE}" already present on machine', 19),
            ],
            STARTS,
            "its container is being created",
        ),
        (
            on_n2(container(CREATING)),
            [event("FailedMount", "MountVolume.SetUp failed", 5), event("Pulling", at=55)],
            STARTS,
            "pulling the image, 5 s",
        ),
        # -- runs --
        (on_n2(container(RUNNING), phase="Running"), [], RUNS, "runs"),
        (
            on_n2(container(RUNNING), phase="Running", podIP=""),
            [],
            STARTS,
            "its container is running but has no address yet",
        ),
        (
            on_n2(
                container(RUNNING),
                phase="Running",
                conditions=[condition("Ready", "False"), condition("ContainersReady", "True")],
            ),
            [],
            RUNS,
            "runs, but n2 does not answer",
        ),
        # -- is tried again --
        (
            on_n2(
                phase="Failed",
                reason="UnexpectedAdmissionError",
                message="Pod was rejected: Allocate failed due to requested number of devices unavailable "
                "for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
            ),
            [],
            RETRY,
            "n2 refused the pod: its GPU is not free yet, although the scheduler expected it to be",
        ),
        (
            on_n2(
                phase="Failed",
                reason="OutOfcpu",
                message="Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, "
                "used: 6000, "
                "capacity: 8000",
            ),
            [],
            RETRY,
            "n2 refused the pod: too little cpu is free, although the scheduler expected enough",
        ),
        (
            on_n2(
                phase="Failed",
                reason="NodeShutdown",
                message="Pod was rejected: Pod was rejected as the node is shutting down.",
            ),
            [],
            RETRY,
            "n2 refused the pod: it is shutting down",
        ),
        # -- has ended --
        (on_n2(container(terminated(7)), phase="Failed"), [], ENDED, "the program has ended with status 7"),
        (
            on_n2(container(RUNNING), phase="Running", deleted=clock(58)),
            [],
            ENDED,
            "somebody deleted the pod, or the notebook's pod that owns it",
        ),
    ],
)
def test_each_stage_has_its_words(made: Raw, events: list[Raw], kind: str, words: str) -> None:
    found = stage(made, events, NOW)
    assert (found.kind, found.words) == (kind, words)


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        (
            "ErrImagePull",
            f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": not found',
            f"the image {IMAGE} is no longer in its registry",
        ),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "{IMAGE}": ErrImagePull: failed to pull and unpack image '
            f'"{IMAGE}": failed '
            "to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
            f"the registry does not let this pod pull the image {IMAGE}",
        ),
        (
            "ErrImagePull",
            f'failed to pull image "{IMAGE}": failed to do request: Head "https://quay.io/v2/": dial tcp: '
            "lookup quay.io: no such host",
            f"n2 cannot reach the registry of the image {IMAGE}",
        ),
        (
            "ErrImagePull",
            f'failed to pull image "{IMAGE}": no space left on device',
            f"n2 has no space for the image {IMAGE}",
        ),
        (
            "ErrImagePull",
            f'failed to pull image "{IMAGE}": no match for platform in manifest: not found',
            f"the image {IMAGE} is not built for the processor of n2",
        ),
        (
            "ErrImagePull",
            'failed to pull image "x@sha256:401403": failed to authorize: not found',  # digits are no status
            "the image x@sha256:401403 is no longer in its registry",
        ),
        ("ErrImagePull", "rpc error: code = Unknown", "n2 cannot pull the image: rpc error: code = Unknown"),
        (
            "InvalidImageName",
            'Failed to apply default image tag "A:b:c": couldn\'t parse image name: invalid reference format',
            "the image's name is not valid",
        ),
        (
            "ErrImageNeverPull",
            f'Container image "{IMAGE}" is not present with pull policy of Never',
            f"the image {IMAGE} is not on n2 and may not be pulled",
        ),
        (
            "CreateContainerConfigError",
            'secret "s3" not found',
            'the secret "s3", from which the pod takes a variable',
        ),
        (
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "x", container: program)',
            "the image would run as root",
        ),
        (
            "CreateContainerError",
            "failed to generate container spec: failed to apply OCI options: no command specified",
            "the container cannot be started: failed to generate container spec",
        ),
    ],
)
def test_a_container_that_cannot_be_made_is_an_error_at_once(reason: str, message: str, words: str) -> None:
    found = stage(on_n2(container(waiting(reason, message))), [], NOW)
    assert (found.kind, found.reason) == (FAILED, reason)
    assert words in found.words
    assert found.next_step


MULTI_ATTACH = (
    'Multi-Attach error for volume "pvc-7d1" Volume is already exclusively attached to one node and can\'t '
    "be attached to another"
)


@pytest.mark.parametrize(
    ("told", "meanwhile", "words"),
    [
        (
            event("FailedAttachVolume", MULTI_ATTACH, 55, 20, "attachdetach-controller"),
            "its volumes are being attached (the volume pvc-7d1 is in use on another node",
            "the volume pvc-7d1 is in use on another node, and only one node can mount it",
        ),
        (
            event(
                "FailedMount",
                'MountVolume.SetUp failed for volume "home" : mount failed: exit status 32',
                55,
                20,
            ),
            "its volumes are being attached (the volume home cannot be mounted",
            "the volume home cannot be mounted: mount failed: exit status 32",
        ),
        (
            event(
                "FailedMount",
                'MountVolume.SetUp failed for volume "conf" : configmap "team" not found',
                55,
                20,
            ),
            'its volumes are being attached (the configmap "team"',
            'the configmap "team", which the pod mounts, does not exist',
        ),
        (
            event(
                "FailedCreatePodSandBox",
                'Failed to create pod sandbox: plugin type="calico" failed (add)',
                55,
                20,
            ),
            "its network is being set up (n2 cannot set up its network",
            "n2 cannot set up its network: Failed to create pod sandbox",
        ),
        (
            event("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: no driver", 55, 20),
            "its devices are being prepared (n2 cannot prepare",
            "n2 cannot prepare its devices: Failed to prepare dynamic resources: no driver",
        ),
    ],
)
def test_what_the_kubelet_tries_again_has_some_seconds(told: Raw, meanwhile: str, words: str) -> None:
    made = on_n2(container(INITIALIZING))
    at_first = stage(made, [told], NOW, patience=Patience(mount=41))
    later = stage(made, [told], NOW, patience=Patience(mount=40))
    assert (at_first.kind, later.kind) == (STARTS, FAILED)
    assert at_first.words.startswith(meanwhile)
    assert words in later.words
    assert later.next_step


def test_a_runtime_that_the_node_lacks_is_an_error_at_once() -> None:
    said = (
        'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured'
    )
    found = stage(on_n2(container(INITIALIZING)), [event("FailedCreatePodSandBox", said, 59)], NOW)
    assert (found.kind, found.words) == (FAILED, 'n2 has no container runtime "nvidia"')


NO_SECRET = 'MountVolume.SetUp failed for volume "bitfusion-client" : secret "nb-0-gpu-x7k2q" not found'


def test_the_moment_before_the_pods_secret_is_there_is_nothing_to_be_told() -> None:
    made, events = on_n2(container(CREATING)), [event("FailedMount", NO_SECRET, 40, since=35)]
    found = stage(made, events, NOW)
    assert (found.kind, found.words) == (STARTS, "on n2: its volumes are being attached and mounted")


def test_a_pod_whose_secret_does_not_come_has_failed() -> None:
    made, events = on_n2(container(CREATING)), [event("FailedMount", NO_SECRET, 58, since=5)]
    found = stage(made, events, NOW)
    assert (found.kind, found.words) == (
        FAILED,
        "the pod's Secret nb-0-gpu-x7k2q does not exist: somebody deleted it",
    )
    assert found.next_step


def test_a_kubelet_whose_caches_are_new_has_some_seconds() -> None:
    said = "failed to sync configmap cache: timed out waiting for the condition"
    made = on_n2(container(waiting("CreateContainerConfigError", said)))
    assert stage(made, [], NOW, patience=Patience(mount=59)).kind == STARTS
    assert stage(made, [], NOW, patience=Patience(mount=58)).kind == FAILED


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            on_n2(container(INITIALIZING), phase="Failed", init=[container(terminated(1), "istio-init")]),
            "the init container istio-init has failed: Error",
        ),
        (
            on_n2(
                container(
                    terminated(
                        128,
                        "StartError",
                        "failed to create containerd task: nvidia-container-cli: driver error",
                    )
                ),
                phase="Failed",
            ),
            "NVIDIA's runtime could not give the GPU to the container: driver error",
        ),
        (
            on_n2(
                container(
                    terminated(
                        128,
                        "StartError",
                        "failed to create containerd task: failed to create shim task: OCI runtime create "
                        "failed: runc create failed: unable to start container process: error during "
                        'container init: exec: "/bin/sh": stat /bin/sh: no such file or directory',
                    )
                ),
                phase="Failed",
            ),
            "the image has no shell (/bin/sh), which a GPU pod needs to start",
        ),
        (
            on_n2(
                container(
                    waiting(
                        "CreateContainerError",
                        "container create failed: executable file `/bin/sh` not found: No such file or "
                        "directory",
                    )
                )
            ),
            "the image has no shell (/bin/sh), which a GPU pod needs to start",
        ),
        (
            on_n2(
                phase="Failed",
                reason="TopologyAffinityError",
                message="Pod was rejected: Resources cannot be allocated",
            ),
            "n2 refused the pod: Resources cannot be allocated",
        ),
    ],
)
def test_a_pod_that_never_ran_has_failed(made: Raw, words: str) -> None:
    found = stage(made, [], NOW)
    assert (found.kind, found.words) == (FAILED, words)
    assert found.next_step


def test_an_init_container_of_an_evicted_pod_says_nothing_of_its_own() -> None:
    low = "The node was low on resource: memory. "
    made = on_n2(
        container(INITIALIZING),
        phase="Failed",
        reason="Evicted",
        message=low,
        init=[container(terminated(137), "istio-init")],
    )
    assert stage(made, [], NOW).words == "the pod was evicted from n2: the node ran short of memory"


def test_an_init_container_of_a_preempted_pod_says_nothing_of_its_own() -> None:
    made = on_n2(
        container(INITIALIZING),
        phase="Failed",
        conditions=[condition("DisruptionTarget", "True", "PreemptionByScheduler", "preempting")],
        init=[container(terminated(137), "istio-init")],
    )
    found = stage(made, [], NOW)
    assert (found.kind, found.words) == (ENDED, "a pod of higher priority took the space on n2")


# -- no node could ever take it ----------------------------------------------------------------------------


def test_no_node_that_could_ever_take_it_is_an_error_once_an_autoscaler_has_had_time() -> None:
    made = unscheduled(NO_GPU_NODE, at=40)
    early, late = stage(made, [], NOW - 0.5), stage(made, [], NOW)
    assert (early.kind, early.reason) == (WAITS, UNFIT)
    assert early.words == "no node can take it yet: 2 of 2 nodes have too few GPUs or none"
    assert (late.kind, late.reason) == (FAILED, UNFIT)
    assert late.words == "no node can ever take it: 2 of 2 nodes have too few GPUs or none"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu", FAILED),
        ("pod didn't trigger scale-up: 1 max node group size reached", WAITS),
        ("pod didn't trigger scale-up: 1 in backoff after failed scale-up", WAITS),
    ],
)
def test_an_autoscaler_that_has_no_such_node_ends_the_waiting(said: str, kind: str) -> None:
    told = event("NotTriggerScaleUp", said, 59, source="cluster-autoscaler")
    assert stage(unscheduled(NO_GPU_NODE, at=55), [told], NOW).kind == kind


def test_a_node_that_was_asked_for_does_not_come_for_ever() -> None:
    told = event("TriggeredScaleUp", "pod triggered scale-up", 20, source="cluster-autoscaler")
    assert stage(unscheduled(NO_GPU_NODE), [told], NOW + 800).kind == WAITS
    assert stage(unscheduled(NO_GPU_NODE), [told], NOW + 900).kind == FAILED


def test_an_autoscaler_that_has_changed_its_mind_counts_as_it_is_now() -> None:
    asked = event("TriggeredScaleUp", "pod triggered scale-up", 20, source="cluster-autoscaler")
    refused = event("NotTriggerScaleUp", "pod didn't trigger scale-up: ", 50, source="cluster-autoscaler")
    assert stage(unscheduled(NO_GPU_NODE), [asked, refused], NOW).kind == FAILED
    refused_first = refused | {"lastTimestamp": clock(10)}
    assert stage(unscheduled(NO_GPU_NODE), [asked, refused_first], NOW).kind == WAITS


def test_a_device_plugin_that_restarts_does_not_end_a_long_wait() -> None:
    stages = Stages()
    full, none = unscheduled(FULL), unscheduled(NO_GPU_NODE)  # both since the pod was made
    assert stages.of(full, [], NOW + 1000).kind == WAITS
    assert stages.of(none, [], NOW + 1010).kind == WAITS
    assert stages.of(full, [], NOW + 1020).kind == WAITS
    assert stages.of(none, [], NOW + 1035).kind == WAITS
    assert stages.of(none, [], NOW + 1054).kind == WAITS
    assert stages.of(none, [], NOW + 1055).kind == FAILED


# -- no scheduler says anything ----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [pod(), pod(conditions=[GATED])])
def test_a_scheduler_that_does_not_run_is_told_then_doubted_then_an_error(made: Raw) -> None:
    made["spec"]["schedulerName"] = "volcano"
    stages, said = Stages(), "the scheduler volcano has not looked at it for "
    kinds = []
    for second, words in (
        (0, "scheduler"),
        (11, said),
        (61, "ask your administrator whether it is running"),
        (300, said),
        (301, said),
    ):
        found = stages.of(made, [], NOW + 3600 + second)  # by a clock that is ahead
        assert words in found.words
        kinds.append((found.kind, found.reason))
    assert kinds == [(WAITS, UNSEEN)] * 4 + [(FAILED, UNSEEN)]
    assert "schedulerName" in found.next_step


def test_one_that_has_told_an_event_has_looked() -> None:
    stages, told = Stages(), event("Unschedulable", "queue is full", source="default-scheduler")
    for second in (0, 301, 1000):
        assert stages.of(pod(), [told], NOW + second).kind == WAITS


TEMPLATES = "resourceclaimtemplate.resource.k8s.io"
NO_TEMPLATE = f'PodResourceClaim gpu: resource claim template "one": {TEMPLATES} "one" not found'
NO_QUOTA = (
    'PodResourceClaim gpu: create ResourceClaim : resourceclaims.resource.k8s.io "x" is forbidden: exceeded '
    "quota: gpus, requested: count/resourceclaims.resource.k8s.io=1, used: 2, limited: 2"
)


@pytest.mark.parametrize(
    ("message", "made", "kinds", "words"),
    [
        (NO_TEMPLATE, pod(), (FAILED, FAILED), 'the ResourceClaimTemplate "one" is not in this namespace'),
        (NO_QUOTA, pod(), (WAITS, WAITS), "its ResourceClaim cannot be created: create ResourceClaim"),
        ("PodResourceClaim gpu: etcd", pod(), (WAITS, FAILED), "its ResourceClaim cannot be created: etcd"),
        (
            NO_TEMPLATE,
            pod(resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "x"}]),
            (WAITS, WAITS),
            "scheduler",
        ),
    ],
)
def test_a_claim_that_is_not_made_is_an_error_unless_it_passes(
    message: str, made: Raw, kinds: tuple[str, str], words: str
) -> None:
    stages, told = Stages(), event("FailedResourceClaimCreation", message, source="resource_claim")
    found = [stages.of(made, [told], NOW + second) for second in (0, 31)]
    assert tuple(each.kind for each in found) == kinds
    for each in found:
        assert words in each.words
        assert bool(each.next_step) == (each.kind == FAILED)
