"""No account of ours may read a Secret where it is not served, nor can it give itself the right to."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import NAMESPACES, Objects, build_own
from tests.support.waiting import wait_until

FOLDERS: tuple[tuple[list[str], list[str]], ...] = (
    (["overlays/kubeflow", "identity/kubeflow"], ["restrict-account", "queue", "profiles"]),
    (["device-plugin/kubeflow"], ["device-plugin-openshift"]),
    (["samples/monitoring/health-check"], []),
)
OWN = NAMESPACES["kubeflow"]
DEVICE_PLUGIN = "bitfusion-device-plugin"
APPLIED = {
    *("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SERVED = {"app.kubernetes.io/part-of": "kubeflow-profile"}


class Accounts:
    """Every ServiceAccount of the manifests, by its name: somebody with its token."""

    def __init__(self, cluster: Cluster, objects: Objects) -> None:
        self.cluster = cluster
        self.objects = objects
        found = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in accounts_of(objects)]
        self.clients = {
            name: cluster.client_as(cluster.service_account_token(namespace, name))
            for namespace, name in found
        }
        self.namespaces = {name: namespace for namespace, name in found}


def accounts_of(objects: Objects) -> Objects:
    return [each for each in objects if each["kind"] == "ServiceAccount"]


@pytest.fixture(scope="module")
def accounts(cluster: Cluster) -> Iterator[Accounts]:
    objects: Objects = []
    for resources, components in FOLDERS:
        objects += [each for each in build_own(cluster, resources, components) if each["kind"] in APPLIED]
    for each in objects:  # the health check's folder names no namespace
        if each["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            each["metadata"].setdefault("namespace", OWN)
        for subject in each.get("subjects", ()):
            subject.setdefault("namespace", OWN)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    for name in (OWN, DEVICE_PLUGIN):  # in namespaces of this test, which need not be waited for at the end
        moved = cluster.new_namespace(prefix="ours")
        text = text.replace(f'"namespace": "{name}"', f'"namespace": "{moved}"')
        text = text.replace(f":{name}:", f":{moved}:")
    objects = json.loads(text)["items"]
    with ExitStack() as stack:
        stack.callback(cluster.kubectl, "delete", "--ignore-not-found", "--wait=false", "-f", "-", input=text)
        cluster.kubectl("apply", "-f", "-", input=text)
        found = Accounts(cluster, objects)

        def in_force() -> bool:
            """The policies: each is compiled by now."""
            items = cluster.client.get(POLICIES)["items"]
            seen = {
                each["metadata"]["name"]: each.get("status", {}).get("observedGeneration") for each in items
            }
            ours = {
                each["metadata"]["name"] for each in objects if each["kind"] == "ValidatingAdmissionPolicy"
            }
            return all(seen.get(name) for name in ours) and not can_make_secret(found, "kube-system")

        wait_until(in_force, "the policies are in force", 30)
        yield found


def can_make_secret(accounts: Accounts, namespace: str) -> bool:
    body = {"metadata": {"name": "probe"}, "type": "Opaque"}
    try:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        accounts.clients["bitfusion-identity"].create(path, body, dryRun="All")
    except Refused:
        return False
    return True


@pytest.fixture(scope="module")
def elsewhere(cluster: Cluster) -> str:
    """A namespace that is not served, with a Secret of the very name, and one of an account."""
    namespace = cluster.new_namespace(prefix="elsewhere")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    cluster.client.create(path, {"metadata": {"name": "bitfusion-client"}, "data": {"x": "eA=="}})
    return namespace


def can_read(client: ApiClient, namespace: str, name: str = "") -> list[str]:
    """`kubectl auth can-i`: the verbs that would read Secrets there."""
    found = []
    for verb in ("get", "list", "watch", "patch", "delete", "deletecollection", "*"):
        asked = {"namespace": namespace, "verb": verb, "resource": "secrets", "name": name}
        answer = client.create(REVIEWS, {"spec": {"resourceAttributes": asked}})
        found += [verb] if answer["status"]["allowed"] else []
    return found


def test_the_manifests_have_these_accounts(accounts: Accounts) -> None:
    assert set(accounts.clients) == {
        *("bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity", "bitfusion-queue"),
        *("bitfusion-device-plugin", "bitfusion-health"),
    }


def test_no_role_of_ours_can_give_rights(accounts: Accounts) -> None:
    rules = [rule for each in accounts.objects for rule in each.get("rules", ())]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    groups = {group for rule in rules for group in rule["apiGroups"]}
    assert not verbs & {"*", "bind", "escalate", "impersonate"}
    # A role may be read: what belongs to it goes with it.
    given = {verb for rule in rules if RBAC in rule["apiGroups"] for verb in rule["verbs"]}
    assert given <= {"get"}
    assert not groups & {"*", "authentication.k8s.io", "certificates.k8s.io"}
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert not resources & {"*", "serviceaccounts", "serviceaccounts/token", "pods/exec"}


def test_no_account_can_read_secrets_where_it_is_not_served_also_after_it_used_every_right(
    accounts: Accounts, elsewhere: str
) -> None:
    cluster = accounts.cluster
    served = cluster.new_namespace(SERVED, "served")
    places = {served, elsewhere, "kube-system", "default"}
    for name, client in accounts.clients.items():
        for place in places:
            assert can_read(client, place) == [], (name, place)
            assert can_read(client, place, "bitfusion-client") == [], (name, place)
        assert can_read(client, accounts.namespaces[name]) == [], name
        got_through = [what for what, tried in attempts(accounts, name, elsewhere) if tried]
        assert got_through == [], name
        for place in places:
            assert can_read(client, place) == [], (name, place)
            assert can_read(client, place, "bitfusion-client") == [], (name, place)
        account = f"system:serviceaccount:{accounts.namespaces[name]}:{name}"
        said = cluster.try_kubectl(
            "auth", "can-i", "get", "secrets", "--namespace", elsewhere, "--as", account
        )
        print(f"kubectl auth can-i get secrets, {name}: {said.stdout.strip()}")
        assert said.stdout.strip() == "no"


def attempts(accounts: Accounts, name: str, elsewhere: str) -> Iterator[tuple[str, bool]]:
    """Ways to more rights; each with whether the API server let it happen."""
    client, own = accounts.clients[name], accounts.namespaces[name]
    me = [{"kind": "ServiceAccount", "name": name, "namespace": own}]
    rule = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    account = {"annotations": {"kubernetes.io/service-account.name": "default"}}

    def ref(kind: str, of: str) -> Object:
        return {"apiGroup": RBAC, "kind": kind, "name": of}

    def tries(method: str, path: str, body: Object | None = None) -> bool:
        try:
            client.request(method, path, body)
        except Refused as refused:
            if refused.status == 404 and method != "GET":
                raise AssertionError(f"{method} {path} is allowed: {refused}") from None
            return False
        return True

    for place in (elsewhere, own, "kube-system"):
        roles = f"/apis/{RBAC}/v1/namespaces/{place}"
        core = f"/api/v1/namespaces/{place}"
        for role in ("cluster-admin", "edit", "bitfusion-identity-profiles"):
            body: Object = {"metadata": {"name": "x"}, "subjects": me, "roleRef": ref("ClusterRole", role)}
            yield f"RoleBinding to {role} in {place}", tries("POST", f"{roles}/rolebindings", body)
        yield f"Role in {place}", tries("POST", f"{roles}/roles", {"metadata": {"name": "x"}, "rules": rule})
        token = f"{core}/serviceaccounts/default/token"
        yield f"token of an account in {place}", tries("POST", token, {"spec": {}})
        for kind in ("service-account-token", "dockercfg"):
            secret = {"metadata": {"name": "bitfusion-client", **account}, "type": f"kubernetes.io/{kind}"}
            yield f"Secret {kind} in {place}", tries("POST", f"{core}/secrets", secret)
        boot: Object = {
            "metadata": {"name": "bootstrap-token-abcdef"},
            "type": "bootstrap.kubernetes.io/token",
        }
        boot["stringData"] = {"token-id": "abcdef", "token-secret": "0123456789abcdef"}
        yield f"bootstrap token in {place}", tries("POST", f"{core}/secrets", boot)
        mounts = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "default"}
        yield f"pod in {place}", tries("POST", f"{core}/pods", {"metadata": {"name": "x"}, "spec": mounts})
    body = {"metadata": {"name": "x"}, "subjects": me, "roleRef": ref("ClusterRole", "cluster-admin")}
    yield "ClusterRoleBinding", tries("POST", f"/apis/{RBAC}/v1/clusterrolebindings", body)
    yield (
        "ClusterRole",
        tries("POST", f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": "x"}, "rules": rule}),
    )
    for role in {each["metadata"]["name"] for each in accounts.objects if each["kind"] == "ClusterRole"}:
        body = {"metadata": {"name": role}, "rules": rule}
        yield f"own ClusterRole {role}", tries("PUT", f"/apis/{RBAC}/v1/clusterroles/{role}", body)
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/bitfusion-identity-account"
        yield f"delete of {kind}", tries("DELETE", path)
    labels = {"metadata": {"name": elsewhere, "labels": SERVED}}
    yield "label of a namespace", tries("PUT", f"/api/v1/namespaces/{elsewhere}", labels)
    other = f"/api/v1/namespaces/{elsewhere}/secrets/bitfusion-client"
    theirs = base64.b64encode(b"y").decode()
    body = {"metadata": {"name": "bitfusion-client"}, "data": {"x": theirs}}
    yield "replace of somebody's Secret", tries("PUT", other, body)
    for query in ("", "?propagationPolicy=Foreground&dryRun=All"):
        yield f"delete of somebody's Secret {query}", tries("DELETE", other + query)
