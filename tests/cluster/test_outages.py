"""Outages: of our webhooks, of the apiserver, of what lies between, of the replica that leads.

What is asserted: whatever was made meanwhile ends up as if nothing had been away, what runs goes on running,
and the number of requests stays small. Times and numbers are printed (`pytest -rP` shows them).
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_client.client_images import DEFAULT_RULES
from notebook_controller_patch import kubernetes_api
from notebook_controller_patch.kubernetes_api import KubernetesApi
from notebook_controller_patch.metrics import ReconcileMetrics, WatchMetrics
from notebook_controller_patch.reconcile.election import LeaseTimes
from notebook_controller_patch.reconcile.list_watch import Limits
from notebook_controller_patch.reconcile.service import ReconcileService
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import Kubeflow
from tests.cluster.notebooks import Room, generation, version
from tests.cluster.our_controller import OurController, our_controller, replica
from tests.cluster.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until, wait_until_settled

MANAGEMENT, OS, VERSION = "auto-management/bitfusion", "bitfusion-client/os", "bitfusion-client/version"
REQUEST, PENDING, LABEL = "bitfusion.io/request", "bitfusion.io/pending", "bitfusion.io/requested"
CLIENT = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}
TWO = {"bitfusion.io/gpu-amount": "2"}
AWAY = (Refused, OSError)

pytestmark = pytest.mark.slow


def ours_of(annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if "bitfusion" in name}


def notes(room: Room, name: str = "mine") -> dict[str, str]:
    return ours_of(room.notebook(name)["metadata"].get("annotations") or {})


def template(room: Room, name: str = "mine") -> dict[str, str]:
    return ours_of(room.template_annotations(name))


def told(room: Room, name: str) -> list[str]:
    """The reasons of the Events on a notebook that are ours."""
    listed = room.client.get(f"/api/v1/namespaces/{room.namespace}/events")["items"]
    return sorted(
        event["reason"]
        for event in listed
        if event["involvedObject"]["name"] == name and event["reason"].startswith("Bitfusion")
    )


def say(text: str) -> None:
    print(f"\noutage: {text}")


class Asked:
    """How many requests a replica that runs as a process has sent, by its own metrics."""

    def __init__(self, controller: OurController) -> None:
        self._controller = controller
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {
            **self._controller.metrics("bitfusion_watch_queries_total"),
            **self._controller.metrics("bitfusion_reconcile_actions_total"),
        }

    def since(self, prefix: str = "bitfusion_") -> int:
        now = self._now()
        return round(sum(now[name] - self._before.get(name, 0) for name in now if name.startswith(prefix)))


@pytest.fixture
def recovered(cluster: Cluster) -> Iterator[None]:
    """Afterwards Kubernetes' own controllers are fresh: theirs wait long after the apiserver was away."""
    yield
    if not cluster.apiserver.running:
        cluster.apiserver.start()
    cluster.controller_manager.restart(signal.SIGKILL)
    cluster.new_namespace()  # gets its ServiceAccount from them


# our webhooks


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kubeflow", ["1.7", "1.8"])
def test_all_our_webhooks_down(cluster: Cluster, kubeflow: Kubeflow) -> None:
    room = Room(cluster)
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace),
    ):
        for name in ("runs", "changes", "stops"):
            room.create(name, limits=TWO)
        for name in ("runs", "changes", "stops"):
            room.wait_running(name)
        plain = room.create("plain")
        room.wait_running("plain")
        pods = {name: room.pod(name) for name in ("runs", "changes", "plain")}

        ours.process.kill()
        began = time.monotonic()
        # everything can be made and changed, at once
        new = room.create("new", limits=TWO)
        room.create("new-half", limits={"bitfusion.io/gpu-50": "1"}, annotations={OS: "centos8"})
        room.create("wrong", limits={"bitfusion.io/gpu-101": "1"})
        room.create("new-plain")
        unrelated(room)
        room.annotate_with({REQUEST: "-n 1 -p 0.5"}, "changes")
        room.annotate_with({REQUEST: "-n 1 -p 0.5"}, "stops")
        room.stop("stops")
        room.create("stopped", limits=TWO, annotations={"kubeflow-resource-stopped": "2026-11-21T08:00:00Z"})
        room.wait_stateful_set("stopped")
        assert time.monotonic() - began < 30, "writes waited for webhooks that are not there"
        assert ours_of(new["metadata"]["annotations"]) == {}
        room.wait_running("new-plain")
        # what asks was let in without the client: no node can take it
        wait_until(lambda: room.pod("new") and room.pod("new-half"), limit_s=20)
        sets = {name: room.stateful_set(name) for name in ("runs", "changes", "plain", "new-plain", "wrong")}

        began = time.monotonic()
        ours.process.start()
        asked_at = time.monotonic() - began
        for name in ("new", "new-half"):
            room.wait_running(name)
        wait_until(
            lambda: notes(room, "stopped") == CLIENT and template(room, "stopped") == CLIENT, limit_s=20
        )
        wait_until(lambda: template(room, "stops") == {**CLIENT, REQUEST: "-n 1 -p 0.5"}, limit_s=20)
        wait_until(lambda: PENDING in notes(room, "changes"), limit_s=20)
        wait_until(lambda: told(room, "wrong") == ["BitfusionRequestRefused"], limit_s=20)
        healed = time.monotonic() - began
        asked = round(ours.metric("bitfusion_watch_queries_total"))
        done = round(ours.metric("bitfusion_reconcile_actions_total"))
        say(
            f"webhooks down ({kubeflow}): all healed {healed:.1f} s after the start of the process "
            f"(ready after {asked_at:.1f} s); {asked} lists and watches, {done} writes"
        )

        assert notes(room, "new") == CLIENT
        assert room.notebook("new")["metadata"]["labels"][LABEL] == "true"
        assert notes(room, "new-half") == {**CLIENT, OS: "centos8"}
        assert template(room, "new-half") == {**CLIENT, OS: "centos8"}
        assert ours_of(room.pod("new-half")["metadata"]["annotations"]) == {**CLIENT, OS: "centos8"}
        assert told(room, "new") == ["BitfusionPodRemade"]
        assert notes(room, "changes")[PENDING] == "1 GPU × 50 % instead of 2 GPUs, from the next start on"
        assert told(room, "changes") == ["BitfusionChangePending"]
        # as if nothing had been: what runs is what ran
        wait_until_settled(
            lambda: [version(room.notebook(name)) for name in ("runs", "changes", "new", "wrong")]
        )
        for name, before in pods.items():
            now = room.pod(name)
            assert now is not None
            assert now["metadata"]["uid"] == before["metadata"]["uid"], f"{name} was restarted"
        for name, before_set in sets.items():
            assert generation(room.stateful_set(name)) == generation(before_set), f"{name} was written"
        assert room.notebook("plain")["metadata"]["annotations"] == plain["metadata"]["annotations"]
        assert done <= 25
        assert asked <= 8
        # the changed one takes it over by its own restart, with one new revision
        revisions = room.revisions("changes")
        room.stop("changes")
        room.start("changes")
        assert template(room, "changes") == {**CLIENT, REQUEST: "-n 1 -p 0.5"}
        assert len(room.revisions("changes") - revisions) == 1
        wait_until(
            lambda: told(room, "changes") == ["BitfusionChangeApplied", "BitfusionChangePending"], limit_s=10
        )
        wait_until(lambda: PENDING not in notes(room, "changes"), limit_s=10)


def unrelated(room: Room) -> None:
    """Objects that have nothing to do with us, in the same namespace."""
    name = {"metadata": {"name": "unrelated"}}
    base = f"/namespaces/{room.namespace}"
    pod_spec = {"containers": [{"name": "c", "image": "i"}]}
    labels = {"app": "unrelated"}
    made = [
        (f"/api/v1{base}/configmaps", {**name, "data": {"a": "b"}}),
        (f"/api/v1{base}/pods", {**name, "spec": pod_spec}),
        (
            f"/apis/apps/v1{base}/statefulsets",
            {
                **name,
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod_spec},
                },
            },
        ),
    ]
    for path, body in made:
        room.client.create(path, body)


# the apiserver, with the whole controller as a process


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.usefixtures("recovered")
def test_the_apiserver_ends_and_comes_back(cluster: Cluster, number: signal.Signals) -> None:
    room = Room(cluster)
    with our_controller(cluster) as ours:
        controller = cluster.notebook_controller("1.7", room.namespace)
        with cluster.node_stub(room.namespace), controller:
            room.create("before", limits=TWO)
            pod = room.wait_running("before")
            asked = Asked(ours)
            pid = ours.process.pid
            try:
                down = cluster.apiserver.stop(number)
                time.sleep(5)
            finally:
                if not cluster.apiserver.running:
                    cluster.apiserver.start()
            began = time.monotonic()
            # the reconciler's, without the webhooks' help
            room.annotate_with({REQUEST: "-n 4"}, "before")
            wait_until(lambda: PENDING in notes(room, "before"), limit_s=60)
            told_after = time.monotonic() - began
            wait_until(lambda: room.create("after", limits=TWO), limit_s=30, errors=AWAY)
            wait_until(lambda: template(room, "after") == CLIENT, limit_s=60, errors=AWAY)
            back = time.monotonic() - began
            say(
                f"apiserver ended by {number.name} (took {down:.1f} s, then 5 s away): a change told "
                f"{told_after:.1f} s after its return, a new notebook right {back:.1f} s after; "
                f"{asked.since('bitfusion_watch')} lists and watches, "
                f"{asked.since('bitfusion_reconcile')} writes"
            )
            assert ours.process.pid == pid
            assert ours.process.running
            now = room.pod("before")
            assert now is not None
            assert now["metadata"]["uid"] == pod["metadata"]["uid"]
            # two loops; each failure waits longer than the one before, at most 30 s
            assert asked.since("bitfusion_watch") <= 2 * (8 + (down + 5 + back) / 8)
            assert asked.since("bitfusion_reconcile") <= 12


@pytest.mark.timeout(180)
def test_the_leader_is_killed(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as first:
        second = replica(cluster, first)
        second.process.start(limit_s=30)
        try:
            wait_until(lambda: first.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
            assert second.metric("bitfusion_reconcile_leader") == 0
            assert second.metric("bitfusion_watch_synced") == 1, (
                "Notebooks only: the leader's work is not its"
            )
            asked = Asked(second)
            first.process.kill()
            # its webhooks too, in this test: what is made now is the reconciler's alone
            room.create("orphan", limits=TWO)
            began = time.monotonic()
            wait_until(lambda: notes(room, "orphan") == CLIENT, limit_s=60)
            took = time.monotonic() - began
            assert second.metric("bitfusion_reconcile_leader") == 1
            say(
                f"leader killed: the other replica healed a notebook {took:.1f} s later; "
                f"{asked.since('bitfusion_watch')} lists and watches, "
                f"{asked.since('bitfusion_reconcile')} writes"
            )
            # the lease's 7 s, a look each second, and the list
            assert took < 25
            assert asked.since("bitfusion_watch") <= 4
        finally:
            second.process.stop()


@pytest.mark.timeout(180)
def test_the_leader_is_told_to_end(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as first:
        second = replica(cluster, first)
        second.process.start(limit_s=30)
        try:
            wait_until(lambda: first.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
            took = first.process.stop()
            room.create("orphan", limits=TWO)
            began = time.monotonic()
            wait_until(lambda: notes(room, "orphan") == CLIENT, limit_s=60)
            healed = time.monotonic() - began
            say(f"leader told to end: gone after {took:.1f} s; the other one healed {healed:.1f} s later")
            assert took < 20
            assert healed < 10, "the Lease is given back"
        finally:
            second.process.stop()


# what lies between, with the reconciler alone, in this process


class Reconciler:
    """A reconciler without webhooks, behind a proxy; counts what it sends."""

    def __init__(
        self,
        cluster: Cluster,
        proxy: TcpProxy,
        namespace: str,
        folder: Path,
        limits: Limits,
        token: Path | None,
    ) -> None:
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        if token is not None:
            config["users"][0]["user"] = {"tokenFile": str(token)}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        self.sent = 0
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self.service = ReconcileService(
            KubernetesApi.load(str(path)),
            namespace=namespace,
            lease="outage",
            identity="in-process",
            rules=lambda: DEFAULT_RULES,
            watch_metrics=WatchMetrics(self.registry),
            metrics=ReconcileMetrics(self.registry),
            limits=limits,
            times=LeaseTimes(duration=6, renew_within=4, retry=1, timeout=(1, 2)),
        )

    def count(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any) -> Any:
            with self._lock:
                self.sent += 1
            return real(*arguments)

        return request

    def restarts(self) -> dict[str, float]:
        return {
            f"{sample.labels['resource']}: {sample.labels['reason']}": sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "bitfusion_watch_restarts_total"
        }


@contextmanager
def reconciler(
    cluster: Cluster,
    proxy: TcpProxy,
    room: Room,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    token: Path | None = None,
) -> Iterator[Reconciler]:
    running = Reconciler(cluster, proxy, room.namespace, folder, limits, token)
    monkeypatch.setattr(kubernetes_api, "_request", running.count(kubernetes_api._request))
    running.service.start()
    try:
        yield running
    finally:
        running.service.stop(10)


def api_port(cluster: Cluster) -> int:
    return int(cluster.server.rpartition(":")[2])


@pytest.mark.timeout(120)
def test_connections_are_cut_again_and_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(cluster)
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, monkeypatch, Limits()) as ours,
    ):
        room.create("nb-0", limits=TWO)
        wait_until(lambda: notes(room, "nb-0") == CLIENT, limit_s=20)
        sent, began = ours.sent, time.monotonic()
        times = []
        for number in range(1, 6):
            proxy.cut()
            cut = time.monotonic()
            room.create(f"nb-{number}", limits=TWO)
            wait_until(lambda name=f"nb-{number}": notes(room, name) == CLIENT, limit_s=60)
            times.append(time.monotonic() - cut)
        passed = time.monotonic() - began
        sent = ours.sent - sent
        shown = ", ".join(f"{seconds:.1f}" for seconds in times)
        say(f"connections cut 5 times: healed {shown} s after each cut; {sent} requests in {passed:.0f} s")
        # each cut: two watches, one write and its repetition, the lease each second or so
        assert sent <= 5 * 8 + passed * 1.5


@pytest.mark.timeout(120)
def test_a_token_that_is_no_longer_valid_is_read_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(cluster)
    accounts = f"/api/v1/namespaces/{room.namespace}/serviceaccounts"
    account = {"metadata": {"name": "runner"}}
    binding = {
        "metadata": {"name": f"runner-{room.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "runner", "namespace": room.namespace}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    room.client.create(accounts, account)
    room.client.create(bindings, binding)
    token = tmp_path / "token"
    token.write_text(cluster.service_account_token(room.namespace, "runner"))
    try:
        with (
            TcpProxy(api_port(cluster)) as proxy,
            reconciler(cluster, proxy, room, tmp_path, monkeypatch, Limits(), token) as ours,
        ):
            room.create("before", limits=TWO)
            wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
            sent, began = ours.sent, time.monotonic()
            # its tokens go with it; the apiserver believes one it has seen for 10 s more
            room.client.delete(f"{accounts}/runner")
            room.client.create(accounts, account)
            time.sleep(11)
            proxy.cut()
            wait_until(lambda: ours.restarts().get("notebooks: refused", 0) >= 2, limit_s=20)
            room.create("meanwhile", limits=TWO)
            wait_until(lambda: not ours.service.leading, limit_s=10)
            renewed = time.monotonic()
            token.write_text(cluster.service_account_token(room.namespace, "runner"))
            wait_until(lambda: notes(room, "meanwhile") == CLIENT, limit_s=40)
            healed, passed = time.monotonic() - renewed, time.monotonic() - began
            sent = ours.sent - sent
            say(f"token renewed: healed {healed:.1f} s after; {sent} requests in {passed:.0f} s")
            assert sent <= 25 + passed * 1.5
    finally:
        room.client.delete(f"{bindings}/runner-{room.namespace}")


@pytest.mark.timeout(120)
def test_connections_stall_half_open(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(cluster)
    # short watches, so that the silence that is allowed is short too
    limits = Limits(shortest_watch=5, longest_watch=8, margin=2, steady=2, watch_timeout=(1, 2))
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, monkeypatch, limits) as ours,
    ):
        room.create("before", limits=TWO)
        wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
        assert ours.service.leading
        sent, began = ours.sent, time.monotonic()
        proxy.stall()
        room.create("meanwhile", limits=TWO)
        wait_until(lambda: not ours.service.leading, limit_s=6)
        lost = time.monotonic() - began
        time.sleep(12)
        assert notes(room, "meanwhile") == {}
        proxy.cut()
        proxy.flow()
        flowing = time.monotonic()
        wait_until(lambda: notes(room, "meanwhile") == CLIENT, limit_s=60)
        healed = time.monotonic() - flowing
        passed, sent = time.monotonic() - began, ours.sent - sent
        say(
            f"stalled half-open: stopped leading after {lost:.1f} s; healed {healed:.1f} s after the end of "
            f"the stall; {sent} requests in {passed:.0f} s; watches ended: {ours.restarts()}"
        )
        assert lost <= 5
        assert sent <= 25 + passed * 1.5


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("recovered")
def test_the_apiserver_freezes(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(cluster)
    limits = Limits(shortest_watch=5, longest_watch=8, margin=2, steady=2, watch_timeout=(1, 2))
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, monkeypatch, limits) as ours,
    ):
        room.create("before", limits=TWO)
        wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
        sent, began = ours.sent, time.monotonic()
        cluster.apiserver.freeze()
        try:
            time.sleep(12)
            assert not ours.service.leading
        finally:
            cluster.apiserver.thaw()
        thawed = time.monotonic()
        wait_until(lambda: room.create("after", limits=TWO), limit_s=20, errors=AWAY)
        wait_until(lambda: notes(room, "after") == CLIENT, limit_s=60)
        healed, passed = time.monotonic() - thawed, time.monotonic() - began
        sent = ours.sent - sent
        say(f"apiserver frozen for 12 s: healed {healed:.1f} s after; {sent} requests in {passed:.0f} s")
        assert sent <= 25 + passed * 1.5
