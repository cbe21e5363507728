"""A tenant's pod floods both injectors with connections, and the queue with pods that ask for nothing.

Another's pods are all let in, and their gates lifted, as fast as in calm. On a machine of a few cores all
share them, and the API server: beside an attacker that may take a core it is as fast as beside the same pod,
as busy, whose connections are to a port of its own where nobody is, and whose pods are at another's gate.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import pytest

from bitfusion_client.kubernetes.names import QUEUE_GATE
from tests.cluster.api_client import Object
from tests.cluster.follow import Follower
from tests.cluster.installation import PROFILE, SYSTEM
from tests.cluster.node import Node
from tests.cluster.our_controller import with_components
from tests.cluster.pods import SECURITY, Pods, ready_address
from tests.cluster.project_images import project_image
from tests.manifests.installed import RESTRICTED
from tests.support import flood, pod_flood
from tests.support.machine import scaled
from tests.support.waiting import wait_until

# images are built when they never were
pytestmark = [pytest.mark.long, pytest.mark.attack, pytest.mark.timeout(900)]

IMAGE = "kubeflow-bitfusion/notebook-controller:0.1.0"
INJECTOR, QUEUE = "bitfusion-injector", "bitfusion-queue"
ANOTHER_GATE = "example.com/another"
ATTACK_S = 60
LITTLE, MUCH = "50m", "500m"  # CPU of each of the attacker's two containers
PODS, AT_ONCE = 100, 8
CALM_ROUNDS = 3
HIGHEST_PEAK = 200  # MiB; the injector's container may have 256
_STATUS = "print(open('/proc/1/status').read())"


@pytest.fixture(scope="module")
def programs(node: Node) -> Iterator[Pods]:
    """Both replicas of injector and queue, as the manifests install them."""
    image = project_image("notebook-controller", say=lambda line: None)
    if node.import_image(image, image.name):
        node.keep_images()
    kubectl = node.cluster.kubectl
    items = with_components(node.cluster, "kubeflow", "queue")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    node.cluster.client.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": RESTRICTED}})
    try:
        node.offer_units(2 * PODS)  # those of one round may be gone a moment after the next one begins
        kubectl("apply", "-f", "-", input=text)
        for name in (INJECTOR, QUEUE):
            kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{name}", "--timeout=170s", limit_s=180)
        yield Pods(node, SYSTEM)
    finally:
        for name in ("bitfusion-pod-injection", "bitfusion-notebook-admission"):
            kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration", name)
        kubectl("delete", "--ignore-not-found", "-f", "-", input=text, limit_s=120)
        kubectl("delete", "--ignore-not-found", "namespace", SYSTEM, limit_s=120)
        node.offer_units(0)


@dataclass(frozen=True)
class Times:
    """Of each of some pods the seconds from its request: to the answer, and until its gate was gone."""

    admitted: list[float]
    lifted: list[float]

    def __str__(self) -> str:
        def told(what: str, seconds: list[float]) -> str:
            return f"{what}: median {median(seconds):.3f} s, slowest {max(seconds):.3f} s"

        return f"{len(self.lifted)} pods; {told('let in', self.admitted)}; {told('lifted', self.lifted)}"


def together(rounds: Sequence[Times]) -> Times:
    return Times(
        list(chain.from_iterable(one.admitted for one in rounds)),
        list(chain.from_iterable(one.lifted for one in rounds)),
    )


def times(node: Node, namespace: str) -> Times:
    """Of so many pods of one unit each; no node takes them, and they are deleted."""
    path, run = f"/api/v1/namespaces/{namespace}/pods", secrets.token_hex(3)
    client = node.cluster.client
    began: dict[str, float] = {}
    gone: dict[str, float] = {}

    def changed(kind: str, pod: Object) -> None:
        if kind != "DELETED" and not pod["spec"].get("schedulingGates"):
            gone.setdefault(pod["metadata"]["name"], time.monotonic())

    def make(number: int) -> float:
        container: Object = {
            "name": "main",
            "image": "x",
            "securityContext": SECURITY,
            "resources": {"limits": {"bitfusion.io/gpu-1": "1"}},
        }
        spec = {"nodeSelector": {"no": "node"}, "containers": [container]}
        name = f"p-{run}-{number}"
        began[name] = time.monotonic()
        pod = client.create(path, {"metadata": {"name": name}, "spec": spec})
        seconds = time.monotonic() - began[name]
        assert pod["spec"]["initContainers"]
        assert pod["spec"]["schedulingGates"] == [{"name": QUEUE_GATE}]
        return seconds

    follower = Follower(client, path, changed)
    follower.start()
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            admitted = list(pool.map(make, range(PODS)))
        wait_until(lambda: gone.keys() >= began.keys(), lambda: f"{len(gone)} of {PODS} are lifted", 120)
    finally:
        follower.stop()
    client.delete(path, gracePeriodSeconds=0)
    return Times(admitted, [gone[name] - when for name, when in began.items()])


class Attacker:
    """A pod of a tenant that for a minute opens connections to these, and makes pods with this gate.

    `cpu` is what each of its two containers may have, as a tenant's quota gives it.
    """

    def __init__(self, node: Node, targets: list[str], gate: str, say: str, cpu: str) -> None:
        self._cluster = node.cluster
        namespace = node.cluster.new_namespace(PROFILE)
        rights = ("--clusterrole=edit", f"--serviceaccount={namespace}:default")
        node.cluster.kubectl("-n", namespace, "create", "rolebinding", "editor", *rights)
        held = "1000" if say == flood.TLS_HEADER else "4000"  # more than replicas hold; with TLS 100 KiB each
        last = f"--seconds={ATTACK_S}"
        connections = (flood, [*targets, last, "--say", say, "--held", held])
        containers = [
            {
                "name": Path(str(program.__file__)).stem.replace("_", "-"),
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["python3", "-c", Path(str(program.__file__)).read_text()],
                "args": words,
                "securityContext": SECURITY,
                "resources": {
                    "limits": {"cpu": cpu, "memory": "512Mi"},
                    "requests": {"cpu": "50m", "memory": "128Mi"},
                },
            }
            for program, words in (connections, (pod_flood, ["--gate", gate, last]))
        ]
        self._pods = Pods(node, namespace)
        spec = {"restartPolicy": "Never", "containers": containers}
        self._pods.create({"metadata": {"name": "attacker"}, "spec": spec})
        self._pods.wait_running("attacker")

    @property
    def is_over(self) -> bool:
        return bool(self._pods.get("attacker")["status"]["phase"] == "Succeeded")

    def did(self) -> str:
        return " ".join(self._pods.logs("attacker", "--all-containers").split("\n"))

    def told(self) -> str:
        return self._pods.told("attacker")

    def clear(self) -> None:
        """Its pods are gone: what one left must not slow the next one's rounds."""
        path = f"/api/v1/namespaces/{self._pods.namespace}/pods"

        def are_gone() -> bool:
            self._cluster.client.delete(path, gracePeriodSeconds=0)
            return not self._cluster.client.get(path, limit=1)["items"]

        wait_until(are_gone, "no pod is left", 300, errors=(OSError,))  # thousands are more than one answer


def metric(pod: Object, name: str) -> float:
    """One of a replica's, whatever its labels."""
    with urlopen(f"http://{ready_address(pod)}:8080/metrics", timeout=scaled(10)) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.split("[ {]", line)[0] == name)


def closed(injector: Object) -> float:
    """How many connections it has sent away."""
    return metric(injector, "bitfusion_admission_connections_closed_total")


@pytest.mark.parametrize("much", [LITTLE, MUCH])
@pytest.mark.parametrize("say", [flood.SILENT, flood.HELLO, flood.TLS_HEADER])
def test_another_tenants_pods_are_admitted_and_lifted_beside_a_flood(
    node: Node, programs: Pods, say: str, much: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = node.cluster
    other = cluster.new_namespace(PROFILE)

    def replicas(name: str) -> list[Object]:
        found = cluster.client.get(
            f"/api/v1/namespaces/{SYSTEM}/pods", labelSelector=f"app.kubernetes.io/name={name}"
        )
        return sorted(found["items"], key=lambda pod: str(pod["metadata"]["name"]))

    injectors, queues = replicas(INJECTOR), replicas(QUEUE)
    before = [*injectors, *queues]
    assert (len(injectors), len(queues)) == (2, 2)

    def rounds(go_on: Callable[[int], bool]) -> tuple[list[Times], float]:
        """As long as that is true of their number; and how much of a core the queue needed."""
        began, needed = time.monotonic(), cpu(queues)
        found: list[Times] = []
        while go_on(len(found)):
            found.append(times(node, other))
        return found, (cpu(queues) - needed) / (time.monotonic() - began)

    def rounds_beside(attacker: Attacker) -> tuple[list[Times], float]:
        found, cores = rounds(lambda _: not attacker.is_over)
        return found[:-1] or found, cores  # the last one may have been beside nobody

    times(node, other)  # the first ones open connections and fill caches
    calm, cores_calm = rounds(lambda many: many < CALM_ROUNDS)
    elsewhere, cores_elsewhere, did_nothing = calm, cores_calm, ""
    if much == MUCH:
        nobody = Attacker(node, ["127.0.0.1:9"], ANOTHER_GATE, say, much)
        elsewhere, cores_elsewhere = rounds_beside(nobody)
        did_nothing = nobody.did()
        nobody.clear()
    already = [closed(each) for each in injectors]
    targets = [f"{ready_address(each)}:8443" for each in injectors]
    attacker = Attacker(node, targets, QUEUE_GATE, say, much)
    wait_until(
        lambda: all(closed(each) > many for each, many in zip(injectors, already, strict=True)),
        attacker.told,
        90,
    )
    beside, cores = rounds_beside(attacker)
    after = [*replicas(INJECTOR), *replicas(QUEUE)]
    peaks = {each["metadata"]["name"]: peak_mib(programs, each) for each in after}
    did = attacker.did()
    attacker.clear()
    with capsys.disabled():
        print(f"\n{say}: calm: {together(calm)}")
        if did_nothing:
            print(f"{say}: beside the same pod that attacks nobody: {together(elsewhere)}; {did_nothing}")
        for each in beside:
            print(f"{say}: under attack: {each}")
        print(f"{say}: the attacker, each with {much}: {did}")
        needed = f"{cores_calm:.3f}, {cores_elsewhere:.3f}, under attack {cores:.3f}"
        print(f"{say}: cores that the queue needed: {needed}")
        print(f"{say}: memory at most, MiB: {peaks}")
    assert [uid_and_restarts(each) for each in after] == [uid_and_restarts(each) for each in before]
    assert max(peaks.values()) < HIGHEST_PEAK
    # What it costs ours, whatever else runs here; the times are those of a machine that is shared, too.
    assert cores < 2 * cores_elsewhere + 0.05
    attacked, not_attacked = together(beside), together(elsewhere)
    assert median(attacked.admitted) < 2 * median(not_attacked.admitted) + 0.5
    assert median(attacked.lifted) < 2 * median(not_attacked.lifted) + 0.5


def uid_and_restarts(pod: Object) -> tuple[Any, Any]:
    return pod["metadata"]["uid"], [each["restartCount"] for each in pod["status"]["containerStatuses"]]


def cpu(replicas: list[Object]) -> float:
    return sum(metric(each, "process_cpu_seconds_total") for each in replicas)


def peak_mib(programs: Pods, pod: Object) -> int:
    status = programs.exec(pod["metadata"]["name"], "python3", "-c", _STATUS)
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024
