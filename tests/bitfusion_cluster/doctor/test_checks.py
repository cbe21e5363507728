"""Each check by a table: what is in the cluster, what is found, and words of what to do."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bitfusion_cluster.api.errors import Forbidden, NoAnswer, ServerError
from bitfusion_cluster.certificates.authority import new_authority
from bitfusion_cluster.doctor import places
from bitfusion_cluster.doctor.check_features import check_features
from bitfusion_cluster.doctor.check_gpus import check_engine, check_gpus
from bitfusion_cluster.doctor.check_identity import TOLD, check_identity
from bitfusion_cluster.doctor.check_namespaces import check_accounts, check_namespaces, check_notebooks
from bitfusion_cluster.doctor.check_policies import check_policies
from bitfusion_cluster.doctor.check_programs import check_programs
from bitfusion_cluster.doctor.check_quotas import check_quotas
from bitfusion_cluster.doctor.check_server import check_kubeflow, check_server
from bitfusion_cluster.doctor.check_webhooks import check_webhooks
from bitfusion_cluster.doctor.checks import Check, findings, found_namespace
from bitfusion_cluster.doctor.finding import FAIL, OK, WARN, Finding
from bitfusion_cluster.doctor.seen import Seen
from tests.bitfusion_cluster.doctor.objects import OURS, World, named, node, states

DEPLOYMENTS = places.deployments("kubeflow")
GPU = {"nvidia.com/gpu": "2"}
MAIN = {"template": {"spec": {"containers": [{"image": "registry.example.com/a:1"}]}}}
DAY = timedelta(days=1)


def only(
    check: Callable[[Seen], Iterable[Finding]], world: World, state: str, seen: str, todo: str = ""
) -> Finding:
    """The one finding of a check in that state."""
    found = [each for each in check(world.seen()) if each.state == state]
    assert len(found) == 1, found
    assert re.search(seen, found[0].seen), found
    assert todo in found[0].todo
    assert bool(found[0].todo) == (state != OK)
    return found[0]


@pytest.mark.parametrize(
    ("minor", "state", "seen"),
    [
        ("26", FAIL, "v1.26.1 is too old"),
        ("27", OK, "Kubernetes v1.27.1$"),
        ("36+", OK, "v1.36+.1$"),
        ("37", OK, "newer than 1.36"),
        ("", WARN, "of a version"),
    ],
)
def test_the_server(minor: str, state: str, seen: str) -> None:
    answer = {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.1" if minor else ""}
    only(check_server, World({"/version": answer}), state, re.escape(seen).replace(r"\$", "$"))


@pytest.mark.parametrize(
    ("kinds", "image", "installed", "state", "seen"),
    [
        (
            ["notebooks", "profiles"],
            "x/jupyter-web-app:v1.9.1",
            True,
            OK,
            "Notebooks and Profiles; its form is v1.9.1",
        ),
        (["notebooks"], "x:5000/form@sha256:1", True, OK, "^Notebooks, no Profiles$"),
        (["notebooks", "profiles"], "form:v1.3.0", True, WARN, "v1.3.0"),
        ([], "", True, FAIL, "knows no Notebooks"),
        ([], "", False, OK, "none: pods are served"),
    ],
)
def test_kubeflow(kinds: list[str], image: str, installed: bool, state: str, seen: str) -> None:
    world = World(
        {places.KUBEFLOW_GROUP: {"resources": [{"name": kind} for kind in kinds]}} if kinds else None
    )
    if image:
        form = {"template": {"spec": {"containers": [{"image": image}]}}}
        world.paths[f"{DEPLOYMENTS}/jupyter-web-app-deployment"] = {"spec": form}
    if installed:
        world.paths[f"{DEPLOYMENTS}/{places.CONTROLLER}"] = {}
    only(check_kubeflow, world, state, seen)


def program(ready: int, wanted: int = 2, name: str = places.INJECTOR, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": name}}
    spec = {**MAIN, "replicas": wanted, "selector": selector}
    return named(name, labels=OURS, spec=spec, status={"readyReplicas": ready}, **more)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    status = {"containerStatuses": [{"ready": False, "state": state}]}
    return named("p", labels={"app": places.INJECTOR}, status=status)


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


@pytest.mark.parametrize(
    ("data", "pods", "state", "seen", "todo"),
    [
        (program(2), [], OK, "2 of 2 ready, registry.example.com/a:1", ""),
        (
            program(0),
            [waiting("ImagePullBackOff")],
            FAIL,
            "ImagePullBackOff registry.example.com/a:1",
            "make images",
        ),
        (program(1), [waiting("ErrImagePull")], WARN, "1 of 2 ready", "images.lock.yaml"),
        (
            program(0),
            [waiting("ContainerCreating")],
            FAIL,
            "0 of 2 ready: ContainerCreating",
            "describe pods",
        ),
        (
            program(0),
            [waiting("CrashLoopBackOff", "back-off")],
            FAIL,
            r"CrashLoopBackOff \(back-off\)",
            "logs",
        ),
        (program(0), [], FAIL, "0 of 2 ready$", "no pod is created"),
        (program(0, 0), [], FAIL, "runs nowhere", "scale deployment"),
        (
            program(0),
            [named("p", labels={"app": places.INJECTOR}, status={"conditions": [UNSCHEDULABLE]})],
            FAIL,
            "Unschedulable",
            "0/3 nodes",
        ),
    ],
)
def test_programs(data: dict[str, Any], pods: list[Any], state: str, seen: str, todo: str) -> None:
    world = World().put(DEPLOYMENTS, data, named("of-others")).put(places.pods("kubeflow"), *pods)
    assert only(check_programs, world, state, seen, todo).check == "injector"


def test_what_is_not_installed_and_what_is_half_upgraded() -> None:
    only(check_programs, World(), FAIL, "not installed in namespace kubeflow", "helm install")
    images = ("a/notebook-controller:1", "a/notebook-controller:2")
    both = [program(2), program(2, name=places.CONTROLLER)]
    for each, image in zip(both, images, strict=True):
        each["spec"] = {**each["spec"], "template": {"spec": {"containers": [{"image": image}]}}}
    only(check_programs, World().put(DEPLOYMENTS, *both), WARN, "2 different images", "ended halfway")


def test_an_upgrade_that_hangs_is_seen_behind_the_older_pods_that_are_ready() -> None:
    stuck = program(2)
    stuck["status"]["updatedReplicas"] = 1
    world = World().put(DEPLOYMENTS, stuck).put(places.pods("kubeflow"), waiting("ImagePullBackOff"))
    seen = r"2 of 2 ready, 1 of them updated: ImagePullBackOff registry.example.com/a:1"
    only(check_programs, world, WARN, seen, "make images")
    world.put(places.pods("kubeflow"))
    only(check_programs, world, WARN, "2 of 2 ready, 1 of them updated$", "an upgrade is under way")


def test_more_pods_than_wanted_during_an_upgrade_are_no_fault() -> None:
    only(check_programs, World().put(DEPLOYMENTS, program(3)), OK, "3 of 2 ready")


def test_a_users_daemon_set_is_none_of_ours_whatever_its_label_says() -> None:
    world = World().engine("stand-in").users("ada").put(DEPLOYMENTS, program(2))
    theirs = named("bitfusion-device-plugin", "ada", OURS)
    world.put(places.daemon_sets(), theirs)
    assert states(list(check_programs(world.seen()))) == [("injector", OK)]
    only(check_features, world, OK, "off: .*device plugin")
    world.put(places.daemon_sets(), theirs, {**theirs, "metadata": {**theirs["metadata"], "namespace": "b"}})
    assert ("device-plugin", FAIL) in states(list(check_programs(world.seen())))
    only(check_features, world, OK, "on: device plugin")


def bundle(age: timedelta) -> str:
    return base64.b64encode(new_authority("ca", datetime.now(timezone.utc) - age).certificate).decode()


def webhooks(ca: str = "", **of_pods: Any) -> World:
    hook = {
        "name": "pods.bitfusion.io",
        "failurePolicy": "Fail",
        "matchConditions": [{}],
        "clientConfig": {"caBundle": ca or bundle(DAY)},
        **of_pods,
    }
    world = World({f"{DEPLOYMENTS}/{places.INJECTOR}": {}, places.POD_WEBHOOKS: {"webhooks": [hook]}})
    answer = {"metadata": {"annotations": {"bitfusion.io/answered-by": "replica-1"}}}
    world.answers["/apis/coordination.k8s.io/v1/namespaces/kubeflow/leases"] = answer
    return world


def test_webhooks_that_are_well() -> None:
    found = list(check_webhooks(webhooks().seen()))
    assert states(found) == [(f"injector {what}", OK) for what in ("webhooks", "certificate", "call")]
    assert found[1].seen.startswith("CA 1 days old")
    assert found[2].seen == "the API server was answered by replica-1 in 10 ms"
    labelled = {"matchLabels": {"bitfusion.io/requested": "true"}}
    assert {
        each.state for each in check_webhooks(webhooks(matchConditions=[], objectSelector=labelled).seen())
    } == {OK}


@pytest.mark.parametrize(
    ("change", "state", "seen"),
    [
        ({"name": "other"}, FAIL, "has no pods.bitfusion.io"),
        ({"failurePolicy": "Ignore"}, WARN, "is Ignore, not Fail"),
        ({"matchConditions": []}, FAIL, "every pod waits"),
        ({"clientConfig": {}}, FAIL, "caBundle is empty"),
        ({"clientConfig": {"caBundle": "!"}}, FAIL, "caBundle cannot be read"),
        ({"clientConfig": {"caBundle": "AAAA"}}, FAIL, "caBundle cannot be read"),
        ({"clientConfig": {"caBundle": bundle(400 * 10 * DAY)}}, FAIL, "its CA ended on"),
    ],
)
def test_webhooks_that_are_registered_wrongly(change: Mapping[str, Any], state: str, seen: str) -> None:
    only(check_webhooks, webhooks(**change), state, seen)


CALL = 'failed calling webhook "self-check.bitfusion.io": failed to call webhook: no route'
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kubeflow/leases"


@pytest.mark.parametrize(
    ("answer", "takes", "state", "seen", "todo"),
    [
        (ServerError(500, "InternalError", CALL), 0.1, FAIL, "does not reach it: no route", "TCP port 8443"),
        (NoAnswer(answered="timed out"), 0.1, FAIL, "timed out", "TCP port 8443"),
        ({}, 0.1, WARN, "does not call it", "installation again"),
        (None, 3.0, WARN, "after 3000 ms", "the nodes' load"),
        (Forbidden(403, "Forbidden", "leases is forbidden"), 0.1, WARN, "not checked", "create Leases"),
    ],
)
def test_calls_of_webhooks(answer: Any, takes: float, state: str, seen: str, todo: str) -> None:
    world = webhooks()
    world.takes = takes
    if answer is not None:
        world.answers[LEASES] = answer
    assert only(check_webhooks, world, state, seen, todo).check == "injector call"
    assert world.sent == [(LEASES, True)]


@pytest.mark.parametrize("emptied", [{}, {"webhooks": []}, {"webhooks": None}])
def test_a_configuration_without_webhooks(emptied: dict[str, Any]) -> None:
    world = webhooks()
    world.paths[places.POD_WEBHOOKS] = emptied
    only(check_webhooks, world, FAIL, "bitfusion-pod-injection has no pods.bitfusion.io")


def test_a_configuration_that_is_gone() -> None:
    world = webhooks()
    del world.paths[places.POD_WEBHOOKS]
    only(check_webhooks, world, FAIL, "bitfusion-pod-injection is not there", "start without the client")


@pytest.mark.parametrize(
    ("minor", "policies", "bound", "state", "seen"),
    [
        ("29", [], [], OK, "since 1.30"),
        ("34", ["bitfusion-injector-account"], ["bitfusion-injector-account"], OK, "bound"),
        ("34", ["bitfusion-injector-account"], [], FAIL, "not bound"),
        ("34", [], [], WARN, "missing: bitfusion-injector-account"),
    ],
)
def test_policies(minor: str, policies: list[str], bound: list[str], state: str, seen: str) -> None:
    world = World({"/version": {"major": "1", "minor": minor}, f"{DEPLOYMENTS}/{places.INJECTOR}": {}})
    world.put(places.POLICIES, *(named(name, labels=OURS) for name in policies), named("of-others"))
    world.put(places.POLICY_BINDINGS, *(named(name, spec={"policyName": name}) for name in bound))
    only(check_policies, world, state, seen)


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}
NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}], "allocatable": GPU}
SELECTING = (
    "rules: [{name: r, serves: {whole: true}, pod: {spec: {nodeSelector: {zone: a}, tolerations: "
    "[{key: team, value: x}]}}, container: {resources: {limits: {nvidia.com/gpu: '{gpus}'}}}}]"
)


@pytest.mark.parametrize(
    ("nodes", "state", "seen", "todo"),
    [
        ([node("a", GPU), node("b")], OK, "2 nvidia.com/gpu on 1 node$", ""),
        ([node("a")], FAIL, "no node offers nvidia.com/gpu", "device plugin"),
        ([], FAIL, "no node offers", "device plugin"),
        ([node("a", GPU, taints=[TAINT])], FAIL, "taint team:NoSchedule", "toleration"),
        ([node("a", GPU, taints=[{**TAINT, "effect": "PreferNoSchedule"}])], OK, "on 1 node", ""),
        ([node("a", GPU), node("b", GPU, taints=[TAINT])], WARN, "node b takes no GPU pod", "toleration"),
        ([node("a", GPU, unschedulable=True)], FAIL, "cordoned", "uncordon"),
        ([{**node("a"), "status": NOT_READY}], FAIL, "not ready", "describe node"),
        (
            [node("a", GPU), node("b", labels={"nvidia.com/gpu.present": "true"})],
            WARN,
            "b has a card",
            "",
        ),
    ],
)
def test_gpus(nodes: list[Any], state: str, seen: str, todo: str) -> None:
    only(check_gpus, World().engine().put("/api/v1/nodes", *nodes), state, seen, todo)


@pytest.mark.parametrize(
    ("given", "state", "seen"),
    [
        (node("a", GPU, {"zone": "a"}, taints=[TAINT]), OK, "on 1 node"),
        (node("a", GPU), FAIL, "no label zone=a"),
        (node("a", GPU, {"zone": "a"}, taints=[{**TAINT, "value": "y"}]), FAIL, "taint"),
    ],
)
def test_what_a_rule_asks_of_nodes(given: Any, state: str, seen: str) -> None:
    only(check_gpus, World().engine(rules=SELECTING).put("/api/v1/nodes", given), state, seen)


def test_where_no_rule_can_be_read_nothing_is_said_of_cards() -> None:
    card = node("a", labels={"nvidia.com/gpu.present": "true"})
    assert list(check_gpus(World().engine(rules="rules: 1").put("/api/v1/nodes", card).seen())) == []


def test_many_nodes_in_the_way_for_one_reason_are_one_row() -> None:
    other = [node(f"b{at}", GPU, taints=[TAINT]) for at in range(900)]
    world = World().engine().put("/api/v1/nodes", node("a", GPU), *other)
    only(check_gpus, world, WARN, "^nodes b0, b1, b2, b3 and 896 more take no GPU pod: its taint team")


def test_what_to_do_about_a_label_whose_name_is_taint() -> None:
    rules = SELECTING.replace("zone: a", "taint: a")
    world = World().engine(rules=rules).put("/api/v1/nodes", node("a", GPU))
    only(check_gpus, world, FAIL, "no label taint=a", "label the node")


def test_units_of_a_pool() -> None:
    world = World().engine("stand-in").put("/api/v1/nodes", node("a", {"bitfusion.io/gpu": "200"}), node("b"))
    only(check_gpus, world, OK, "200 units, 2 GPUs, offered on 1 node of 2")
    only(
        check_gpus, world.put("/api/v1/nodes", node("b")), FAIL, "never scheduled", "manifests/device-plugin"
    )


@pytest.mark.parametrize(
    ("clients", "rules", "seen"),
    [
        ("[]", "", "names no client"),
        ("- {kind: other}", "", "names no client"),
        ("{", "", "clients.yaml is not YAML"),
        ("!!bool x", "", "clients.yaml is not YAML"),
        ("- {kind: pods}", "rules: 1", "rules"),
        ("- {kind: pods}", "{", "pods.yaml is not YAML"),
    ],
)
def test_an_engine_that_cannot_be_read(clients: str, rules: str, seen: str) -> None:
    world = (
        World()
        .file("bitfusion-clients", "clients.yaml", clients)
        .file("bitfusion-gpu-pods", "pods.yaml", rules)
    )
    only(check_engine, world, FAIL, seen)


def test_an_engine_without_its_file() -> None:
    only(check_engine, World(), FAIL, "there is no ConfigMap bitfusion-clients")


@pytest.mark.parametrize(
    ("kind", "hard", "state", "seen"),
    [
        ("pods", {}, OK, "no quota limits GPUs"),
        ("pods", {"requests.nvidia.com/gpu": "4"}, OK, "1 quota by requests.nvidia.com/gpu"),
        ("pods", {"nvidia.com/gpu": "4"}, WARN, "does not limit GPUs by nvidia.com/gpu"),
        ("pods", {"requests.bitfusion.io/gpu": "4"}, WARN, "does not limit GPUs"),
        ("stand-in", {"requests.bitfusion.io/gpu": "4"}, OK, "1 quota"),
        ("stand-in", {"bitfusion.io/gpu-50": "4"}, WARN, "in hundredths"),
    ],
)
def test_quotas(kind: str, hard: dict[str, str], state: str, seen: str) -> None:
    quota = named("kf-resource-quota", "ada", spec={"hard": hard})
    only(check_quotas, World().engine(kind).put("/api/v1/resourcequotas", quota), state, seen)


def test_many_wrong_quotas_are_few_rows() -> None:
    quotas = [named("q", f"n{at}", spec={"hard": {"nvidia.com/gpu": "1"}}) for at in range(9)]
    found = list(check_quotas(World().engine().put("/api/v1/resourcequotas", *quotas).seen()))
    assert len(found) == 6
    assert found[-1].seen == "4 more quotas have wrong keys"


def test_namespaces() -> None:
    only(check_namespaces, World().users("ada", "ben"), OK, "2 namespaces served: ada, ben")
    only(check_namespaces, World().users(), FAIL, "none is served", "create a Profile")
    other = {"matchLabels": {"kubernetes.io/metadata.name": "x"}}
    only(check_namespaces, World().users("ada", selector=other), FAIL, "none is served")
    world = World().users(
        "ada", selector={"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["x"]}]}
    )
    only(check_namespaces, world, OK, "2 namespaces served: ada, kube-system")


POD_SECURITY = Forbidden(
    403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted:latest": a'
)
QUOTA = Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, requested: pods=1')
RIGHT = Forbidden(
    403,
    "Forbidden",
    'pods is forbidden: User "system:serviceaccount:kubeflow:doc" cannot create resource "pods" in API group '
    '"" in the namespace "ada"',
)
INJECTED = {"spec": {"initContainers": [{"name": "client"}]}}


@pytest.mark.parametrize(
    ("answer", "state", "seen", "todo"),
    [
        (INJECTED, OK, r"gets its client in ada \(dry run, 10 ms\)", ""),
        ({}, FAIL, "admitted without the client", "see the webhooks above"),
        (
            POD_SECURITY,
            FAIL,
            "violates PodSecurity",
            "label namespace ada pod-security.kubernetes.io/enforce=baseline",
        ),
        (QUOTA, FAIL, "exceeded quota", "describe quota"),
        (RIGHT, WARN, "not checked: doc may not create pods in namespace ada", "run it as an admin"),
        (ServerError(500, "I", 'failed calling webhook "x.y"'), FAIL, "x.y", "repair that one first"),
        (Forbidden(403, "F", "denied by policy p"), FAIL, "denied by policy p", "names what refuses it"),
    ],
)
def test_the_trial_of_a_notebook(answer: Any, state: str, seen: str, todo: str) -> None:
    world = World().engine().users("ada")
    world.answers[places.pods("ada")] = answer
    only(check_notebooks, world, state, seen, todo)
    assert world.sent == [(places.pods("ada"), True)]


@pytest.mark.parametrize(
    "failure",
    [NoAnswer(answered="timed out"), ServerError(500, "I", 'failed calling webhook "x.y": timed out')],
)
def test_what_answers_nobody_is_waited_for_once(failure: Exception) -> None:
    names = [f"n{at}" for at in range(9)]
    world = World().engine().users(*names)
    world.answers = {places.pods(name): failure for name in names}
    only(check_notebooks, world, FAIL, "refused in n0: .*timed out")
    assert len(world.sent) == 1


def test_where_all_namespaces_are_served_only_profiles_are_tried() -> None:
    world = World().engine().users("ada", selector={})
    list(check_notebooks(world.seen()))
    assert [path for path, _ in world.sent] == [places.pods("ada")]


def test_rights_of_notebooks() -> None:
    world = World().engine().users("ada")
    assert list(check_accounts(world.seen())) == []  # no such account there
    world.paths["/api/v1/namespaces/ada/serviceaccounts/default-editor"] = {}
    only(check_accounts, world, OK, "may create GPU pods in ada")
    world.allowed = False
    only(check_accounts, world, FAIL, "may not create pods, .* in ada", "kubeflow-edit")
    assert list(check_accounts(world.engine("stand-in").seen())) == []


def test_rights_that_differ_by_namespace_are_all_named() -> None:
    world = World().engine().users("ada", "ben")
    for name in ("ada", "ben"):
        world.paths[f"/api/v1/namespaces/{name}/serviceaccounts/default-editor"] = {}
    world.refused = {("ada", "watch"), ("ben", "delete")}
    only(check_accounts, world, FAIL, "may not watch pods, delete pods in ada(,| and) ben")


def test_where_nothing_is_installed_that_is_the_only_failure() -> None:
    world = World({"/version": {"major": "1", "minor": "34"}})
    failed = [each for each in findings(world.seen()) if each.state == FAIL]
    assert [each.check for each in failed if each.check != "Kubeflow"] == ["injector"]


def identity(profiles: str = "") -> dict[str, Any]:
    env = [{"name": "BITFUSION_IDENTITY_PROFILES", "value": profiles}]
    return {"spec": {"template": {"spec": {"containers": [{"env": env}]}}}}


def test_identity() -> None:
    world = World().engine("stand-in").users("ada")
    only(check_identity, world, WARN, "is not installed", "manifests/identity/kubeflow")
    assert list(check_identity(World().engine().users("ada").seen())) == []
    path = f"{DEPLOYMENTS}/{places.IDENTITY}"
    world.paths[path] = identity()
    only(check_identity, world, WARN, "no token of the pool is issued for ada", "bitfusion.io/identity=true")
    world.paths[path] = identity("app.kubernetes.io/part-of=kubeflow-profile")
    only(check_identity, world, OK, "tokens for 1 namespace")
    world.paths["/apis/rbac.authorization.k8s.io/v1/clusterroles/bitfusion-identity-profiles"] = {}
    only(check_identity, world, FAIL, "may create Secrets in every namespace", "components/profiles")
    world.put(places.POLICIES, named("bitfusion-identity-account"))
    world.put(places.POLICY_BINDINGS, named("b", spec={"policyName": "bitfusion-identity-account"}))
    assert [each.state for each in check_identity(world.seen())] == [OK]
    world.put(TOLD, told("ada", "NotIssued", 1, "no\nanswer"), told("other", "NotIssued", 1, "no\nanswer"))
    only(
        check_identity,
        world,
        FAIL,
        "no token for ada, other: no answer",
        "logs deployment/bitfusion-identity",
    )
    world.put(TOLD, told("ada", "Ready", 2), told("ada", "NotIssued", 1), told("ada", "WrongLimits", 3))
    only(check_identity, world, OK, "tokens for 1 namespace")
    world.put(TOLD, told("ada", "NotIssued", 2, "gone"), told("ada", "Ready", 1))
    only(check_identity, world, FAIL, "no token for ada: gone", "logs deployment/bitfusion-identity")
    forged = {**told("ada", "NotIssued", 3, "forged"), "metadata": {"namespace": "evil"}}
    world.put(TOLD, told("ada", "Ready", 2), forged)
    only(check_identity, world, FAIL, "no token for evil: forged", "logs deployment/bitfusion-identity")


def test_thousands_of_namespaces_take_no_longer_than_a_second() -> None:
    world = World().engine("stand-in").users(*(f"n{at}" for at in range(3000)))
    world.paths[f"{DEPLOYMENTS}/{places.IDENTITY}"] = identity("app.kubernetes.io/part-of=kubeflow-profile")
    began = time.process_time()
    only(check_identity, world, OK, "tokens for 3000 namespaces")
    assert time.process_time() - began < 1


def told(namespace: str, reason: str, minute: int, message: str = "") -> dict[str, Any]:
    """An Event of `bitfusion-identity`."""
    return {
        "metadata": {"namespace": namespace},
        "involvedObject": {"kind": "Namespace", "name": namespace},
        "reason": f"BitfusionIdentity{reason}",
        "lastTimestamp": f"2026-01-01T00:0{minute}:00Z",
        "message": message,
    }


def test_a_server_that_does_not_answer_is_one_finding() -> None:
    world = World({"/version": NoAnswer(answered="no route to host")})
    (found,) = findings(world.seen())
    assert (found.check, found.state) == ("Kubernetes", FAIL)
    assert "no route to host" in found.seen
    assert "KUBECONFIG" in found.todo


def test_what_may_not_be_seen_is_told_once_for_each_reason_and_stops_no_other_check() -> None:
    denied = Forbidden(
        403,
        "Forbidden",
        'configmaps "bitfusion-clients" is forbidden: User "me" cannot get resource "configmaps" in '
        'API group "" in the namespace "kubeflow"',
    )
    world = World({"/version": {"major": "1", "minor": "34"}, places.clients("kubeflow"): denied}).users()
    found = list(findings(world.seen(), [Check("more", lambda seen: [Finding("more", OK, "run")])]))
    (missing,) = (each for each in found if each.check == "not checked")
    assert missing.seen.startswith("engine, GPUs, quotas, identity")
    assert missing.seen.endswith("me may not get configmaps bitfusion-clients in namespace kubeflow")
    assert "components/doctor" in missing.todo
    assert ("more", OK) in states(found)


def test_our_namespace_is_that_of_the_injectors_webhook() -> None:
    service = {"clientConfig": {"service": {"name": "x", "namespace": "bitfusion-system"}}}
    world = World({places.POD_WEBHOOKS: {"webhooks": [service]}})
    assert found_namespace(world.seen(), "kubeflow") == "bitfusion-system"
    assert found_namespace(World().seen(), "kubeflow") == "kubeflow"
    assert (
        found_namespace(World({places.POD_WEBHOOKS: Forbidden(403, "", "")}).seen(), "kubeflow") == "kubeflow"
    )
