"""The components for GPU pods, on a real API server: who reaches them, a hub's users, GPUs for no others.

What enforces a NetworkPolicy is a cluster's network, which the test cluster has not: its selectors are asked
of the API server, over pods as they are made.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from bitfusion_client.gpu_pods.settings import DEFAULT_PORT, DEFAULT_SETTINGS
from bitfusion_client.pod.pod_contract import ANNOTATION_STATE, LABEL_GPU_POD_OF
from bitfusion_pods.api.account import Account
from bitfusion_pods.command.making import _name
from bitfusion_pods.command.where import Where
from bitfusion_pods.places.kueue import GATE, QUEUE_LABEL
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.rights import may
from tests.manifests.built import MANIFESTS, build, build_own, of_kind, one
from tests.pods.pod.golden_pods import CASES, golden_pod
from tests.pods.pod.notebook_pods import notebook
from tests.support.waiting import wait_until

COMPONENTS = MANIFESTS / "components"
NETWORK, HUB, ONLY = "gpu-pods-network-policy", "gpu-pods-jupyterhub", "gpu-pods-only"
ACCOUNT = "bitfusion-notebook"
LONG = "jupyter-somebody-of-a-rather-large-department-example-org---1f0c2b3d"[:63]
POLICY, GATE_POLICY = "bitfusion-gpu-pods-only", "bitfusion-gpu-pods-gate"


def objects(component: str) -> list[Object]:
    """Those of a component's files."""
    folder = COMPONENTS / component
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [each for name in named for each in yaml.safe_load_all((folder / name).read_text())]


@pytest.mark.parametrize("component", [NETWORK, HUB, ONLY])
def test_it_adds_its_objects_to_an_overlay_and_changes_none(cluster: Cluster, component: str) -> None:
    with_it, plain = build_own(cluster, ["overlays/kubeflow"], [component]), build(cluster, "kubeflow")
    added = [(each["kind"], each["metadata"]["name"]) for each in with_it if each not in plain]
    assert sorted(added) == sorted((each["kind"], each["metadata"]["name"]) for each in objects(component))
    assert [each for each in plain if each not in with_it] == []


# -- who reaches a GPU pod ---------------------------------------------------------------------------------


def selected(cluster: Cluster, namespace: str, selector: Object) -> set[str]:
    """The names of the pods that a selector of labels finds, as the API server reads it."""
    exists = [each["key"] for each in selector.get("matchExpressions", [])]
    assert all(each["operator"] == "Exists" for each in selector.get("matchExpressions", []))
    terms = [*exists, *(f"{name}={value}" for name, value in selector.get("matchLabels", {}).items())]
    assert terms  # an empty one finds all
    found = cluster.client.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=",".join(terms))
    return {each["metadata"]["name"] for each in found["items"]}


def test_notebooks_reach_gpu_pods_at_the_agents_port_and_nothing_else_does(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    gpu_pod = golden_pod("whole")["metadata"]["labels"]
    pods = {
        "gpu-pod": gpu_pod,
        "notebook": notebook()["metadata"]["labels"],
        "workspace": {"notebooks.kubeflow.org/workspace-name": "ws-mine"},
        "hub-user": {"app": "jupyterhub", "component": "singleuser-server", "release": "hub"},
        "hub": {"app": "jupyterhub", "component": "hub", "release": "hub"},
        "other": {"app": "database"},
        "none": {},
    }
    for name, labels in pods.items():
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", body)
    (policy,) = objects(NETWORK)
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert selected(cluster, namespace, policy["spec"]["podSelector"]) == {"gpu-pod"}
    (rule,) = policy["spec"]["ingress"]
    assert all(set(peer) == {"podSelector"} for peer in rule["from"])  # of the same namespace
    reach = set().union(*(selected(cluster, namespace, peer["podSelector"]) for peer in rule["from"]))
    assert reach == {"notebook", "workspace", "hub-user"}
    assert rule["ports"] == [{"port": DEFAULT_PORT, "protocol": "TCP"}]


def test_the_network_policy_would_be_taken(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    (policy,) = objects(NETWORK)
    taken = cluster.client.create(path, policy, dryRun="All", fieldValidation="Strict")
    assert taken["spec"] == policy["spec"]
    wrong = copy.deepcopy(policy)
    wrong["spec"]["ingress"][0]["ports"][0]["port"] = 99999
    with pytest.raises(Refused, match="must be between 1 and 65535"):
        cluster.client.create(path, wrong, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize(
    ("address", "port", "reached"),
    [
        *(("169.254.169.254", 80, False), ("10.1.2.3", 8888, False), ("172.20.0.1", 80, False)),
        *(
            ("192.168.1.1", 5432, False),
            ("9.9.9.9", 80, True),
            ("10.96.0.1", 443, True),
            ("10.96.0.10", 53, True),
        ),
    ],
)
def test_a_hubs_gpu_pods_reach_what_its_servers_reach(address: str, port: int, reached: bool) -> None:
    """By default, with the values of the page."""
    (policy,) = of_kind(objects(HUB), "NetworkPolicy")
    spec = policy["spec"]
    assert (spec["policyTypes"], spec["podSelector"]) == (
        ["Egress"],
        objects(NETWORK)[0]["spec"]["podSelector"],
    )

    def lets(rule: Object) -> bool:
        blocks = [each["ipBlock"] for each in rule.get("to", [{"ipBlock": {"cidr": "0.0.0.0/0"}}])]
        inside = [
            [address_in(address, net) for net in (each["cidr"], *each.get("except", ()))] for each in blocks
        ]
        return port in [each["port"] for each in rule.get("ports", [{"port": port}])] and any(
            first and not any(others) for first, *others in inside
        )

    assert any(lets(rule) for rule in spec["egress"]) is reached


def address_in(address: str, network: str) -> bool:
    return ip_address(address) in ip_network(network)


# -- a hub's users -----------------------------------------------------------------------------------------


class Hub:
    """The namespace of users' servers: two users, each with the token of an own pod."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace()
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.secrets = f"/api/v1/namespaces/{self.namespace}/secrets"
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(HUB)})
        cluster.kubectl("apply", "-n", self.namespace, "-f", "-", input=text)
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        cluster.client.create(accounts, {"metadata": {"name": "hub"}})
        self.servers = {name: self._server(name) for name in ("jupyter-ada", "jupyter-ben", LONG)}
        self.ada, self.ben, self.long = (self._client(name) for name in self.servers)

    def _server(self, name: str) -> Object:
        metadata = {"name": name, "labels": {"component": "singleuser-server"}}
        spec = {"serviceAccountName": ACCOUNT, "containers": [{"name": "notebook", "image": "i"}]}
        return self.cluster.client.create(self.pods, {"metadata": metadata, "spec": spec})

    def _client(self, server: str) -> ApiClient:
        reference = {"kind": "Pod", "apiVersion": "v1", "name": server, "uid": self.uid(server)}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{ACCOUNT}/token"
        answer = self.cluster.client.create(path, {"spec": {"boundObjectRef": reference}})
        return self.cluster.client_as(answer["status"]["token"])

    def uid(self, server: str) -> str:
        return str(self.servers[server]["metadata"]["uid"])

    def gpu_pod(self, server: str, name: str = "gpu") -> Object:
        """As `bitfusion run` makes it in this server."""
        uid = self.uid(server)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": server, "uid": uid}
        home = {"claimName": server.replace("jupyter-", "claim-")}
        return {
            "metadata": {"name": name, "labels": {LABEL_GPU_POD_OF: uid}, "ownerReferences": [owner]},
            "spec": {
                "serviceAccountName": ACCOUNT,
                "containers": [{"name": "program", "image": "i"}],
                "volumes": [{"name": "home", "persistentVolumeClaim": home}],
            },
        }

    def secret(self, server: str, name: str = "", **fields: Any) -> Object:
        """As `bitfusion run` makes it there, for a pod of this name."""
        name = name or f"{server}-gpu-00ff1a"
        labels = {LABEL_GPU_POD_OF: self.uid(server)}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "1"}
        return {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, **fields}

    def refusal(self, client: ApiClient, body: Object, of: str = "account") -> str:
        """The policy's words; empty where the pod, or the Secret, would be taken."""
        try:
            client.create(self.pods if of == "account" else self.secrets, body, dryRun="All")
        except Refused as refused:
            return refused.message.partition(f"with binding '{ACCOUNT}-{of}' denied request: ")[2] or "?"
        return ""


@pytest.fixture(scope="module")
def hub(cluster: Cluster) -> Iterator[Hub]:
    found = Hub(cluster)
    other = found.gpu_pod("jupyter-ben")
    try:
        wait_until(lambda: found.refusal(found.ada, other), "the policy is in force", 30)
        others = found.secret("jupyter-ben")
        wait_until(lambda: found.refusal(found.ada, others, "secrets"), "that of Secrets is, too", 30)
        yield found
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", "--ignore-not-found", kind, f"{ACCOUNT}-account", f"{ACCOUNT}-secrets")


def test_a_hubs_users_have_the_rights_that_gpu_pods_need_and_no_more(hub: Hub) -> None:
    verbs = ("create", "get", "list", "watch", "delete", "update", "patch", "deletecollection")
    expected = {
        ("", "pods"): {"create", "get", "list", "watch", "patch", "delete"},
        ("", "persistentvolumeclaims"): {"get"},
        ("", "events"): {"list"},
        ("", "secrets"): {"create"},
        ("", "pods/exec"): set(),
        ("apps", "statefulsets"): set(),
    }
    client, place = hub.cluster.client, hub.namespace
    user = f"system:serviceaccount:{place}:{ACCOUNT}"
    for (group, resource), allowed in expected.items():
        asked = {"namespace": place, "group": group, "resource": resource}
        assert {verb for verb in verbs if may(client, user, verb=verb, **asked)} == allowed, resource


def test_a_user_makes_and_deletes_gpu_pods_of_the_own_server(hub: Hub) -> None:
    hub.ada.create(hub.pods, hub.gpu_pod("jupyter-ada", "gpu-of-ada"))
    with pytest.raises(Refused, match="may delete only its own GPU pods"):
        hub.ben.delete(f"{hub.pods}/gpu-of-ada")
    with pytest.raises(Refused, match="may delete only its own GPU pods"):
        hub.ada.delete(f"{hub.pods}/jupyter-ben")
    told = {"metadata": {"annotations": {ANNOTATION_STATE: "{}"}}}
    hub.ada.merge(f"{hub.pods}/gpu-of-ada", told)
    mine = {"metadata": {"labels": {LABEL_GPU_POD_OF: hub.uid("jupyter-ada")}}}
    for name, body in (("gpu-of-ada", told), ("jupyter-ada", mine), ("jupyter-ben", told)):
        with pytest.raises(Refused, match="may change only its own GPU pods"):
            hub.ben.merge(f"{hub.pods}/{name}", body)
    with pytest.raises(Refused, match="may change only its own GPU pods"):
        hub.ada.merge(f"{hub.pods}/jupyter-ben", mine)
    hub.ada.delete(f"{hub.pods}/gpu-of-ada")
    hub.cluster.client.create(hub.pods, {**hub.gpu_pod("jupyter-ada", "by-admin")})
    hub.cluster.client.delete(f"{hub.pods}/by-admin")  # others are not held to it


SECRET_ENV = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "k"}}}
FAULTS: list[tuple[str, list[str | int], Any, str]] = [
    ("no label", ["metadata", "labels"], {}, "may create only its own GPU pods"),
    ("no owner", ["metadata", "ownerReferences"], [], "only GPU pods that it owns"),
    (
        "the hub's account",
        ["spec", "serviceAccountName"],
        "hub",
        "use the service account bitfusion",
    ),
    (
        "a Secret",
        ["spec", "volumes", 0],
        {"name": "s", "secret": {"secretName": "hub"}},
        "may mount only the Secret",
    ),
    (
        "a Secret of another pod's",
        ["spec", "volumes", 0],
        {"name": "s", "secret": {"secretName": "jupyter-ben-gpu-00ff1a"}},
        "may mount only the Secret",
    ),
    (
        "a projected Secret",
        ["spec", "volumes", 0],
        {"name": "s", "projected": {"sources": [{"secret": {"name": "hub"}}]}},
        "may mount only the Secret",
    ),
    (
        "the node's files",
        ["spec", "volumes", 0],
        {"name": "h", "hostPath": {"path": "/"}},
        "no folder of",
    ),
    ("a variable of a Secret", ["spec", "containers", 0, "env"], [SECRET_ENV], "may mount only the Secret"),
    (
        "all variables of a Secret",
        ["spec", "initContainers"],
        [{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": "hub"}}]}],
        "may mount only the Secret",
    ),
    (
        "another user's claim",
        ["spec", "volumes", 0, "persistentVolumeClaim", "claimName"],
        "claim-ben",
        "must not mount another user's claim",
    ),
]


@pytest.mark.parametrize(
    ("where", "value", "words"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS]
)
def test_a_user_takes_nothing_of_others_into_a_gpu_pod(
    hub: Hub, where: list[str | int], value: Any, words: str
) -> None:
    body = hub.gpu_pod("jupyter-ada")
    assert hub.refusal(hub.ada, body) == ""
    place: Any = body
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    assert words in hub.refusal(hub.ada, body)


def mounting(hub: Hub, server: str, name: str) -> Object:
    """A GPU pod of this name that mounts the Secret of its name."""
    body = hub.gpu_pod(server, name)
    body["spec"]["volumes"].append({"name": "s", "secret": {"secretName": name}})
    return body


NAMES = [
    # a server, the name of its GPU pod, whether that is one as `bitfusion run` makes them
    ("jupyter-ada", "jupyter-ada-gpu-00ff1a", True),
    ("jupyter-ada", "hub", False),
    ("jupyter-ada", "jupyter-ada", False),
    ("jupyter-ada", "jupyter-ada-gpu-00ff1", False),
    ("jupyter-ada", "jupyter-ada-gpu-00ff1a0", False),
    ("jupyter-ada", "jupyter-ada-gpu-00ff1z", False),
    ("jupyter-ada", "jupyter-ada-gpu-gpu-00ff1a", False),  # of a user who is called ada-gpu
    ("jupyter-ada", "jupyter-ben-gpu-00ff1a", False),
    (LONG, f"{LONG[:50]}-gpu-00ff1a", False),
]


@pytest.mark.parametrize(("server", "name", "own"), NAMES)
def test_a_user_makes_and_mounts_the_secrets_of_own_gpu_pods_only(
    hub: Hub, server: str, name: str, own: bool
) -> None:
    client = hub._client(server)
    secret = hub.refusal(client, hub.secret(server, name), "secrets")
    pod = hub.refusal(client, mounting(hub, server, name))
    if own:
        assert (secret, pod) == ("", "")
    else:
        assert "may create Secrets only for its own GPU pods" in secret
        assert "may mount only the Secret of its own name" in pod


@pytest.mark.parametrize("server", ["jupyter-ada", LONG])
def test_the_names_that_the_command_gives_are_those_that_the_policies_take(hub: Hub, server: str) -> None:
    where = Where(Account("h", 1, ""), DEFAULT_SETTINGS, hub.namespace, server, "", "", None, "")
    name = _name(where, hub.uid(server))
    client = hub._client(server)
    assert hub.refusal(client, hub.secret(server, name), "secrets") == ""
    assert hub.refusal(client, mounting(hub, server, name)) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "kubernetes.io/service-account-token"},
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "1"}]}},
    ],
)
def test_a_secret_becomes_no_accounts_token_and_does_not_stay(hub: Hub, changed: Object) -> None:
    body = hub.secret("jupyter-ada")
    body["metadata"] |= changed.pop("metadata", {})
    body["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "hub"}
    assert "must be Opaque and owned by its GPU pod" in hub.refusal(hub.ada, {**body, **changed}, "secrets")


def test_a_token_of_no_pod_makes_no_secret(hub: Hub) -> None:
    client = hub.cluster.client_as(hub.cluster.service_account_token(hub.namespace, ACCOUNT))
    for name in ("jupyter-ada-gpu-00ff1a", "x-gpu-00ff1a"):
        words = hub.refusal(client, hub.secret("jupyter-ada", name), "secrets")
        assert "may create Secrets only for its own GPU pods" in words


def test_a_token_of_no_pod_makes_none(hub: Hub) -> None:
    client = hub.cluster.client_as(hub.cluster.service_account_token(hub.namespace, ACCOUNT))
    assert "may create only its own GPU pods" in hub.refusal(client, hub.gpu_pod("jupyter-ada"))


def test_data_for_all_is_mounted_by_all(hub: Hub) -> None:
    body = hub.gpu_pod("jupyter-ada")
    body["spec"]["volumes"].append({"name": "d", "persistentVolumeClaim": {"claimName": "datasets"}})
    assert hub.refusal(hub.ada, body) == ""


# -- GPUs for GPU pods and queues only ---------------------------------------------------------------------


class Profile:
    """A profile's namespace, with the policies in force as *Deny*, and a namespace of another kind."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace({"app.kubernetes.io/part-of": "kubeflow-profile"})
        self.other = cluster.new_namespace()

    def refusal(self, body: Object, namespace: str = "") -> str:
        try:
            self.cluster.client.create(
                f"/api/v1/namespaces/{namespace or self.namespace}/pods", body, dryRun="All"
            )
        except Refused as refused:
            words = refused.message.partition(f"with binding '{POLICY}' denied request: ")[2]
            return words or f"not by the policy: {refused.message}"
        return ""


def apply(cluster: Cluster, actions: list[str]) -> None:
    given = objects(ONLY)
    for binding in of_kind(given, "ValidatingAdmissionPolicyBinding"):
        binding["spec"]["validationActions"] = actions
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": given})
    cluster.kubectl("apply", "-f", "-", input=text)


def asks(resources: Object | None = None, name: str = "asks", **more: Any) -> Object:
    limits = {"limits": resources if resources is not None else {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"name": name, "labels": {}, "annotations": {}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}], **more},
    }


@pytest.fixture(scope="module")
def profile(cluster: Cluster) -> Iterator[Profile]:
    found = Profile(cluster)
    # before the policies are there
    cluster.client.create(f"/api/v1/namespaces/{found.namespace}/pods", asks(name="before"))
    try:
        apply(cluster, ["Deny"])
        wait_until(lambda: found.refusal(asks()), "the policies are in force", 30)
        yield found
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", "--ignore-not-found", kind, POLICY, GATE_POLICY)


SPELLINGS: dict[str, Object] = {
    "whole": asks(),
    "shared": asks({"nvidia.com/gpu.shared": "1"}),
    "MIG": asks({"nvidia.com/mig-1g.5gb": "1"}),
    "HAMi": asks({"nvidia.com/gpumem": "2000"}),
    "AMD": asks({"amd.com/gpu": "1"}),
    "Intel": asks({"gpu.intel.com/i915": "1"}),
    "Volcano": asks({"volcano.sh/vgpu-number": "1"}),
    "init container": asks({}, initContainers=[{**asks()["spec"]["containers"][0], "name": "i"}]),
    "claim": asks({}, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]),
    "KAI's share": {**asks({}), "metadata": {"name": "k", "annotations": {"gpu-fraction": "0.5"}}},
    "KAI's memory": {**asks({}), "metadata": {"name": "k", "annotations": {"gpu-memory": "2000"}}},
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_gpu_that_is_neither_a_gpu_pods_nor_queued_is_refused(profile: Profile, spelling: str) -> None:
    body = copy.deepcopy(SPELLINGS[spelling])
    assert profile.refusal(body).startswith("In this cluster GPUs are for cells of the Bitfusion kernel")
    assert profile.refusal(body, profile.other) == ""  # no profile
    body["metadata"]["labels"] = {QUEUE_LABEL: "team"}
    assert profile.refusal(body) == ""
    body["metadata"]["labels"] = {QUEUE_LABEL: ""}
    assert profile.refusal(body) != ""


@pytest.mark.parametrize("limits", [{}, {"cpu": "1"}, {"nvidia.com/gpu": "0"}, {"bitfusion.io/gpu": "50"}])
def test_who_asks_for_no_gpu_is_let_pass(profile: Profile, limits: Object) -> None:
    assert profile.refusal(asks(limits)) == ""


@pytest.mark.parametrize("case", CASES)
def test_every_gpu_pod_is_let_pass(profile: Profile, case: str) -> None:
    pod = golden_pod(case)
    pod["metadata"]["namespace"] = profile.namespace
    pod["spec"].pop("serviceAccountName", None)
    pod["spec"].pop("priorityClassName", None)
    assert profile.refusal(pod) == ""


def test_the_label_alone_makes_no_gpu_pod(profile: Profile) -> None:
    body = asks()
    body["metadata"]["labels"] = {LABEL_GPU_POD_OF: "1"}
    assert profile.refusal(body) != ""  # it would not end with its notebook
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "2"}
    body["metadata"]["ownerReferences"] = [owner]
    assert profile.refusal(body) != ""
    body["metadata"]["ownerReferences"] = [{**owner, "uid": "1"}]
    assert profile.refusal(body) == ""


def test_what_was_there_before_may_be_changed_but_not_to_ask_for_more(profile: Profile) -> None:
    path = f"/api/v1/namespaces/{profile.namespace}/pods/before"
    client = profile.cluster.client
    client.merge(path, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Refused, match=POLICY):
        client.merge(path, {"metadata": {"annotations": {"gpu-fraction": "0.5"}}})


def test_a_pod_does_not_come_to_a_gpu_by_a_resize(profile: Profile) -> None:
    """The API server itself refuses this only for a pod that has a node."""
    pods = f"/api/v1/namespaces/{profile.namespace}/pods"
    client = profile.cluster.client
    client.create(pods, asks({}, name="plain"))
    one_gpu = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    larger = {"spec": {"containers": [{"name": "c", "image": "i", "resources": one_gpu}]}}
    with pytest.raises(Refused, match=POLICY):
        client.request("PATCH", f"{pods}/plain/resize", larger, "application/strategic-merge-patch+json")


def test_a_queued_pod_cannot_leave_the_queue(profile: Profile) -> None:
    body = asks(name="queued", schedulingGates=[{"name": GATE}])
    body["metadata"]["labels"] = {QUEUE_LABEL: "team"}
    client, pods = profile.cluster.client, f"/api/v1/namespaces/{profile.namespace}/pods"
    client.create(pods, body)
    with pytest.raises(Refused, match=POLICY):
        client.merge(f"{pods}/queued", {"metadata": {"labels": {QUEUE_LABEL: None}}})
    lift = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    with pytest.raises(Refused, match="Only Kueue may remove the scheduling gate"):
        client.patch(f"{pods}/queued", lift)
    groups = ("--as-group=system:serviceaccounts:kueue-system", "--as-group=system:masters")
    kueue = ("--as=system:serviceaccount:kueue-system:kueue-controller-manager", *groups)
    patch = ("patch", "-n", profile.namespace, "pod", "queued", "--type=json", "-p", json.dumps(lift))
    profile.cluster.kubectl(*patch, *kueue)
    assert "schedulingGates" not in client.get(f"{pods}/queued")["spec"]


def test_as_it_is_shipped_it_warns_and_lets_pass(profile: Profile) -> None:
    bindings = of_kind(objects(ONLY), "ValidatingAdmissionPolicyBinding")
    assert [each["spec"]["validationActions"] for each in bindings] == [["Warn", "Audit"]] * 2
    client, path = profile.cluster.client, f"/api/v1/namespaces/{profile.namespace}/pods"
    apply(profile.cluster, ["Warn", "Audit"])
    try:
        wait_until(lambda: profile.refusal(asks()) == "", "it warns only", 30)
        client.warnings.clear()
        client.create(path, asks(), dryRun="All")
        assert any("This pod requests a GPU and is neither." in warning for warning in client.warnings)
    finally:
        apply(profile.cluster, ["Deny"])
        wait_until(lambda: profile.refusal(asks()), "it refuses again", 30)


def test_the_components_say_to_whom_they_belong() -> None:
    for component in (NETWORK, HUB, ONLY):
        for each in objects(component):
            assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
    role = one(objects(HUB), "Role", ACCOUNT)
    assert "*" not in str(role["rules"])
