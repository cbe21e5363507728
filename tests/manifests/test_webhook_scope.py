"""Which objects the installed webhooks are asked about, and that those they need not see come to no harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE, Room
from tests.manifests.built import WEBHOOKS, Object
from tests.manifests.installed import installed, kubeflow_namespace
from tests.manifests.stand_in import StandIn
from tests.notebook_controller_patch.controller_process import ControllerProcess
from tests.support.waiting import wait_until

CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOKS}"
OPT_OUT = {"bitfusion.io/admission": "ignore"}
MANAGED = "auto-management/bitfusion"
OUTCOMES = ("unchanged", "patched", "refused", "failed")


class Asked:
    """The controller behind the webhooks, and how often it was asked."""

    def __init__(self, process: ControllerProcess) -> None:
        self.process = process

    def times(self, webhook: str) -> float:
        name = "bitfusion_admission_reviews_total"
        return sum(self.process.metric(name, outcome=outcome, webhook=webhook) for outcome in OUTCOMES)


@pytest.fixture(scope="module")
def asked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with ExitStack() as around:
        around.enter_context(kubeflow_namespace(cluster))
        around.enter_context(installed(cluster, "kubeflow"))
        folder: Path = tmp_path_factory.mktemp("controller")
        ours = around.enter_context(StandIn(cluster, folder, "kubeflow"))
        wait_until(lambda: ours.served, "the controller is ready", 30)
        found = Asked(ours.processes[0])
        # The apiserver's own copy of the configuration may be a moment behind.
        room = Room(cluster)
        wait_until(lambda: _managed(room, "probe"), "the webhooks are called", 20)
        yield found


def _managed(room: Room, name: str) -> bool:
    body = room.client.create(room.notebooks, _asking(name), dryRun="All")
    return MANAGED in (body["metadata"].get("annotations") or {})


def _asking(name: str, labels: Mapping[str, str] | None = None) -> Object:
    container = {"name": name, "image": "i", "resources": {"limits": {"bitfusion.io/gpu-50": "1"}}}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Notebook",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def stateful_set(name: str, labels: Mapping[str, str], owner: Object | None = None) -> Object:
    """As Kubeflow's controller makes it, if it is of a notebook."""
    labels = {"statefulset": name, **labels}
    owners = []
    if owner is not None:
        metadata = owner["metadata"]
        owners = [
            {
                "apiVersion": "kubeflow.org/v1beta1",
                "kind": "Notebook",
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return {
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {
            "replicas": 0,
            "serviceName": "",
            "selector": {"matchLabels": {"statefulset": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": "i"}]},
            },
        },
    }


def test_notebooks_of_profiles_get_their_annotations(cluster: Cluster, asked: Asked) -> None:
    assert _managed(Room(cluster), "mine")


@pytest.mark.parametrize(
    ("namespace", "labels"),
    [({}, {}), ({**PROFILE, **OPT_OUT}, {}), (PROFILE, OPT_OUT)],
    ids=["no profile", "opted out namespace", "opted out notebook"],
)
def test_nobody_is_asked_about_other_notebooks(
    cluster: Cluster, asked: Asked, namespace: Mapping[str, str], labels: Mapping[str, str]
) -> None:
    room = Room(cluster, namespace)
    before = asked.times("notebooks")
    body = room.client.create(room.notebooks, _asking("mine", labels), dryRun="All")
    assert MANAGED not in (body["metadata"].get("annotations") or {})
    assert asked.times("notebooks") == before


@pytest.mark.parametrize(
    "labels",
    [{}, {"app": "database"}, {"notebook-name": "mine", **OPT_OUT}],
    ids=["bare", "another's", "opted out notebook's"],
)
def test_nobody_is_asked_about_other_stateful_sets(
    cluster: Cluster, asked: Asked, labels: Mapping[str, str]
) -> None:
    room = Room(cluster)
    before = asked.times("statefulsets")
    made = room.client.create(room.stateful_sets, stateful_set("other", labels))
    room.client.merge(f"{room.stateful_sets}/other", {"spec": {"replicas": 0, "minReadySeconds": 1}})
    assert "annotations" not in made["spec"]["template"]["metadata"]
    assert asked.times("statefulsets") == before


def test_a_malformed_stateful_set_gets_the_apiservers_own_words(cluster: Cluster, asked: Asked) -> None:
    room = Room(cluster)
    text = '{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"x"},"spec":{"selector":{}}}'
    done = cluster.try_kubectl("create", "-n", room.namespace, "--validate=false", "-f", "-", input=text)
    assert "is invalid" in done.stderr
    assert "bitfusion" not in done.stderr


def test_the_stateful_set_of_a_notebook_gets_its_owners_annotations(cluster: Cluster, asked: Asked) -> None:
    room = Room(cluster)
    owner = room.client.create(room.notebooks, _asking("mine"))
    before = asked.times("statefulsets")
    made = room.client.create(room.stateful_sets, stateful_set("mine", {"notebook-name": "mine"}, owner))
    assert made["spec"]["template"]["metadata"]["annotations"][MANAGED] == "injection"
    assert asked.times("statefulsets") == before + 1


def test_on_servers_that_drop_match_conditions_everything_is_asked_about_and_nothing_harmed(
    cluster: Cluster, asked: Asked
) -> None:
    room = Room(cluster)
    found = cluster.client.get(CONFIGURATION)
    conditions = found["webhooks"][1]["matchConditions"]
    path = "/webhooks/1/matchConditions"
    cluster.client.patch(CONFIGURATION, [{"op": "remove", "path": path}])
    try:
        before = asked.times("statefulsets")

        def seen() -> bool:
            room.client.create(room.stateful_sets, stateful_set("probe", {}), dryRun="All")
            return asked.times("statefulsets") > before

        wait_until(seen, "the apiserver asks without conditions", 20)
        other = stateful_set("other", {"app": "database"})
        other["spec"]["template"]["metadata"]["annotations"] = {"a": "b", "bitfusion-client/os": "mine"}
        made = room.client.create(room.stateful_sets, other)
        assert made["spec"]["template"] == {
            **made["spec"]["template"],
            "metadata": {**other["spec"]["template"]["metadata"]},
        }
        assert "annotations" not in made["metadata"]
        owner = room.client.create(room.notebooks, _asking("mine"))
        ours = stateful_set("mine", {"notebook-name": "mine"}, owner)
        made = room.client.create(room.stateful_sets, ours)
        assert made["spec"]["template"]["metadata"]["annotations"][MANAGED] == "injection"
    finally:
        cluster.client.patch(CONFIGURATION, [{"op": "add", "path": path, "value": conditions}])
