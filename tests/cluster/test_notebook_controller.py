"""The stub of Kubeflow's notebook controller does what was measured with the real ones."""

from __future__ import annotations

import contextlib
import copy
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import (
    STOPPED,
    Kubeflow,
    NotebookController,
    copy_stateful_set_fields,
    stateful_set_of,
)
from tests.cluster.notebooks import Room, generation, version
from tests.support.machine import scaled
from tests.support.notebooks import bare_notebook, container
from tests.support.waiting import wait_until, wait_until_settled

GENERATIONS: list[Kubeflow] = ["1.7", "1.8"]
ON_THE_CLUSTER = [pytest.param("1.7", marks=pytest.mark.long), "1.8"]
OURS = "auto-management/bitfusion"


def a_notebook(**metadata: Any) -> Object:
    return bare_notebook(
        container("n", image="i"), **{"name": "mine", "namespace": "user", "uid": "u", **metadata}
    )


# What is wanted of a StatefulSet, without a cluster.


@pytest.mark.parametrize(
    ("key", "copied_since_1_8"),
    [
        (OURS, True),
        ("bitfusion-client/os", True),
        (STOPPED, True),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("notebooks.kubeflow.org/server-type", False),
        ("x.io/my-notebook-thing", False),
    ],
)
def test_which_annotations_reach_a_new_template(key: str, copied_since_1_8: bool) -> None:
    notebook = a_notebook(annotations={key: "v"})
    template = stateful_set_of(notebook, "1.8")["spec"]["template"]["metadata"]
    assert template["annotations"] == ({key: "v"} if copied_since_1_8 else {})
    assert "annotations" not in stateful_set_of(notebook, "1.7")["spec"]["template"]["metadata"]


@pytest.mark.parametrize("kubeflow", GENERATIONS)
def test_what_is_written_for_a_plain_notebook(kubeflow: Kubeflow) -> None:
    wanted = stateful_set_of(a_notebook(labels={"app": "a"}), kubeflow)
    assert wanted["spec"]["replicas"] == 1
    assert wanted["spec"]["selector"]["matchLabels"] == {"statefulset": "mine"}
    labels = {"statefulset": "mine", "notebook-name": "mine", "app": "a"}
    assert wanted["spec"]["template"]["metadata"]["labels"] == labels
    assert wanted["spec"]["template"]["spec"] == {
        "containers": [
            {
                "name": "n",
                "image": "i",
                "workingDir": "/home/jovyan",
                "ports": [{"containerPort": 8888, "name": "notebook-port", "protocol": "TCP"}],
                "env": [{"name": "NB_PREFIX", "value": "/notebook/user/mine"}],
            }
        ],
        "securityContext": {"fsGroup": 100},
    }
    assert set(wanted["metadata"]) == {"name", "namespace", "ownerReferences"}
    owner = wanted["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Notebook", "u", True)


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00Z", ""])
def test_a_notebook_is_stopped_by_the_presence_of_the_annotation(value: str) -> None:
    assert stateful_set_of(a_notebook(annotations={STOPPED: value}), "1.7")["spec"]["replicas"] == 0


def test_what_the_user_set_on_the_container_is_kept() -> None:
    notebook = a_notebook()
    own = {
        "workingDir": "/work",
        "ports": [],
        "env": [{"name": "NB_PREFIX", "value": "/own"}],
    }
    notebook["spec"]["template"]["spec"]["containers"][0].update(own)
    notebook["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 5}
    spec = stateful_set_of(notebook, "1.8")["spec"]["template"]["spec"]
    assert spec["containers"][0].items() >= own.items()
    assert spec["securityContext"] == {"runAsUser": 5}


def test_fields_that_the_controller_copies_and_those_it_leaves() -> None:
    wanted = stateful_set_of(a_notebook(), "1.8")
    found = copy.deepcopy(wanted)
    assert not copy_stateful_set_fields(wanted, found)
    found["metadata"] |= {"annotations": {"a": "b"}, "labels": {"a": "b"}}
    found["spec"]["replicas"] = 3
    found["spec"]["template"]["metadata"]["annotations"] = {"third": "party"}
    found["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    assert copy_stateful_set_fields(wanted, found)
    assert found["spec"]["template"]["metadata"].pop("annotations") == {"third": "party"}
    del wanted["spec"]["template"]["metadata"]["annotations"]
    assert found == wanted


# The same on the cluster, where the API's defaults and the other controllers are.


@pytest.fixture
def room(cluster: Cluster) -> Room:
    return Room(cluster)


@pytest.fixture(params=ON_THE_CLUSTER)
def controller(request: pytest.FixtureRequest, room: Room) -> Iterator[NotebookController]:
    """Each generation, with a node that lets pods run."""
    with (
        room.cluster.node_stub(room.namespace),
        room.cluster.notebook_controller(request.param, room.namespace) as running,
    ):
        yield running


def test_annotations_at_creation_reach_template_and_pod_since_1_8_only(
    controller: NotebookController, room: Room
) -> None:
    room.create(annotations={OURS: "injection"})
    pod = room.wait_running()
    expected = {OURS: "injection"} if controller.kubeflow == "1.8" else {}
    assert room.template_annotations() == expected
    assert pod["metadata"].get("annotations", {}).get(OURS) == expected.get(OURS)
    # The pod may run before the controller has read the answer to its creation.
    wait_until(lambda: controller.creates, "the creation of the StatefulSet is counted")
    assert controller.creates == 1


def test_an_annotation_set_later_never_reaches_the_template(
    controller: NotebookController, room: Room
) -> None:
    room.create()
    room.wait_running()
    room.annotate_with({OURS: "injection"})
    room.stop()
    assert OURS not in room.template_annotations()
    room.annotate_with({OURS: "all"})
    pod = room.start()
    assert OURS not in room.template_annotations()
    assert OURS not in pod["metadata"].get("annotations", {})


def test_another_ones_template_annotation_is_kept(controller: NotebookController, room: Room) -> None:
    room.create()
    room.wait_running()
    template = {"metadata": {"annotations": {"third": "party"}}}
    room.client.merge(f"{room.stateful_sets}/mine", {"spec": {"template": template}})
    room.stop()
    room.start()
    assert room.template_annotations()["third"] == "party"


def test_another_ones_metadata_on_the_stateful_set_is_removed(
    controller: NotebookController, room: Room
) -> None:
    room.create()
    room.wait_running()
    metadata = {"annotations": {"third": "party"}, "labels": {"third": "party"}}
    room.client.merge(f"{room.stateful_sets}/mine", {"metadata": metadata})
    wait_until(lambda: not {"annotations", "labels"} & room.stateful_set()["metadata"].keys(), limit_s=10)


def test_another_ones_change_of_the_pod_spec_is_reverted_and_rolls_the_pod(
    controller: NotebookController, room: Room
) -> None:
    room.create()
    room.wait_running()
    before = generation(room.stateful_set())
    extra = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/env/-",
        "value": {"name": "A", "value": "b"},
    }
    room.client.patch(f"{room.stateful_sets}/mine", [extra])
    wait_until(lambda: generation(room.stateful_set()) == before + 2, "changed and changed back", 10)
    container = room.stateful_set()["spec"]["template"]["spec"]["containers"][0]
    assert [each["name"] for each in container["env"]] == ["NB_PREFIX"]


@pytest.mark.long
@pytest.mark.parametrize("kubeflow", ON_THE_CLUSTER)
def test_it_knows_notebooks_as_they_were_a_moment_ago(room: Room, kubeflow: Kubeflow) -> None:
    """So does the real one: a watch brings it what is new, later than whoever asks the apiserver."""
    with room.cluster.notebook_controller(kubeflow, room.namespace, informer_delay_s=scaled(2)) as late:
        room.create()
        room.wait_stateful_set()
        room.annotate_with({STOPPED: "now"})
        with contextlib.suppress(Refused):  # the status of a Notebook that has changed meanwhile
            late.reconcile(room.namespace, "mine")
        assert room.stateful_set()["spec"]["replicas"] == 1
        wait_until(lambda: room.stateful_set()["spec"]["replicas"] == 0, "the stop is seen")


def test_its_perpetual_put_is_a_no_op_for_the_apiserver(controller: NotebookController, room: Room) -> None:
    room.create()
    room.wait_running()

    def look() -> tuple[str, str]:
        return version(room.stateful_set()), version(room.notebook())

    before = wait_until_settled(look)
    puts = controller.puts
    for _ in range(3):
        controller.reconcile(room.namespace, "mine")
    assert controller.puts == puts + 3
    assert wait_until_settled(look, quiet_s=2) == before


def test_a_notebook_in_deletion_is_left_alone_and_its_objects_go(
    controller: NotebookController, room: Room
) -> None:
    room.create()
    room.wait_running()
    room.client.delete(f"{room.notebooks}/mine", {"propagationPolicy": "Foreground"})
    wait_until(lambda: not room.client.exists(f"{room.notebooks}/mine"), limit_s=30)
    assert not room.client.exists(f"{room.stateful_sets}/mine")
    # Kubernetes' StatefulSet controller may have made the pod anew, which had not seen the deletion yet.
    wait_until(lambda: room.pod() is None, room.pod, 30)


@pytest.mark.long
def test_it_goes_on_after_the_apiserver_was_killed(controller: NotebookController, room: Room) -> None:
    room.create()
    room.wait_running()
    room.cluster.apiserver.restart(signal.SIGKILL)
    room.annotate_with({STOPPED: "now"})
    wait_until(lambda: room.pod() is None, "stopped", 40)


def test_the_node_lets_nothing_run_that_asks_for_a_size_untranslated(
    controller: NotebookController, room: Room
) -> None:
    room.create("plain")
    room.create("asks", limits={"bitfusion.io/gpu-amount": "2"})
    room.wait_running("plain")
    words = "0/1 nodes are available: 1 Insufficient bitfusion.io/gpu-amount."

    def told() -> bool:
        conditions = (room.pod("asks") or {"status": {}})["status"].get("conditions") or [{}]
        return bool(conditions[0].get("message") == words)

    wait_until(told, limit_s=20)
    pod = room.pod("asks")
    assert pod is not None
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["phase"] == "Pending"
