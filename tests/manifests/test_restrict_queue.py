"""What somebody with the queue's token can write, and what nobody else can: against the real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.node_stub import NODE
from tests.cluster.rights import may
from tests.manifests.queue_installed import (
    ACCOUNT_POLICY,
    GATE_POLICY,
    QUEUE,
    asking_pod,
    denied_by,
    queue_rights,
)
from tests.support.waiting import wait_until

OTHER = "example.com/licence"
NOTEBOOKS = "/apis/kubeflow.org/v1/namespaces/default/notebooks"
ACCOUNT = "The Bitfusion queue's account may "
METADATA = "not change a pod's metadata."
SPEC = "make only one change to a pod's spec: remove the scheduling gate bitfusion.io/queue."
STATUS = (
    "change only one thing in a pod's status: the condition bitfusion.io/PoolUnits of a pod that asks for "
    "units."
)
DELETE = "delete only pods that ask for units and have no node yet."
EVENTS = (
    "write Events only about Notebooks and pods, in its own name and with a reason that begins with "
    "Bitfusion."
)
LEASE = "write only the Lease bitfusion-queue."
CONDITION: Object = {"type": QUEUE_CONDITION, "status": "False", "reason": "WaitsForPool", "message": "m"}
LIFT: Object = {"op": "remove", "path": "/spec/schedulingGates/0"}


@dataclass
class Thief:
    """Somebody with the queue's token; `namespace` is a user's, with pods that wait, run and don't ask."""

    cluster: Cluster
    client: ApiClient
    namespace: str
    own: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def events(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/events"

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.own}/leases"

    def new_pod(self, name: str, *gates: str) -> str:
        """The path of a pod that waits."""
        self.cluster.client.create(self.pods, asking_pod(name, gates or (QUEUE_GATE,)))
        return f"{self.pods}/{name}"


@pytest.fixture(scope="module")
def thief(cluster: Cluster) -> Iterator[Thief]:
    with ExitStack() as around:
        namespace = cluster.new_namespace()
        pods = f"/api/v1/namespaces/{namespace}/pods"
        around.enter_context(
            cluster.node_stub(namespace, schedulable=lambda pod: pod["metadata"]["name"] == "runs")
        )
        for made in (
            asking_pod("waits"),
            asking_pod("two-gates", (OTHER, QUEUE_GATE)),
            asking_pod("free", ()),
            asking_pod("runs", ()),
            asking_pod("asks-nothing", (QUEUE_GATE,), units=0),
            asking_pod("asks-for-none", (QUEUE_GATE,), units="0m"),
        ):
            cluster.client.create(pods, made)
        wait_until(lambda: cluster.client.get(f"{pods}/runs")["spec"].get("nodeName"), "a pod runs", 30)
        own = around.enter_context(queue_rights(cluster))
        token = cluster.service_account_token(own, QUEUE)
        yield Thief(cluster, cluster.client_as(token, "thief"), namespace, own)


def words(policy: str, request: Callable[[], object]) -> str:
    """The policy's own words; it must be the policy that refused."""
    with pytest.raises(Refused) as refused:
        request()
    _, found, after = refused.value.message.partition(denied_by(policy))
    assert found, refused.value.message
    return after


def put(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


OWNERS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]
SELECTOR = {"kubernetes.io/hostname": NODE}

PATCHES: list[tuple[str, str, list[Object], str]] = [
    ("nothing at all", "waits", [put("/metadata/annotations", {})], SPEC),
    ("another's gate", "two-gates", [LIFT], SPEC),
    ("both gates", "two-gates", [LIFT, LIFT], SPEC),
    ("all gates", "two-gates", [{"op": "remove", "path": "/spec/schedulingGates"}], SPEC),
    ("the image of one that waits", "waits", [put("/spec/containers/0/image", "evil")], SPEC),
    ("the image beside the gate", "waits", [LIFT, put("/spec/containers/0/image", "evil")], SPEC),
    ("the image of one that runs", "runs", [put("/spec/containers/0/image", "evil")], SPEC),
    ("the node of one that waits", "waits", [put("/spec/nodeSelector", SELECTOR)], SPEC),
    ("the node beside the gate", "waits", [LIFT, put("/spec/nodeSelector", SELECTOR)], SPEC),
    ("a toleration", "runs", [put("/spec/tolerations/-", {"key": "x", "operator": "Exists"})], SPEC),
    ("an end", "runs", [put("/spec/activeDeadlineSeconds", 1)], SPEC),
    ("an end beside the gate", "waits", [LIFT, put("/spec/activeDeadlineSeconds", 1)], SPEC),
    ("a label", "waits", [LIFT, put("/metadata/labels", {"a": "b"})], METADATA),
    ("a label of one that runs", "runs", [put("/metadata/labels", {"a": "b"})], METADATA),
    ("an annotation", "waits", [LIFT, put("/metadata/annotations", {"a": "b"})], METADATA),
    ("a finalizer", "waits", [LIFT, put("/metadata/finalizers", ["example.com/stay"])], METADATA),
    ("an owner", "waits", [LIFT, put("/metadata/ownerReferences", OWNERS)], METADATA),
    ("a phase", "waits/status", [put("/status/phase", "Succeeded")], STATUS),
    ("an address", "runs/status", [put("/status/podIP", "10.0.0.1")], STATUS),
    ("readiness", "runs/status", [put("/status/conditions/-", {"type": "Ready", "status": "False"})], STATUS),
    ("a condition of a name like ours", "waits/status",
     [put("/status/conditions/-", {**CONDITION, "type": "bitfusion.io/PoolUnit"})], STATUS),
    ("another's condition away", "runs/status", [{"op": "remove", "path": "/status/conditions/0"}], STATUS),
    ("all conditions away", "runs/status", [{"op": "remove", "path": "/status/conditions"}], STATUS),
    ("a condition of a pod that does not ask", "asks-nothing/status",
     [put("/status/conditions/-", CONDITION)], STATUS),
    ("a condition of a pod that asks for 0 units", "asks-for-none/status",
     [put("/status/conditions/-", CONDITION)], STATUS),
    ("a label by the status", "waits/status", [put("/metadata/labels", {"a": "b"})], METADATA),
    ("an annotation by the status", "waits/status", [put("/metadata/annotations", {"a": "b"})], METADATA),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "operations", "told"), [pytest.param(*row[1:], id=row[0]) for row in PATCHES]
)
def test_a_stolen_token_changes_nothing_else(
    thief: Thief, place: str, operations: list[Object], told: str
) -> None:
    path = f"{thief.pods}/{place}"
    assert words(ACCOUNT_POLICY, lambda: thief.client.patch(path, operations)) == ACCOUNT + told


@pytest.mark.parametrize("name", ["runs", "asks-nothing", "asks-for-none"])
def test_a_stolen_token_deletes_no_pod_that_runs_or_asks_for_nothing(thief: Thief, name: str) -> None:
    assert words(ACCOUNT_POLICY, lambda: thief.client.delete(f"{thief.pods}/{name}")) == ACCOUNT + DELETE


def test_a_stolen_token_deletes_no_collection(thief: Thief) -> None:
    with pytest.raises(Refused) as refused:
        thief.client.delete(thief.pods)
    assert refused.value.status == 403


def event(
    name: str = "x", kind: str = "Notebook", component: str = QUEUE, reason: str = "BitfusionWaitsForPool"
) -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": kind, "name": "mine", "apiVersion": "v1"},
        "reason": reason,
        "source": {"component": component},
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(event(kind="Node"), id="of a node"),
        pytest.param(event(component="kubelet"), id="of another"),
        pytest.param(event(reason="Killing"), id="of another reason"),
    ],
)
def test_a_stolen_token_writes_no_other_events(thief: Thief, body: Object) -> None:
    made = {**body, "involvedObject": {**body["involvedObject"], "namespace": thief.namespace}}
    assert words(ACCOUNT_POLICY, lambda: thief.client.create(thief.events, made)) == ACCOUNT + EVENTS


@pytest.mark.parametrize(
    "change", [{"message": "x"}, {"source": {"component": QUEUE}, "reason": "BitfusionLifted"}]
)
def test_a_stolen_token_changes_no_event_of_another(thief: Thief, change: Object) -> None:
    path = f"{thief.events}/theirs"
    if not thief.cluster.client.exists(path):
        body = event("theirs", "Pod", "kubelet", "Killing")
        body["involvedObject"]["namespace"] = thief.namespace
        thief.cluster.client.create(thief.events, body)
    assert words(ACCOUNT_POLICY, lambda: thief.client.merge(path, change)) == ACCOUNT + EVENTS


def test_a_stolen_token_takes_no_other_lease(thief: Thief) -> None:
    made = {"metadata": {"name": "x"}}
    assert words(ACCOUNT_POLICY, lambda: thief.client.create(thief.leases, made)) == ACCOUNT + LEASE


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param(lambda thief: thief.client.get("/api/v1/secrets"), id="secrets"),
        pytest.param(lambda thief: thief.client.get(f"{thief.pods}/waits"), id="one pod"),
        pytest.param(lambda thief: thief.client.create(thief.pods, asking_pod("new")), id="a pod"),
        pytest.param(lambda thief: thief.client.create(f"{thief.pods}/runs/eviction", {}), id="an eviction"),
        pytest.param(lambda thief: thief.client.patch(f"/api/v1/nodes/{NODE}", []), id="a node"),
        pytest.param(lambda thief: thief.client.get(NOTEBOOKS), id="all notebooks"),
        pytest.param(lambda thief: thief.client.merge(f"{NOTEBOOKS}/x", {}), id="a notebook's change"),
    ],
)
def test_rights_end_where_the_table_does(thief: Thief, request_of: Callable[[Thief], object]) -> None:
    with pytest.raises(Refused) as refused:
        request_of(thief)
    assert (refused.value.status, "is forbidden: User" in refused.value.message) == (403, True)


def test_all_that_the_queue_does_is_let_through(thief: Thief) -> None:
    client, pod = thief.client, thief.new_pod("served", OTHER, QUEUE_GATE)
    told = client.patch(f"{pod}/status", [put("/status/conditions/-", CONDITION)])
    (place,) = [
        place for place, each in enumerate(told["status"]["conditions"]) if each["type"] == QUEUE_CONDITION
    ]
    kept = {**CONDITION, "status": "True", "reason": "Lifted"}
    version = client.patch(
        f"{pod}/status", [{"op": "replace", "path": f"/status/conditions/{place}", "value": kept}]
    )["metadata"]["resourceVersion"]
    lifted = client.patch(
        pod,
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "test", "path": "/spec/schedulingGates/1/name", "value": QUEUE_GATE},
            {"op": "remove", "path": "/spec/schedulingGates/1"},
        ],
    )
    assert lifted["spec"]["schedulingGates"] == [{"name": OTHER}]
    only = thief.new_pod("only")
    assert "schedulingGates" not in client.patch(only, [LIFT])["spec"]
    for path in (pod, only):
        client.delete(path, {"preconditions": {"uid": thief.cluster.client.get(path)["metadata"]["uid"]}})
    body = event("ours")
    body["involvedObject"]["namespace"] = thief.namespace
    client.create(thief.events, body)
    client.merge(f"{thief.events}/ours", {"count": 2, "message": "still"})
    client.create(thief.leases, {"metadata": {"name": QUEUE}, "spec": {}})
    client.merge(f"{thief.leases}/{QUEUE}", {"spec": {"holderIdentity": "a"}})
    assert client.get("/api/v1/pods")["items"]
    assert client.get("/api/v1/nodes")["items"]


# Nobody goes around the queue.

NO_GATE = (
    "Pods that ask for units of the Bitfusion pool (bitfusion.io/gpu) must wait in its queue; this one has "
    "no scheduling gate bitfusion.io/queue. Request a size instead, such as bitfusion.io/gpu-50, where the "
    "injector serves; or add the gate to spec.schedulingGates and leave spec.nodeName empty."
)
TAKEN_AWAY = (
    "The scheduling gate bitfusion.io/queue is taken away by bitfusion-queue, when the units of the "
    "Bitfusion pool that this pod asks for are free. Leave it in spec.schedulingGates; the pod's condition "
    "bitfusion.io/PoolUnits says what it waits for."
)


@pytest.fixture
def tenant(thief: Thief) -> ApiClient:
    """Who may do what Kubeflow's contributors may do with pods in their namespace, and more."""
    cluster, namespace = thief.cluster, thief.namespace
    rights = (
        "create",
        "rolebinding",
        "tenant",
        "--clusterrole=admin",
        f"--serviceaccount={namespace}:default",
    )
    done = cluster.try_kubectl("-n", namespace, *rights)
    assert done.returncode == 0 or "already exists" in done.stderr, done.stderr
    user = f"system:serviceaccount:{namespace}:default"
    asked = {"namespace": namespace, "resource": "pods"}
    wait_until(
        lambda: all(may(cluster.client, user, verb=verb, **asked) for verb in ("create", "patch", "delete")),
        "it may write pods",
    )
    return cluster.client_as(cluster.service_account_token(namespace, "default"))


def with_init(made: Object) -> Object:
    spec = made["spec"]
    asking = {**spec["containers"][0], "name": "init"}
    return {
        **made,
        "spec": {**spec, "containers": [{"name": "nb", "image": "i"}], "initContainers": [asking]},
    }


def on_node(made: Object) -> Object:
    return {**made, "spec": {**made["spec"], "nodeName": NODE}}


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(asking_pod("new", ()), id="no gate"),
        pytest.param(asking_pod("new", (OTHER,)), id="another's gate"),
        pytest.param(with_init(asking_pod("new", ())), id="an init container asks"),
        pytest.param(on_node(asking_pod("new", ())), id="with a node"),
    ],
)
def test_no_pod_with_units_is_made_past_the_queue(thief: Thief, tenant: ApiClient, made: Object) -> None:
    assert words(GATE_POLICY, lambda: tenant.create(thief.pods, made)) == NO_GATE


def test_what_the_refusal_advises_is_let_in(thief: Thief, tenant: ApiClient) -> None:
    tenant.create(thief.pods, asking_pod("by-hand"))
    tenant.delete(f"{thief.pods}/by-hand")


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([LIFT], id="ours"),
        pytest.param([{"op": "remove", "path": "/spec/schedulingGates"}], id="all"),
        pytest.param([LIFT, put("/metadata/labels", {"a": "b"})], id="beside another change"),
    ],
)
@pytest.mark.parametrize("who", ["a tenant", "an administrator"])
def test_nobody_else_lifts_the_gate(
    thief: Thief, tenant: ApiClient, who: str, operations: list[Object]
) -> None:
    client = tenant if who == "a tenant" else thief.cluster.client
    assert words(GATE_POLICY, lambda: client.patch(f"{thief.pods}/waits", operations)) == TAKEN_AWAY


def no_units(name: str, amount: str) -> Object:
    """A container as a LimitRange with the default 0 leaves it."""
    return {"name": name, "image": "i", "resources": {"limits": {"bitfusion.io/gpu": amount}}}


def test_other_changes_of_a_pod_that_waits_are_its_owners(thief: Thief, tenant: ApiClient) -> None:
    path = thief.new_pod("theirs", OTHER, QUEUE_GATE)
    tenant.patch(path, [LIFT])  # the other gate
    tenant.merge(path, {"metadata": {"labels": {"a": "b"}}})
    tenant.delete(path)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "c", "image": "i"}]},
        {"containers": [{"name": "c", "image": "i", "resources": {}}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "d", "image": "i"}]},
        {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": OTHER}]},
        {"containers": [{"name": "c", "image": "i"}], "nodeName": NODE},
        {"containers": [no_units("c", "0")]},
        {"containers": [no_units("c", "0m")], "initContainers": [no_units("d", "0e3"), no_units("e", "0Ki")]},
        {"containers": [no_units("c", "0")], "nodeName": NODE},
    ],
)
def test_nobody_elses_pod_is_ever_judged(thief: Thief, tenant: ApiClient, spec: Object) -> None:
    path = f"{thief.pods}/unrelated"
    tenant.create(thief.pods, {"metadata": {"name": "unrelated"}, "spec": spec})
    tenant.merge(path, {"metadata": {"labels": {"a": "b"}}})
    if "schedulingGates" in spec:
        tenant.patch(path, [LIFT])
    tenant.delete(path, {"gracePeriodSeconds": 0})
    wait_until(lambda: not thief.cluster.client.exists(path), "the pod is gone", 20)


LIMIT_RANGE: Object = {
    "metadata": {"name": "units"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "max": {"bitfusion.io/gpu": "100"},
                "default": {"bitfusion.io/gpu": "0"},
                "defaultRequest": {"bitfusion.io/gpu": "0"},
            }
        ]
    },
}


def test_where_a_limit_range_gives_everybody_0_units_only_who_asks_for_some_waits(thief: Thief) -> None:
    cluster = thief.cluster
    base = f"/api/v1/namespaces/{cluster.new_namespace()}"
    cluster.client.create(f"{base}/limitranges", LIMIT_RANGE)
    plain = asking_pod("plain", (), units=0)
    made = cluster.client.create(f"{base}/pods", plain, dryRun="All")
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"bitfusion.io/gpu": "0"}
    assert words(GATE_POLICY, lambda: cluster.client.create(f"{base}/pods", asking_pod("x", ()))) == NO_GATE
    cluster.client.create(f"{base}/pods", asking_pod("waits"), dryRun="All")
    with pytest.raises(Refused, match=r"maximum bitfusion.io/gpu usage per Container is 100"):
        cluster.client.create(f"{base}/pods", asking_pod("large", units=101), dryRun="All")


def test_a_kubelets_own_pod_runs_in_any_case(thief: Thief) -> None:
    cluster = thief.cluster
    node = cluster.client.get(f"/api/v1/nodes/{NODE}")
    mirror = on_node(asking_pod("static-" + NODE, ()))
    mirror["apiVersion"], mirror["kind"] = "v1", "Pod"
    mirror["metadata"].update(
        namespace=thief.namespace,
        annotations={"kubernetes.io/config.mirror": "x"},
        ownerReferences=[
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": NODE,
                "uid": node["metadata"]["uid"],
                "controller": True,
            }
        ],
    )
    who = (f"--as=system:node:{NODE}", "--as-group=system:nodes", "--as-group=system:authenticated")
    cluster.kubectl("create", "-f", "-", *who, input=json.dumps(mirror))
    cluster.client.delete(f"{thief.pods}/static-{NODE}", {"gracePeriodSeconds": 0})
