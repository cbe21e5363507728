"""Pods through the installed webhook on a real API server: who is asked about, who waits, who is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_client.kubernetes.pod_units import units_of
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from tests.bitfusion_device_plugin.injector.another_webhook import (
    another_webhook,
    like_a_pod_default,
    like_istio,
)
from tests.bitfusion_device_plugin.injector.pods import LOCAL_VOLUMES, container, pod
from tests.bitfusion_device_plugin.injector.stage import Stage
from tests.bitfusion_device_plugin.injector.webhooks import (
    Change,
    applied,
    katib_collected,
    launcher_in_front,
    overridden,
    raised,
    recommended,
    vault_env_in_front,
    volumes_renamed,
)
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.guide import QUOTAS, blocks
from tests.cluster.notebooks import PROFILE, Room
from tests.cluster.other_webhooks import pod_webhook
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


KEY = "bitfusion.io/gpu"
PLAIN_ZERO = {"default": {KEY: "0"}, "defaultRequest": {KEY: "0"}}
# Of the type Container, and what our init container says then.
LIMIT_RANGES: Mapping[str, tuple[Object, str]] = {
    "max": ({"max": {KEY: "100"}}, "50"),
    "max and default 0": ({"max": {KEY: "100"}, **PLAIN_ZERO}, "0"),
    "default 0": (PLAIN_ZERO, "0"),
    "smaller default": ({"default": {KEY: "10"}}, "10"),
    "larger default": ({"default": {KEY: "80"}, "defaultRequest": {KEY: "80"}}, "50"),
    "default request": ({"defaultRequest": {KEY: "10"}}, "10"),
    "min and max": ({"min": {KEY: "20"}, "max": {KEY: "100"}}, "50"),
    "min, max and default": ({"min": {KEY: "20"}, "max": {KEY: "60"}, "default": {KEY: "20"}}, "20"),
    "ratio": ({"max": {KEY: "100"}, "maxLimitRequestRatio": {KEY: "1"}}, "50"),
}


def room_with(cluster: Cluster, *items: Object) -> Room:
    """A profile with a LimitRange."""
    room = Room(cluster)
    body = {"metadata": {"name": "units"}, "spec": {"limits": list(items)}}
    room.client.create(f"/api/v1/namespaces/{room.namespace}/limitranges", body)
    return room


@pytest.mark.parametrize(("item", "ours"), LIMIT_RANGES.values(), ids=LIMIT_RANGES)
def test_no_limit_range_makes_a_pod_count_more_than_it_asks_for(
    cluster: Cluster, injector: Injector, item: Object, ours: str
) -> None:
    room = room_with(cluster, {"type": "Container", **item})
    made = create(room, pod(container(HALF), annotations=None), dry_run=True)
    assert (units(made), units_of(made)) == ("50", 50)
    resources = made["spec"]["initContainers"][0]["resources"]
    assert (resources["limits"][KEY], resources["requests"][KEY]) == (ours, ours)


def test_the_limit_range_of_the_guide_bounds_containers_and_pods_and_leaves_others_alone(
    cluster: Cluster, injector: Injector
) -> None:
    (text,) = [each.commands for each in blocks(QUOTAS) if "LimitRange" in each.commands]
    limits = yaml.safe_load(text.partition("<<END\n")[2].rpartition("END")[0])["spec"]["limits"]
    room = room_with(cluster, *limits, {"type": "Pod", "max": {KEY: "120"}})
    asking = pod(container(HALF), container(HALF, name="two"), container(name="mesh"), annotations=None)
    assert units_of(create(room, asking, dry_run=True)) == 100
    before = injector.asked()
    plain = create(room, pod(container(), annotations=None), dry_run=True)
    assert (units_of(plain), "initContainers" in plain["spec"], injector.asked()) == (0, False, before)
    noted = create(room, pod(container(), annotations={MANAGEMENT: "injection"}), dry_run=True)
    assert "initContainers" not in noted["spec"]
    for size, words in (("200", "per Container is 100, but limit is 200"), ("70", "per Pod is 120, but")):
        sizes = {f"bitfusion.io/gpu-{size}": "1"} if size == "70" else {"bitfusion.io/gpu-amount": "2"}
        large = pod(container(sizes), container(sizes, name="two"), annotations=None)
        with pytest.raises(Refused, match=words):
            create(room, large, dry_run=True)


def test_a_limit_range_may_give_everybody_0_of_a_size(cluster: Cluster, injector: Injector) -> None:
    none = {"bitfusion.io/gpu-50": "0", "bitfusion.io/gpu-amount": "0"}
    room = room_with(cluster, {"type": "Container", "default": none, "defaultRequest": none})
    before = injector.asked()
    create(room, pod(container(), annotations=None), dry_run=True)
    assert injector.asked() == before
    made = create(room, pod(container(HALF), annotations=None), dry_run=True)
    assert (units(made), units_of(made)) == ("50", 50)


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
    "0 of one size and some of another": pod(
        container({"bitfusion.io/gpu-25": "0", "bitfusion.io/gpu-50": "1"}), annotations=None
    ),
    "part of a size": pod(container({"bitfusion.io/gpu-50": "1m"}), annotations=None),
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
    "0 units": pod(container({"bitfusion.io/gpu": "0"}), annotations=None),
    **{
        f"{none} of a size": pod(container({"bitfusion.io/gpu-50": none}), annotations=None)
        for none in ("0", "0m", "0e3", "0Ki", "0.0")
    },
    "0 of a size of an init container": pod(
        container(), annotations=None, init_containers=[container({"bitfusion.io/gpu-amount": "0"}, name="i")]
    ),
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

    def refused_and_let_in() -> bool:
        before = injector.replica.metric(failures, decided_by="nothing", reason="forbidden")
        assert units(create(room, of_notebook(room, "mine"), dry_run=True)) == "50"
        return injector.replica.metric(failures, decided_by="nothing", reason="forbidden") > before

    try:
        wait_until(refused_and_let_in, "the right is gone", 20)
    finally:
        cluster.client.create(path, rights[0])
        wait_until(lambda: not refused_and_let_in(), "the right is back", 20)
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


def through(cluster: Cluster, name: str, change: Change, made: Object) -> Object:
    """The pod as the API server stores it where another webhook of that name is called, too."""
    room = Room(cluster)
    with pod_webhook(cluster, name, room.namespace, lambda seen: applied(seen, [change])) as asked:

        def called() -> bool:
            create(room, pod(container(), annotations=None), dry_run=True)
            return bool(asked)

        wait_until(called, "the other webhook is called", 20, errors=(Refused,))
        return create(room, made)


LINE = "cd . && exec python t.py --lr 0.1"
TRIAL = {"auto-management/bitfusion": "all"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("katib.kubeflow.org", katib_collected),
        ("vault-secrets-webhook", vault_env_in_front),
        ("datadog-webhook", launcher_in_front),
        ("a-vault-secrets-webhook", vault_env_in_front),
        ("katib.kubeflow.org", volumes_renamed),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.parametrize(
    "command", [["python", "t.py", "--lr", "0.1"], ["sh", "-c", LINE]], ids=["words", "line"]
)
def test_a_command_that_a_later_webhook_moves_takes_its_gpus_once(
    cluster: Cluster, injector: Injector, tmp_path: Path, name: str, change: Change, command: list[str]
) -> None:
    given = pod(container(HALF, command=command), annotations=TRIAL, volumes=[])
    made = through(cluster, name, change, copy.deepcopy(given))
    (asking,) = [each for each in made["spec"]["containers"] if each["name"] == "nb"]
    started = Stage(tmp_path).started(asking)
    assert started.runs == [["run", "-n", "1", "-p", "0.5"]]
    assert started.programs == [["python", "t.py", "--lr", "0.1"]]
    assert asking["resources"]["limits"]["bitfusion.io/gpu"] == "50"
    assert injected_pod(made, made["metadata"]["namespace"]) == made
    assert made["spec"]["initContainers"][0]["volumeMounts"][0]["name"] in local_volumes(made)


def local_volumes(made: Object) -> list[str]:
    named: str = made["metadata"]["annotations"][LOCAL_VOLUMES]
    return named.split(",")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vpa-webhook-config", recommended),
        ("vpa-webhook-config", raised),
        ("a-vpa-webhook-config", recommended),
        ("clusterresourceoverrides.admission.autoscaling.openshift.io", overridden),
    ],
    ids=["lowered after", "raised after", "lowered before", "overridden after"],
)
def test_a_pod_weighs_what_later_webhooks_leave_of_it(
    cluster: Cluster, injector: Injector, name: str, change: Change
) -> None:
    made = through(cluster, name, change, pod(container(HALF), annotations=None))
    (ours,) = made["spec"]["initContainers"]
    (asking,) = made["spec"]["containers"]
    for part in ("limits", "requests"):
        given = {key: value for key, value in asking["resources"][part].items() if key != "bitfusion.io/gpu"}
        if change is raised:
            assert ours["resources"][part] == {"limits": OURS_LIMITS, "requests": OURS_REQUESTS}[part]
        else:
            assert ours["resources"][part] == given


OURS_LIMITS = {"cpu": "600m", "memory": "1288490188800m"}
OURS_REQUESTS = {"cpu": "500m", "memory": "1Gi"}


def test_a_drain_wants_the_word_for_the_clients_volume_alone(cluster: Cluster, injector: Injector) -> None:
    def why_not(sizes: Object, *options: str) -> str:
        room = Room(cluster)
        node = room.namespace
        cluster.client.create("/api/v1/nodes", {"metadata": {"name": node}})
        try:
            create(room, pod(container(sizes), annotations=None, nodeName=node))
            done = cluster.try_kubectl("drain", node, "--force", "--dry-run=server", *options)
        finally:
            cluster.client.delete(f"/api/v1/nodes/{node}")
        return "" if done.returncode == 0 else done.stderr

    assert not why_not({})
    assert "use --delete-emptydir-data to override" in why_not(HALF)
    assert not why_not(HALF, "--delete-emptydir-data")


def test_for_servers_that_drop_match_conditions_pods_are_chosen_by_their_label(
    cluster: Cluster, injector: Injector
) -> None:
    path = injector.installation.webhooks_path
    installed, _ = cluster.client.get(path)["webhooks"]
    objects = with_components(cluster, "kubeflow", "without-match-conditions")
    chosen, _ = one(objects, "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
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
