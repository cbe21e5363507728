"""What somebody with the controller's token can write: what the controller writes, and nothing else.

The component `restrict-account` is in force beside overlay *kubeflow*; every request is sent with the
account's own token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from bitfusion_cluster.api.events import WARNING, Said, about, event_object
from bitfusion_cluster.notebooks.notebook_record import notebook_record
from bitfusion_cluster.webhooks.self_check import LABEL, UNREACHABLE, WEBHOOK
from notebook_controller_patch.reconcile.events import event_body, pod_remade
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import NAME, WEBHOOK_PATH, our_controller
from tests.manifests.test_webhook_scope import stateful_set
from tests.support.waiting import wait_until

POLICY = "bitfusion-controller-account"
DENIED = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied"
ACCOUNT = "The Bitfusion controller's account may "
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kubeflow/leases/{NAME}"
TEMPLATE = "/spec/template/metadata/annotations"


@dataclass
class Thief:
    """Somebody with the controller's token, and what is there to be written."""

    cluster: Cluster
    client: ApiClient
    room: Room

    def path(self, place: str) -> str:
        """``statefulsets/mine`` in the user's namespace, ``kube-system/pods/x`` in another one."""
        *namespace, resource, name = place.rsplit("/", 2)
        prefix = {
            "statefulsets": "/apis/apps/v1",
            "notebooks": "/apis/kubeflow.org/v1",
            "leases": "/apis/coordination.k8s.io/v1",
        }.get(resource, "/api/v1")
        where = namespace[0] if namespace else self.room.namespace
        return f"{prefix}/namespaces/{where}/{resource}{'/' if name else ''}{name}"


@pytest.fixture(scope="module")
def thief(cluster: Cluster) -> Iterator[Thief]:
    with ExitStack() as around:
        ours = around.enter_context(our_controller(cluster, start=False))
        room = Room(cluster)
        notebook = room.create("mine")
        container = {"name": "mine", "image": "i"}
        running = room.create("runs")
        around.enter_context(
            cluster.node_stub(
                room.namespace, schedulable=lambda pod: pod["metadata"]["name"].startswith("runs")
            )
        )
        for owner in (notebook, running):
            name = owner["metadata"]["name"]
            body = stateful_set(name, {"notebook-name": name}, owner)
            body["spec"]["replicas"] = 1
            body["spec"]["template"]["metadata"]["annotations"] = {"bitfusion-client/os": "old"}
            cluster.client.create(room.stateful_sets, body)
        for namespace in (room.namespace, "kube-system"):
            path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
            cluster.client.create(path, stateful_set("database", {"app": "database"}))
            if namespace == "kube-system":
                around.callback(cluster.client.delete, f"{path}/database")
        pods: Mapping[str, Object] = {
            "bare": {"labels": {}},
            "free-0": {"labels": {"notebook-name": "free"}},
            "other-0": {
                "labels": {"notebook-name": "other"},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "mine",
                     "uid": room.stateful_set("mine")["metadata"]["uid"]},
                ],
            },
        }  # fmt: skip
        for name, metadata in pods.items():
            body = {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}
            cluster.client.create(room.pods, body)
        room.wait_running("runs")
        wait_until(lambda: room.pod("mine"), "the pod that waits", 20)
        token = cluster.service_account_token(ours.namespace, NAME)
        found = Thief(cluster, cluster.client_as(token, "thief"), room)

        def in_force() -> bool:
            try:
                found.client.patch(found.path("statefulsets/database"), [], dryRun="All")
                found.client.patch(found.path("statefulsets/database"), [_replicas(3)], dryRun="All")
            except Refused as refused:
                return DENIED in refused.message
            return False

        wait_until(in_force, "the policy is in force", 30)
        yield found


def _replicas(number: int) -> Object:
    return {"op": "add", "path": "/spec/replicas", "value": number}


def put(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


POD = "/spec/template/spec"
INIT = {"name": "e", "image": "evil"}
HOST_PATH = {"name": "host", "hostPath": {"path": "/"}}
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "x", "uid": "1", "controller": True}
SYSTEM = "kube-system/statefulsets"
OTHERS = "change only StatefulSets of Notebooks; none of this one's owners is a Notebook."
SPEC = (
    "change nothing in a StatefulSet's spec except the template's annotations auto-management/…, "
    "bitfusion-client/…, bitfusion.io/request, bitfusion.io/path and bitfusion.io/gpu-image."
)
METADATA = "change only one thing in a StatefulSet's metadata: the annotation bitfusion.io/retry."
PODS = (
    "delete only pods of notebooks: those with the label notebook-name that are the first pod of the "
    "StatefulSet that owns them."
)
BOUND = "delete only pods that have no node yet; this one has a node."
NOTEBOOK = "change only a Notebook's annotations and one label."
NOTEBOOK_KEYS = (
    "change, of a Notebook's labels, only bitfusion.io/requested, and of its annotations, only "
    "auto-management/…, bitfusion-client/… and bitfusion.io/… except bitfusion.io/request, "
    "bitfusion.io/path and bitfusion.io/gpu-image."
)
EVENTS = (
    "write Events only about Notebooks, quotas and its own Service, in its own name and with a reason that "
    "begins with Bitfusion."
)
SECRETS = f"write only the Secret {NAME}-ca, of type kubernetes.io/tls."

PATCHES: list[tuple[str, str, Object, str]] = [
    ("another's template", "statefulsets/database", put(TEMPLATE, {"bitfusion-client/os": "x"}), OTHERS),
    ("another's image", "statefulsets/database", put(f"{POD}/containers/0/image", "evil"), OTHERS),
    ("another's owner", "statefulsets/database", put("/metadata/ownerReferences", [OWNER]), OTHERS),
    ("the system's image", f"{SYSTEM}/database", put(f"{POD}/containers/0/image", "evil"), OTHERS),
    ("the system's size", f"{SYSTEM}/database", _replicas(3), OTHERS),
    ("image", "statefulsets/mine", put(f"{POD}/containers/0/image", "evil"), SPEC),
    ("command", "statefulsets/mine", put(f"{POD}/containers/0/command", ["sh", "-c", "evil"]), SPEC),
    ("environment", "statefulsets/mine", put(f"{POD}/containers/0/env", [{"name": "A"}]), SPEC),
    ("a container", "statefulsets/mine", put(f"{POD}/containers/-", {"name": "e", "image": "evil"}), SPEC),
    ("init container", "statefulsets/mine", put(f"{POD}/initContainers", [INIT]), SPEC),
    ("account", "statefulsets/mine", put(f"{POD}/serviceAccountName", "default-editor"), SPEC),
    ("the host's processes", "statefulsets/mine", put(f"{POD}/hostPID", True), SPEC),
    ("the host's network", "statefulsets/mine", put(f"{POD}/hostNetwork", True), SPEC),
    ("the host's files", "statefulsets/mine", put(f"{POD}/volumes", [HOST_PATH]), SPEC),
    ("a node", "statefulsets/mine", put(f"{POD}/nodeName", "control-plane"), SPEC),
    ("stop", "statefulsets/runs", _replicas(0), SPEC),
    ("update strategy", "statefulsets/mine", put("/spec/updateStrategy", {"type": "OnDelete"}), SPEC),
    ("ready time", "statefulsets/mine", put("/spec/minReadySeconds", 1000), SPEC),
    ("the template's labels", "statefulsets/mine", put("/spec/template/metadata/labels/evil", "x"), SPEC),
    ("foreign annotation", "statefulsets/mine", put(f"{TEMPLATE}/sidecar.istio.io~1inject", "false"), SPEC),
    ("label", "statefulsets/mine", put("/metadata/labels", {"evil": "x"}), METADATA),
    ("annotation", "statefulsets/mine", put("/metadata/annotations", {"evil": "x"}), METADATA),
    ("finalizer", "statefulsets/mine", put("/metadata/finalizers", ["example.com/stay"]), METADATA),
    ("no owner", "statefulsets/mine", {"op": "remove", "path": "/metadata/ownerReferences"}, METADATA),
    ("a notebook's image", "notebooks/mine", put(f"{POD}/containers/0/image", "evil"), NOTEBOOK),
    ("a notebook's account", "notebooks/mine", put(f"{POD}/serviceAccountName", "another"), NOTEBOOK),
    ("a notebook's finalizer", "notebooks/mine", put("/metadata/finalizers", ["example.com/x"]), NOTEBOOK),
    ("a notebook's stop", "notebooks/mine", put("/metadata/annotations/kubeflow-resource-stopped", "t"),
     NOTEBOOK_KEYS),
    ("a notebook's size", "notebooks/mine", put("/metadata/annotations/bitfusion.io~1request", "-n 9"),
     NOTEBOOK_KEYS),
    ("a notebook's path", "notebooks/mine", put("/metadata/annotations/bitfusion.io~1path", "none"),
     NOTEBOOK_KEYS),
    ("a notebook left alone", "notebooks/mine", put("/metadata/labels/bitfusion.io~1admission", "ignore"),
     NOTEBOOK_KEYS),
]  # fmt: skip


def cases(table: list[Any]) -> Any:
    return [pytest.param(*row[1:], id=row[0]) for row in table]


def refusal(error: pytest.ExceptionInfo[Refused]) -> str:
    """The policy's own words; it must be the policy that refused."""
    before, _, words = error.value.message.partition(" denied request: ")
    assert f"{before} denied".endswith(DENIED), error.value.message
    return words


@pytest.mark.parametrize(("place", "operation", "words"), cases(PATCHES))
def test_a_stolen_token_changes_nothing_else(thief: Thief, place: str, operation: Object, words: str) -> None:
    with pytest.raises(Refused) as refused:
        thief.client.patch(thief.path(place), [operation])
    assert refusal(refused) == ACCOUNT + words


@pytest.mark.parametrize(
    ("place", "words"),
    [
        pytest.param("pods/bare", PODS, id="no notebook's"),
        pytest.param("pods/free-0", PODS, id="label alone"),
        pytest.param("pods/other-0", PODS, id="another name's"),
        pytest.param("pods/runs-0", BOUND, id="a running notebook's"),
    ],
)
def test_a_stolen_token_deletes_no_other_pod(thief: Thief, place: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        thief.client.delete(thief.path(place))
    assert refusal(refused) == ACCOUNT + words


def _event(kind: str = "Notebook", component: str = NAME, reason: str = "BitfusionPodRemade") -> Object:
    return {
        "metadata": {"name": "x"},
        "involvedObject": {"kind": kind, "name": "mine", "apiVersion": "v1"},
        "reason": reason,
        "source": {"component": component},
    }


def _secret(name: str, kind: str, **metadata: Any) -> Object:
    data = {"tls.crt": "", "tls.key": ""}
    return {"metadata": {"name": name, **metadata}, "type": kind, "data": data}


TOKEN = {"kubernetes.io/service-account.name": "default"}


@pytest.mark.parametrize(
    ("place", "body", "words"),
    [
        pytest.param("events/", _event(kind="Pod"), EVENTS, id="event of a pod"),
        pytest.param("events/", _event(kind="Service"), EVENTS, id="event of a user's Service"),
        pytest.param("events/", _event(component="kubelet"), EVENTS, id="event of another"),
        pytest.param("events/", _event(reason="Killing"), EVENTS, id="event of another reason"),
        pytest.param(
            "kubeflow/leases/", {"metadata": {"name": "x"}}, f"write only the Lease {NAME}.", id="lease"
        ),
        pytest.param("kubeflow/secrets/", _secret("x", "kubernetes.io/tls"), SECRETS, id="secret"),
        pytest.param("kubeflow/secrets/", _secret(f"{NAME}-ca", "Opaque"), SECRETS, id="secret of a type"),
        pytest.param(
            "kubeflow/secrets/",
            _secret(f"{NAME}-ca", "kubernetes.io/service-account-token", annotations=TOKEN),
            SECRETS,
            id="token of an account",
        ),
    ],
)
def test_a_stolen_token_makes_nothing_else(thief: Thief, place: str, body: Object, words: str) -> None:
    if "involvedObject" in body:
        body = {**body, "involvedObject": {**body["involvedObject"], "namespace": thief.room.namespace}}
    with pytest.raises(Refused) as refused:
        thief.client.create(thief.path(place), body)
    assert refusal(refused) == ACCOUNT + words


def test_all_that_the_controller_needs_is_let_through(thief: Thief) -> None:
    client, room = thief.client, thief.room
    path = thief.path("statefulsets/mine")
    client.patch(path, [put(f"{TEMPLATE}/bitfusion-client~1version", "450")])
    client.patch(path, [put(TEMPLATE, {"auto-management/bitfusion": "injection"})])
    client.patch(path, [{"op": "remove", "path": TEMPLATE}])
    client.patch(path, [put(TEMPLATE, {"bitfusion.io/request": "-n 1", "bitfusion-client/filter": "a=b"})])
    client.patch(
        path, [put(TEMPLATE, {"bitfusion.io/path": "none", "bitfusion.io/gpu-image": "team/cuda:1"})]
    )
    client.patch(path, [put("/metadata/annotations", {"bitfusion.io/retry": "1"})])
    notebook = thief.path("notebooks/mine")
    client.patch(notebook, [put("/metadata/annotations/bitfusion.io~1pending", "1 GPU")])
    client.patch(notebook, [put("/metadata/annotations/bitfusion-client~1os", "ubuntu20")])
    client.patch(notebook, [put("/metadata/labels/bitfusion.io~1requested", "true")])
    client.patch(notebook, [{"op": "remove", "path": "/metadata/annotations/bitfusion.io~1pending"}])
    record = notebook_record(client.get(notebook))
    assert record is not None
    client.create(thief.path("events/"), event_body(record, pod_remade(), "tests"))
    told = _event(kind="ResourceQuota", reason="BitfusionQuotaKey")
    told["involvedObject"]["namespace"] = room.namespace
    client.create(thief.path("events/"), told)
    old = room.running_pod("mine")["metadata"]["uid"]
    client.delete(thief.path("pods/mine-0"))
    wait_until(lambda: (room.pod("mine") or old) != old, "the pod is gone", 20)
    client.create(thief.path("kubeflow/leases/"), {"metadata": {"name": NAME}, "spec": {}})
    # The self-check, which stores nothing; here nobody answers it.
    check: Object = {"metadata": {"name": f"{NAME}-self-check"}, "spec": {}}
    client.create(thief.path("kubeflow/leases/"), check, dryRun="All")
    check["metadata"]["labels"] = {LABEL: NAME}
    with pytest.raises(Refused, match=f'failed calling webhook "{WEBHOOK}"'):
        client.create(thief.path("kubeflow/leases/"), check, dryRun="All")
    service = about("v1", "Service", "kubeflow", NAME, "")
    said = Said(WARNING, UNREACHABLE, "It is not reached.")
    client.create(thief.path("kubeflow/events/"), event_object(service, said, NAME, "tests"))
    client.patch(LEASE, [put("/spec/holderIdentity", "thief")])
    client.create(thief.path("kubeflow/secrets/"), _secret(f"{NAME}-ca", "kubernetes.io/tls"))
    client.patch(thief.path(f"kubeflow/secrets/{NAME}-ca"), [put("/data/previous.crt", "eA==")])


def test_others_are_not_held_to_it(thief: Thief) -> None:
    thief.cluster.client.patch(thief.path("statefulsets/database"), [_replicas(0)])
    thief.cluster.client.delete(thief.path("pods/bare"))


def test_what_remains_without_cert_manager_is_the_webhook_configuration(thief: Thief) -> None:
    # The API server asks no policy about these objects; the guide says so.
    changed = thief.client.patch(WEBHOOK_PATH, [put("/webhooks/0/timeoutSeconds", 4)])
    assert changed["webhooks"][0]["timeoutSeconds"] == 4
