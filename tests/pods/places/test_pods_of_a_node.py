"""What a real scheduler and a real kubelet write of pods that do not run, or not any more, in our words.

GPUs are on paper: a node whose status has two of them, that no kubelet looks after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bitfusion_pods.places.deaths import DEADLINE, EVICTED, death_of
from bitfusion_pods.places.events import events_of
from bitfusion_pods.places.stages import ENDED, FAILED, RUNS, STARTS, UNFIT, WAITS, Patience, Stage, stage
from bitfusion_pods.places.starting import newest
from bitfusion_pods.places.statuses import exit_code_of
from tests.cluster.node import SMALL, Node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

Raw = dict[str, Any]
GPU = "nvidia.com/gpu"
PAPER = "paper-gpu"
ANY_TAINT: Raw = {"tolerations": [{"operator": "Exists"}]}


@pytest.fixture(scope="module")
def room(node: Node) -> Iterator[Room]:
    client = node.cluster.client
    made = {
        "metadata": {"name": PAPER, "labels": {"kubernetes.io/hostname": PAPER}},
        "spec": {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]},
    }
    client.create("/api/v1/nodes", made)
    resources = {GPU: "2", "cpu": "8", "memory": "16Gi", "pods": "10"}
    client.merge(
        f"/api/v1/nodes/{PAPER}/status", {"status": {"capacity": resources, "allocatable": resources}}
    )
    try:
        yield Room(node)
    finally:
        client.delete(f"/api/v1/nodes/{PAPER}")


class Room:
    def __init__(self, node: Node) -> None:
        self._client = node.cluster.client
        self._namespace = node.cluster.new_namespace()
        self._path = f"/api/v1/namespaces/{self._namespace}"

    def create(
        self, name: str, script: str = "", gpus: int = 0, container: Raw | None = None, **spec: Any
    ) -> None:
        limits = {GPU: str(gpus)} if gpus else {}
        program = {
            "name": "program",
            "image": SMALL,
            "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "sh", "-c", script or "exec /bin/busybox sleep 1000"],
            "resources": {"limits": limits},
            **(container or {}),
        }
        body = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [program],
            **spec,
        }
        self._client.create(f"{self._path}/pods", {"metadata": {"name": name}, "spec": body})

    def create_secret(self, name: str) -> None:
        self._client.create(f"{self._path}/secrets", {"metadata": {"name": name}, "immutable": True})

    def pod(self, name: str) -> Raw:
        return dict(self._client.get(f"{self._path}/pods/{name}"))

    def events(self) -> list[Raw]:
        return list(self._client.get(f"{self._path}/events")["items"])

    def delete(self, name: str) -> None:
        self._client.delete(f"{self._path}/pods/{name}", {"gracePeriodSeconds": 0})

    def evict(self, name: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self._client.create(f"{self._path}/pods/{name}/eviction", body)

    def stage(self, name: str, patience: Patience | None = None) -> Stage:
        return stage(self.pod(name), self.events(), time.time(), (GPU,), patience or Patience())

    def wait(self, name: str, kind: str, patience: Patience | None = None) -> Stage:
        """The first stage of this kind."""
        found: list[Stage] = []

        def reached() -> bool:
            found.append(self.stage(name, patience))
            return found[-1].kind == kind and found[-1].words not in PASSING

        try:
            wait_until(reached, f"stage {kind} of {name}", 60)
        except BaseException:
            print(found[-1], self.pod(name)["status"])
            raise
        return found[-1]


PASSING = ("waiting for the scheduler",)


def test_a_pod_waits_while_others_hold_the_gpus(room: Room) -> None:
    room.create("holder", gpus=2, **ANY_TAINT)
    wait_until(lambda: room.pod("holder")["spec"].get("nodeName") == PAPER, "the holder's node", 30)
    room.create("waiter", gpus=1, **ANY_TAINT)
    found = room.wait("waiter", WAITS)
    assert found.words == "1 of 2 nodes has no free GPU, 1 has too few or none"
    room.create("large", gpus=3, **ANY_TAINT)
    assert room.wait("large", WAITS).reason == UNFIT
    assert room.stage("large", Patience(unfit=0)).words == (
        "no node can ever take it: 2 of 2 nodes have too few GPUs or none"
    )
    room.create("intolerant", gpus=1)
    assert room.wait("intolerant", WAITS).words == (
        "no node can take it yet: 1 of 2 nodes has too few GPUs or none, "
        "1 has a taint that this pod does not tolerate"
    )
    room.create("elsewhere", gpus=1, nodeSelector={"gpu-type": "b200"}, **ANY_TAINT)
    assert room.stage("elsewhere").kind == WAITS
    wait_until(lambda: room.stage("elsewhere").reason == UNFIT, "affinity that no node has", 30)
    assert (
        room.stage("elsewhere").words == "no node can take it yet: 2 of 2 nodes do not match where it may run"
    )


def test_a_template_of_device_claims_that_is_not_there_is_an_error_at_once(room: Room) -> None:
    claim = {"name": "gpu", "resourceClaimTemplateName": "bitfusion-1-gpu"}
    asks = {"resources": {"claims": [{"name": "gpu"}]}}
    room.create("unclaimed", container=asks, resourceClaims=[claim], **ANY_TAINT)
    said = 'the ResourceClaimTemplate "bitfusion-1-gpu" is not in this namespace'
    assert room.wait("unclaimed", FAILED).words == said


def test_a_scheduler_that_does_not_run_is_not_waited_for_long(room: Room) -> None:
    room.create("overlooked", schedulerName="volcano", **ANY_TAINT)
    found = room.wait("overlooked", FAILED, Patience(unseen=11))
    assert found.words.startswith("the scheduler volcano has not looked at it for 1")
    assert "whether the scheduler volcano runs" in found.next_step


def test_a_claim_that_is_not_there_is_an_error_at_once(room: Room) -> None:
    home = {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}
    room.create("homeless", volumes=[home], **ANY_TAINT)
    assert room.wait("homeless", FAILED).words == 'persistentvolumeclaim "home" not found'


@pytest.mark.parametrize(
    ("name", "container", "spec", "words"),
    [
        ("no-image", {"image": "example.invalid/none:1"}, {}, "the image example.invalid/none:1 is not on"),
        (
            "no-registry",
            {"image": "example.invalid/none:1", "imagePullPolicy": "Always"},
            {},
            "cannot reach the registry of the image example.invalid/none:1",
        ),
        (
            "no-secret",
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "a"}}}]},
            {},
            'the secret "s3", from which the pod takes a variable, does not exist',
        ),
        ("root", {}, {"securityContext": {"runAsNonRoot": True}}, "the image would run as root"),
        ("no-command", {"command": ["/none"]}, {}, "the container cannot be started: "),
        (
            "no-shell",
            {"command": ["/bin/sh", "-c", "true"], "volumeMounts": [{"name": "empty", "mountPath": "/bin"}]},
            {"volumes": [{"name": "empty", "emptyDir": {}}]},
            "the image has no shell (/bin/sh), which a GPU pod needs to start",
        ),
    ],
)
def test_a_container_that_cannot_be_made_is_an_error(
    room: Room, name: str, container: Raw, spec: Raw, words: str
) -> None:
    room.create(name, container=container, **spec)
    found = room.wait(name, FAILED)
    assert words in found.words
    room.delete(name)


def test_a_volume_that_cannot_be_mounted_is_an_error_after_some_seconds(room: Room) -> None:
    room.create("unmounted", volumes=[{"name": "conf", "configMap": {"name": "team"}}], container={
        "volumeMounts": [{"name": "conf", "mountPath": "/conf"}]
    })  # fmt: skip
    wait_until(lambda: "does not exist" in room.stage("unmounted").words, "the kubelet's event", 30)
    found = room.stage("unmounted")
    assert found.kind == STARTS
    assert found.words.startswith('its volumes are being attached (the configmap "team"')
    assert room.wait("unmounted", FAILED, Patience(mount=3)).next_step
    room.delete("unmounted")


def test_a_pod_whose_secret_comes_a_moment_later_runs_and_tells_nothing_of_it(room: Room) -> None:
    secret = {"name": "bitfusion-client", "secret": {"secretName": "early"}}
    mount = {"name": "bitfusion-client", "mountPath": "/bitfusion", "readOnly": True}
    room.create("early", volumes=[secret], container={"volumeMounts": [mount]})
    missed = 'secret "early" not found'
    wait_until(lambda: any(missed in each["message"] for each in room.events()), "the kubelet's event", 30)
    found = room.stage("early")
    assert (found.kind, found.words.partition(": ")[2]) == (
        STARTS,
        "its volumes are being attached and mounted",
    )
    assert room.stage("early", Patience(mount=0)).words == (
        "the pod's Secret early does not exist: somebody deleted it"
    )
    room.create_secret("early")
    assert room.wait("early", RUNS).words == "runs"
    room.delete("early")


def test_what_the_start_script_says_is_told(room: Room) -> None:
    said = "Error: this image has no Python for the bitfusion client. What to do: take another"
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    room.create("no-python", f"echo '{said}' >&2; exit 127", container=container)
    found = room.wait("no-python", ENDED)
    assert (found.words, found.next_step) == (
        "this image has no Python for the bitfusion client",
        "take another.",
    )


def test_an_init_container_that_fails_says_why(room: Room) -> None:
    init = {
        "name": "other",
        "image": SMALL,
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sh", "-c", "echo no room > /dev/termination-log; exit 1"],
    }
    room.create("uninstalled", initContainers=[init])
    assert room.wait("uninstalled", FAILED).words == "the init container other has failed: no room"


def test_deaths_of_pods_that_ran(room: Room) -> None:
    room.create("seven", "exit 7")
    room.create("deadline", activeDeadlineSeconds=1)
    room.create("evicted", terminationGracePeriodSeconds=30)  # it is looked at while it ends
    assert room.wait("evicted", RUNS).words == "runs"
    uid = room.pod("evicted")["metadata"]["uid"]

    def last_reason() -> str:
        told = newest(events_of(room.events(), uid))
        return told.reason if told else ""

    wait_until(lambda: last_reason() == "Started", last_reason)  # the kubelet writes both, in no order
    wait_until(lambda: exit_code_of(room.pod("seven")) == 7, "exit status", 30)
    wait_until(lambda: room.pod("deadline")["status"]["phase"] == "Failed", "the deadline", 30)
    found = death_of(room.pod("deadline"), time.time())
    assert found is not None
    assert (found.reason, found.words) == (
        DEADLINE,
        "the pod was ended because it reached the longest run time of a GPU pod (1 s)",
    )
    room.evict("evicted")
    last = room.pod("evicted")
    room.delete("evicted")
    evicted = death_of(last, time.time())
    assert evicted is not None
    assert evicted.reason == EVICTED
    assert evicted.words.endswith("for example because the node is drained for maintenance")
