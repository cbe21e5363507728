"""Pods through the installed webhook on a real API server: who is asked about, who waits, who is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.bitfusion_device_plugin.injector.another_webhook import (
    another_webhook,
    like_a_pod_default,
    like_istio,
)
from tests.bitfusion_device_plugin.injector.pods import container, pod
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE, Room
from tests.cluster.our_controller import with_components
from tests.manifests.built import POD_WEBHOOKS, one
from tests.notebook_controller_patch.controller_process import INJECTOR, ControllerProcess
from tests.notebook_controller_patch.installation import Installation
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

HALF = {"bitfusion.io/gpu-50": "1"}
MANAGEMENT = "auto-management/bitfusion"
INJECTED = {"auto-management/status": "injected"}
REVIEWS = "bitfusion_admission_reviews_total"
LOOKUPS = "bitfusion_admission_lookups_total"
OUTCOMES = ("unchanged", "patched", "refused", "failed")


class Injector:
    """The injector as it is installed, with one replica that the webhook calls."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.replica: ControllerProcess = installation.started()

    def asked(self) -> float:
        return sum(self.replica.metric(REVIEWS, outcome=outcome, webhook="pods") for outcome in OUTCOMES)

    def looked_up(self, result: str) -> float:
        return self.replica.metric(LOOKUPS, result=result)


@pytest.fixture(scope="module")
def injector(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    folder = tmp_path_factory.mktemp("injector")
    with Installation(cluster, folder, name="bitfusion-injector", module=INJECTOR) as made:
        found = Injector(made)
        room = Room(cluster)

        def called() -> bool:
            made_pod = create(room, pod(container(HALF)), dry_run=True)
            return bool(INJECTED.items() <= made_pod["metadata"]["annotations"].items())

        # The API server's own copy of the configuration may be a moment behind.
        wait_until(called, "the webhook is called", 20, errors=(Refused,))
        yield found


def create(room: Room, made: Object, dry_run: bool = False) -> Object:
    query = {"dryRun": "All"} if dry_run else {}
    return room.client.create(room.pods, made, **query)


def units(made: Object, place: int = 0) -> str | None:
    limits = made["spec"]["containers"][place]["resources"].get("limits") or {}
    assert not [name for name in limits if name.startswith("bitfusion.io/gpu-")]
    return limits.get("bitfusion.io/gpu")


def of_notebook(room: Room, name: str, **fields: Any) -> Object:
    """As a StatefulSet of a Notebook makes it: its label, its owner."""
    made = pod(container(HALF, name=name), notebook=name, **fields)
    made["metadata"]["name"] = f"{name}-0"
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "0", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(HALF, "50"), ({"bitfusion.io/gpu-3x50": "1"}, "150"), ({"bitfusion.io/gpu-3x100": "2"}, "600")],
    ids=["half", "three halves", "twice three"],
)
def test_a_pod_that_asks_gets_its_client_and_its_units(
    cluster: Cluster, injector: Injector, size: Object, wanted: str
) -> None:
    room = Room(cluster)
    made = create(room, pod(container(size)))
    assert units(made) == wanted
    assert made["spec"]["initContainers"][0]["name"] == "bitfusion-client"
    assert made["metadata"]["annotations"]["auto-management/status"] == "injected"


def test_a_dry_run_is_answered_the_same(cluster: Cluster, injector: Injector) -> None:
    room = Room(cluster)
    dry = create(room, pod(container(HALF)), dry_run=True)
    made = create(room, pod(container(HALF)))
    assert dry["spec"]["containers"][0]["resources"] == made["spec"]["containers"][0]["resources"]
    assert room.client.get(f"{room.pods}/nb-0")["metadata"]["uid"] == made["metadata"]["uid"]


def test_an_impossible_size_is_refused_in_words(cluster: Cluster, injector: Injector) -> None:
    with pytest.raises(Refused) as refused:
        create(Room(cluster), pod(container({"bitfusion.io/gpu-500": "1"})))
    assert 'admission webhook "pods.bitfusion.io" denied the request: ' in str(refused.value)
    assert "bitfusion.io/gpu-500" in str(refused.value)


def none_in_resources(made: Object) -> Object:
    for each in made["spec"]["containers"]:
        del each["resources"]
    return made


# What the condition of the webhook lets through, as the API server judges it.
ASKING = {
    "a size": pod(container(HALF), annotations=None),
    "a size of a second container": pod(container(), container(HALF, name="two"), annotations=None),
    "a size of an init container": pod(
        container(), annotations=None, init_containers=[container(HALF, name="i")]
    ),
    "the annotation alone": pod(container(), annotations={MANAGEMENT: "injection"}),
    "any word but none": pod(container(), annotations={MANAGEMENT: "All"}),
    "a size and none": pod(container(HALF), annotations={MANAGEMENT: "none"}),
    "injected before": pod(container(), annotations=INJECTED),
}
OTHERS = {
    "nothing": pod(container(), annotations=None),
    "no resources": none_in_resources(pod(container(), annotations=None)),
    "requests only": pod(
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}, annotations=None
    ),
    "units": pod(container({"bitfusion.io/gpu": "50"}), annotations=None),
    "another's resource": pod(container({"nvidia.com/gpu": "1"}), annotations=None),
    "another's of our group": pod(container({"bitfusion.io/fpga": "1"}), annotations=None),
    "none": pod(container(), annotations={MANAGEMENT: "none"}),
    "another annotation": pod(container(), annotations={"a": "b"}),
    "another status": pod(container(), annotations={"auto-management/status": "x"}),
}
LEFT_ALONE = {"bitfusion.io/admission": "ignore"}


@pytest.mark.parametrize("made", ASKING.values(), ids=ASKING)
def test_the_injector_is_asked_about_pods_that_ask(
    cluster: Cluster, injector: Injector, made: Object
) -> None:
    before = injector.asked()
    with suppress(Refused):  # init containers can have no GPUs
        create(Room(cluster), made, dry_run=True)
    assert injector.asked() > before


@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS)
def test_nobody_is_asked_about_other_pods(cluster: Cluster, injector: Injector, made: Object) -> None:
    before = injector.asked()
    create(Room(cluster), made, dry_run=True)
    assert injector.asked() == before


@pytest.mark.parametrize(
    ("namespace", "labels"),
    [({}, {}), ({**PROFILE, **LEFT_ALONE}, {}), (PROFILE, LEFT_ALONE)],
    ids=["no profile", "opted out namespace", "opted out pod"],
)
def test_nobody_is_asked_where_it_is_not_wanted(
    cluster: Cluster, injector: Injector, namespace: Mapping[str, str], labels: Mapping[str, str]
) -> None:
    before = injector.asked()
    made = pod(container(HALF))
    made["metadata"]["labels"] = dict(labels)
    assert "initContainers" not in create(Room(cluster, namespace), made, dry_run=True)["spec"]
    assert injector.asked() == before


def test_a_template_that_was_told_nothing_is_made_good_by_the_notebook(
    cluster: Cluster, injector: Injector
) -> None:
    room = Room(cluster)
    wanted = {MANAGEMENT: "injection", "bitfusion.io/request": "-n 2 -p 0.25"}
    room.client.create(room.notebooks, form_notebook("mine", HALF, wanted, namespace=room.namespace))
    before = injector.looked_up("live")
    made = create(room, of_notebook(room, "mine", annotations=None))
    assert units(made) == "50"  # 2 × 25
    assert wanted.items() <= made["metadata"]["annotations"].items()
    assert injector.looked_up("live") == before + 1


def test_a_change_that_is_pending_waits_for_its_stop_and_start(cluster: Cluster, injector: Injector) -> None:
    room = Room(cluster)
    told = {MANAGEMENT: "injection", "bitfusion.io/request": "-n 1 -p 0.1", "bitfusion.io/pending": "told"}
    room.client.create(room.notebooks, form_notebook("mine", HALF, told, namespace=room.namespace))
    assert units(create(room, of_notebook(room, "mine"))) == "50"


def test_a_notebook_that_is_gone_leaves_what_the_pod_says(cluster: Cluster, injector: Injector) -> None:
    room = Room(cluster)
    before = injector.looked_up("gone")
    assert units(create(room, of_notebook(room, "mine"))) == "50"
    assert injector.looked_up("gone") == before + 1


def test_a_notebook_that_cannot_be_read_leaves_what_the_pod_says_and_is_counted(
    cluster: Cluster, injector: Injector
) -> None:
    room = Room(cluster)
    rights = [
        each
        for each in injector.installation.objects
        if each["kind"] == "ClusterRoleBinding" and each["metadata"]["name"] == "bitfusion-injector"
    ]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    cluster.client.delete(f"{path}/bitfusion-injector")
    failures = "bitfusion_admission_lookup_failures_total"
    try:

        def refused_and_let_in() -> bool:
            assert units(create(room, of_notebook(room, "mine"), dry_run=True)) == "50"
            return injector.replica.metric(failures, decided_by="nothing", reason="forbidden") > 0

        wait_until(refused_and_let_in, "the right is gone", 20)
    finally:
        cluster.client.create(path, rights[0])
    wait_until(lambda: injector.replica.logged("notebook could not be looked up"))


def names(made: Object, kind: str) -> list[str]:
    return [each["name"] for each in made["spec"][kind]]


@pytest.mark.parametrize("turn", ["a-mesh", "z-mesh"], ids=["before ours", "after ours"])
def test_beside_a_mesh_our_init_container_is_the_first_and_its_sidecar_has_no_gpus(
    cluster: Cluster, injector: Injector, tmp_path: Path, turn: str
) -> None:
    room = Room(cluster)
    with another_webhook(cluster, room, turn, tmp_path, like_istio):

        def meshed() -> Object | None:
            made = create(room, pod(container(HALF)), dry_run=True)
            return made if "mesh" in names(made, "containers") else None

        made = wait_until(meshed, "the other webhook is called", 20)
    assert names(made, "initContainers") == ["bitfusion-client", "mesh-init"]
    assert names(made, "containers") == ["nb", "mesh"]
    assert units(made) == "50"
    assert "resources" not in made["spec"]["containers"][1] or units(made, 1) is None
    assert not [
        mount
        for mount in made["spec"]["containers"][1].get("volumeMounts", [])
        if "bitfusion" in mount["name"]
    ]


@pytest.mark.parametrize("turn", ["admission-webhook", "poddefaults-webhook"])
def test_beside_pod_defaults_both_have_their_say(
    cluster: Cluster, injector: Injector, tmp_path: Path, turn: str
) -> None:
    room = Room(cluster)
    with another_webhook(cluster, room, turn, tmp_path, like_a_pod_default):

        def defaulted() -> Object | None:
            made = create(room, pod(container(HALF)), dry_run=True)
            return made if "example.com/pod-default" in made["metadata"]["annotations"] else None

        made = wait_until(defaulted, "the other webhook is called", 20)
    (only,) = made["spec"]["containers"]
    assert units(made) == "50"
    assert {"name": "TEAM", "value": "vision"} in only["env"]
    mounts = {mount["mountPath"] for mount in only["volumeMounts"]}
    assert {"/workspace", "/bitfusion"} <= mounts
    assert {"workspace", "bitfusion-client"} <= set(names(made, "volumes"))
    assert made["metadata"]["annotations"]["auto-management/status"] == "injected"


def test_for_servers_that_drop_match_conditions_pods_are_chosen_by_their_label(
    cluster: Cluster, injector: Injector
) -> None:
    path = injector.installation.webhooks_path
    (installed,) = cluster.client.get(path)["webhooks"]
    objects = with_components(cluster, "kubeflow", "without-match-conditions")
    (chosen,) = one(objects, "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
    assert "matchConditions" not in chosen

    def write(webhook: Object) -> None:
        fields = {key: webhook.get(key) for key in ("matchConditions", "objectSelector")}
        found = cluster.client.get(path)
        found["webhooks"][0] = {key: value for key, value in {**installed, **fields}.items() if value}
        cluster.client.request("PUT", path, found)

    room = Room(cluster)
    labelled = pod(container(), annotations=None)
    labelled["metadata"]["labels"] = {"bitfusion.io/requested": "true"}
    try:
        write(chosen)

        def asked() -> bool:
            before = injector.asked()
            assert "initContainers" not in create(room, labelled, dry_run=True)["spec"]
            return injector.asked() > before

        wait_until(asked, "the API server has the new selector", 20)
        before = injector.asked()
        create(room, pod(container(), annotations=None), dry_run=True)
        create(room, pod(container(HALF)), dry_run=True)  # the label is missing
        assert injector.asked() == before
        made = pod(container(HALF))
        made["metadata"]["labels"] = labelled["metadata"]["labels"]
        assert units(create(room, made, dry_run=True)) == "50"
    finally:
        write(installed)
