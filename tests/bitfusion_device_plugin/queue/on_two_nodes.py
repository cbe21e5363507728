"""A cluster of two nodes that both report one pool of 100 units, with the injector, two queues, and a user.

Injector and queues are processes of this machine, with the rights and under the policies of the manifests;
notebooks are made as the form does, and our stub plays Kubeflow's controller.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bitfusion_client.kubernetes.names import QUEUE_CONDITION
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.components import Component
from tests.cluster.node import SMALL, Node
from tests.cluster.notebook_controller import STOPPED
from tests.cluster.notebooks import Room
from tests.cluster.project_images import project_image
from tests.manifests.queue_installed import QUEUE, queue_rights
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.notebooks import form_notebook
from tests.support.ports import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
POOL = 100
HALF = {"bitfusion.io/gpu-50": "1"}
STUCK_AFTER_S = 5
_MAIN = "import sys; from bitfusion_device_plugin.queue.settings import main; sys.exit(main())"
# A shell that is process 1 ends by no signal without a trap.
_SLEEP = ["/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.2; done"]


class Replica:
    """One `bitfusion-queue`: `process.kill()`, `.start()`, and whether it leads."""

    def __init__(self, cluster: Cluster, namespace: str, number: int) -> None:
        self._port = free_port()
        kubeconfig = cluster.service_account_kubeconfig(namespace, QUEUE)
        self.process: Component = cluster.component(
            f"{QUEUE}-{number}",
            [
                *(sys.executable, "-c", _MAIN, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
                *("--bind=127.0.0.1", f"--monitoring-port={self._port}"),
                *(f"--stuck-after={STUCK_AFTER_S}", f"--units={POOL}"),
            ],
            lambda: bool(fetch(f"http://127.0.0.1:{self._port}/readyz")),
            {"PYTHONPATH": str(ROOT)},
        )

    @property
    def leads(self) -> bool:
        return self.process.running and self.metric("bitfusion_queue_leader") == 1

    def metric(self, name: str) -> float | None:
        """The value of one metric, with its labels in its name."""
        lines = fetch(f"http://127.0.0.1:{self._port}/metrics").splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None)


class TwoNodes:
    """What the tests see: the user's room, and the queue's replicas."""

    def __init__(self, nodes: list[Node], room: Room, replicas: list[Replica]) -> None:
        self.nodes = nodes
        self.cluster = nodes[0].cluster
        self._scheduler = nodes[0].scheduler
        self.room = room
        self.replicas = replicas

    def leader(self) -> Replica:
        """The replica that leads, once there is one."""
        return wait_until(
            lambda: next((each for each in self.replicas if each.leads), None), "a replica leads", 60
        )

    def make(self, name: str, limits: Object | None = None, node: str = "", **requests: str) -> None:
        """A Notebook as the form makes it, on half of the pool, whose container is a shell."""
        made = form_notebook(
            name, HALF if limits is None else limits, namespace=self.room.namespace, image=SMALL
        )
        spec = made["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container["command"] = _SLEEP
        container["resources"]["requests"] = {"cpu": "10m", "memory": "16Mi", **requests}
        container["resources"]["limits"] |= {"memory": "64Mi", **requests}
        spec["terminationGracePeriodSeconds"] = 1
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.room.post(made)

    def wait_running(self, name: str) -> None:
        try:
            self.room.wait_running(name, 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told(name)}") from None

    @contextmanager
    def no_scheduler(self) -> Iterator[None]:
        """Pods that the queue lets through get no node meanwhile."""
        assert self._scheduler is not None
        self._scheduler.freeze()
        try:
            yield
        finally:
            self._scheduler.thaw()

    def reasons(self) -> Counter[str]:
        """How many pods are told what."""
        every = self.cluster.client.get(self.room.pods)["items"]
        told = [each for pod in every for each in pod["status"].get("conditions") or ()]
        return Counter(each["reason"] for each in told if each["type"] == QUEUE_CONDITION)

    def condition(self, name: str) -> Object | None:
        """The queue's, on the notebook's pod."""
        pod = self.room.pod(name) or {"status": {}}
        every = pod["status"].get("conditions") or []
        return next((each for each in every if each["type"] == QUEUE_CONDITION), None)

    def events(self, name: str) -> dict[str, str]:
        """Messages of the queue's Events on the Notebook, by reason."""
        path = f"/api/v1/namespaces/{self.room.namespace}/events"
        query = f"involvedObject.kind=Notebook,involvedObject.name={name}"
        found = self.cluster.client.get(path, fieldSelector=query)["items"]
        return {
            each["reason"]: each["message"]
            for each in found
            if each.get("source", {}).get("component") == QUEUE
        }

    def running(self) -> list[str]:
        """The notebooks whose pod is Running."""
        return sorted(
            pod["metadata"]["labels"]["notebook-name"]
            for pod in self.cluster.client.get(self.room.pods)["items"]
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        )

    def stop(self, name: str) -> None:
        """The form's stop button, without a wait."""
        self.room.annotate_with({STOPPED: "2026-11-25T00:00:00Z"}, name)

    def clear(self) -> None:
        """Delete all notebooks, and wait until no pod is left."""
        for notebook in self.cluster.client.get(self.room.notebooks)["items"]:
            with suppress(Refused):
                self.cluster.client.delete(f"{self.room.notebooks}/{notebook['metadata']['name']}")
        wait_until(lambda: not self.cluster.client.get(self.room.pods)["items"], "no pod is left", 120)

    def told(self, name: str) -> str:
        """For failures."""
        described = self.cluster.try_kubectl("-n", self.room.namespace, "describe", "pod", f"{name}-0")
        logs = "\n".join(each.process.last_lines(30) for each in self.replicas)
        return f"{described.stdout}{described.stderr}\n{logs}"


@contextmanager
def queued_cluster(nodes: list[Node], folder: Path) -> Iterator[TwoNodes]:
    """Everything on those nodes; taken away at the end."""
    cluster = nodes[0].cluster
    client_image = project_image("client", say=lambda line: None)
    with ExitStack() as stack:
        for node in nodes:
            node.import_image(client_image, client_image.name)
            node.offer_units(POOL)
            stack.callback(node.offer_units, 0)
        room = Room(cluster)
        stack.enter_context(cluster.notebook_controller("1.8", room.namespace))
        namespace = stack.enter_context(queue_rights(cluster))
        injector = Installation(cluster, folder, name="bitfusion-injector", module=INJECTOR)
        stack.enter_context(injector)
        injector.started("--gates=on")
        replicas = [Replica(cluster, namespace, number) for number in (1, 2)]
        for replica in replicas:
            stack.callback(replica.process.kill)
            replica.process.start()
        found = TwoNodes(nodes, room, replicas)
        stack.callback(found.clear)
        yield found
