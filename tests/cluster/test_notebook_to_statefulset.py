"""From the form's Notebook to the StatefulSet and its pod.

The webhooks and the reconciler are one process beside a real control plane; Kubeflow's notebook controller is
played as up to 1.7 and as since 1.8.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import STOPPED, Kubeflow
from tests.cluster.notebooks import PROFILE, Room, generation, version
from tests.cluster.our_controller import OurController, our_controller
from tests.support.machine import scaled
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until, wait_until_settled

INJECTION = "auto-management/bitfusion"
OS, VERSION = "bitfusion-client/os", "bitfusion-client/version"
REQUEST, PENDING = "bitfusion.io/request", "bitfusion.io/pending"
REQUESTED = "bitfusion.io/requested"
DEFAULTS = {INJECTION: "injection", OS: "ubuntu22", VERSION: "454"}

SIZES = {
    "two GPUs": {"bitfusion.io/gpu-amount": "2"},
    "half a GPU": {"bitfusion.io/gpu-50": "1"},
    "8 GiB": {"bitfusion.io/gpu-8gib": "1"},
    "three halves": {"bitfusion.io/gpu-3x50": "1"},
}
# By kubectl also in words that are no choice of the form; and the form of 1.4 to 1.6 posts a number.
MORE_SIZES = {
    "a number": {"bitfusion.io/gpu-amount": 2},
    "amount and percent": {"bitfusion.io/gpu-amount": "2", "bitfusion.io/gpu-percent": "30"},
    "amount and memory": {"bitfusion.io/gpu-amount": "1", "bitfusion.io/gpu-memory": "8000M"},
}


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Iterator[OurController]:
    with our_controller(cluster) as running:
        yield running


@pytest.fixture(
    params=[pytest.param("1.7", id="up to 1.7", marks=pytest.mark.long), pytest.param("1.8", id="since 1.8")]
)
def kubeflow(request: pytest.FixtureRequest) -> Kubeflow:
    generation: Kubeflow = request.param
    return generation


@pytest.fixture
def room(cluster: Cluster, ours: OurController, kubeflow: Kubeflow) -> Iterator[Room]:
    """A user's namespace in which Kubeflow's controller and a node are at work."""
    room = Room(cluster)
    with (
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace) as controller,
    ):
        room.controller = controller
        yield room


def ours_of(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if "bitfusion" in key}


def notebook_annotations(room: Room, name: str = "mine") -> dict[str, str]:
    annotations: dict[str, str] = room.notebook(name)["metadata"]["annotations"]
    return annotations


def limits_of(thing: Object) -> dict[str, str]:
    limits: dict[str, str] = thing["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return limits


def events(room: Room, name: str = "mine") -> list[str]:
    """What is told on the Notebook: reason and message of each Event."""
    listed = room.client.get(f"/api/v1/namespaces/{room.namespace}/events")["items"]
    return [
        f"{each['reason']}: {each['message']}"
        for each in listed
        if each["involvedObject"]["kind"] == "Notebook" and each["involvedObject"]["name"] == name
    ]


class History:
    """Every state of one StatefulSet, in order, as a watch tells it."""

    def __init__(self) -> None:
        self.states: list[Object] = []

    def version(self) -> int:
        """The last that was told; the apiserver counts them up."""
        return int(version(self.states[-1])) if self.states else 0

    def replicas_and_annotations(self) -> list[tuple[int, dict[str, str]]]:
        """Consecutive states that differ in these two."""
        found: list[tuple[int, dict[str, str]]] = []
        for state in self.states:
            template = state["spec"]["template"]["metadata"]
            pair = (state["spec"]["replicas"], ours_of(template.get("annotations") or {}))
            if not found or found[-1] != pair:
                found.append(pair)
        return found


@contextmanager
def history(room: Room, name: str = "mine") -> Iterator[History]:
    """What happens to a StatefulSet within the block; complete when the block has ended."""
    told = History()
    with room.client.watch(room.stateful_sets, fieldSelector=f"metadata.name={name}") as watch:

        def follow() -> None:
            for event in watch:
                told.states.append(event["object"])

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield told
            last = int(version(room.stateful_set(name)))
            wait_until(lambda: told.version() >= last, "the watch has told everything", 10)
        finally:
            watch.close()
            thread.join(scaled(10))


def gets_revisions(room: Room, before: set[str], count: int) -> None:
    """There come to be so many since, and no more."""
    wait_until(lambda: len(room.revisions() - before) >= count, "the new revision", 20)
    assert len(wait_until_settled(lambda: room.revisions() - before)) == count


# A notebook's life.


@pytest.mark.parametrize("size", [*SIZES.values(), *MORE_SIZES.values()], ids=[*SIZES, *MORE_SIZES])
def test_a_size_reaches_the_pod(room: Room, size: dict[str, str | int]) -> None:
    made = room.create(limits=size)
    assert limits_of(made) == {"cpu": "0.6", "memory": "1.2Gi", **size}
    assert ours_of(made["metadata"]["annotations"]) == DEFAULTS
    assert made["metadata"]["labels"][REQUESTED] == "true"
    pod = room.wait_running()
    assert ours_of(pod["metadata"]["annotations"]) == DEFAULTS
    assert ours_of(room.template_annotations()) == DEFAULTS
    assert limits_of(room.notebook()) == limits_of(made)
    assert limits_of(room.stateful_set()).keys() == limits_of(made).keys()
    assert generation(room.stateful_set()) == 1
    assert len(room.revisions()) == 1


def test_the_dry_run_of_the_form_is_answered_alike_and_leaves_nothing(room: Room) -> None:
    body = form_notebook("mine", SIZES["two GPUs"], namespace=room.namespace)
    dry = room.client.create(room.notebooks, body, dryRun="All")
    assert ours_of(dry["metadata"]["annotations"]) == DEFAULTS
    assert room.client.get(room.notebooks)["items"] == []


def test_a_notebook_without_gpus_is_left_as_it_was_posted(room: Room) -> None:
    posted = form_notebook("mine", namespace=room.namespace)
    made = room.post(posted)
    assert made["metadata"]["annotations"] == posted["metadata"]["annotations"]
    assert made["metadata"]["labels"] == posted["metadata"]["labels"]
    assert made["spec"] == posted["spec"]
    pod = room.wait_running()
    assert not ours_of(pod["metadata"].get("annotations") or {})


@pytest.mark.long
def test_nothing_is_written_while_nothing_happens(cluster: Cluster, ours: OurController) -> None:
    rooms = {"1.7": Room(cluster), "1.8": Room(cluster)}
    names = {f"idle-{number}": size for number, size in enumerate(SIZES.values())}
    with ExitStack() as stack:
        for kubeflow, room in rooms.items():
            stack.enter_context(cluster.node_stub(room.namespace))
            room.controller = stack.enter_context(
                cluster.notebook_controller("1.7" if kubeflow == "1.7" else "1.8", room.namespace)
            )
            for name, size in names.items():
                room.create(name, limits=size)
        for room in rooms.values():
            for name in names:
                room.wait_running(name)

        def versions() -> list[str]:
            each = [(room, name) for room in rooms.values() for name in names]
            return [
                version(thing)
                for room, name in each
                for thing in (room.notebook(name), room.stateful_set(name))
            ]

        def work() -> tuple[object, list[int]]:
            return ours.metrics("bitfusion_admission_reviews"), [
                room.controller.puts for room in rooms.values()
            ]

        before = wait_until_settled(versions, quiet_s=2)
        done = work()
        assert done[0]
        time.sleep(10)
        assert versions() == before
        assert work() == done
        # What Kubeflow's controller does at each of its own restarts and resyncs.
        for room in rooms.values():
            for name in names:
                room.controller.reconcile(room.namespace, name)
        assert work() != done
        assert wait_until_settled(versions, quiet_s=1) == before


def test_the_life_of_a_notebook(room: Room) -> None:
    foreign = {"other.io/tool": "kept"}
    room.create(limits={"bitfusion.io/gpu-amount": "2"}, annotations=foreign)
    room.wait_running()
    template = {"metadata": {"annotations": {"other.io/template": "kept"}}}
    room.client.merge(f"{room.stateful_sets}/mine", {"spec": {"template": template}})
    wait_until(lambda: len(room.revisions()) == 2, "that tool's own change of the template", 10)

    # Another size in the limits: Kubeflow restarts the notebook by itself, once.
    revisions = room.revisions()
    change = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/resources/limits/bitfusion.io~1gpu-amount",
    }
    room.client.patch(f"{room.notebooks}/mine", [{**change, "value": "4"}])
    wait_until(lambda: limits_of(room.stateful_set())["bitfusion.io/gpu-amount"] == "4", limit_s=20)
    wait_until_settled(lambda: generation(room.stateful_set()))
    gets_revisions(room, revisions, 1)
    room.wait_running()

    room.stop()
    assert room.stateful_set()["spec"]["replicas"] == 0
    assert ours_of(room.template_annotations()) == DEFAULTS
    pod = room.start()
    assert ours_of(pod["metadata"]["annotations"]) == DEFAULTS
    assert len(room.revisions() - revisions) == 1

    # No GPU any more: what was ours goes from everywhere, what is another's stays.
    room.client.patch(f"{room.notebooks}/mine", [{"op": "remove", "path": change["path"]}])
    wait_until(lambda: not ours_of(notebook_annotations(room)), limit_s=20)
    assert REQUESTED not in room.notebook()["metadata"]["labels"]
    wait_until(lambda: not ours_of(room.template_annotations()), limit_s=20)
    wait_until_settled(lambda: generation(room.stateful_set()))
    gets_revisions(room, revisions, 2)
    assert notebook_annotations(room)["other.io/tool"] == "kept"
    assert room.template_annotations()["other.io/template"] == "kept"

    room.client.delete(f"{room.notebooks}/mine", {"propagationPolicy": "Foreground"})
    wait_until(lambda: not room.client.exists(f"{room.notebooks}/mine"), limit_s=30)
    assert not room.client.exists(f"{room.stateful_sets}/mine")
    # Kubernetes' StatefulSet controller may have made the pod anew, which had not seen the deletion yet.
    wait_until(lambda: room.pod() is None, room.pod, 30)


def test_applying_the_same_file_again_says_unchanged(room: Room) -> None:
    notebook = form_notebook(
        "mine", SIZES["half a GPU"], annotations={"own/note": "1"}, namespace=room.namespace
    )
    text = json.dumps(notebook)
    assert room.cluster.kubectl("apply", "-f", "-", input=text) == "notebook.kubeflow.org/mine created\n"
    room.wait_running()
    wait_until_settled(lambda: version(room.notebook()))
    for _ in range(2):
        said = room.cluster.kubectl("apply", "-f", "-", input=text)
        assert said == "notebook.kubeflow.org/mine unchanged\n"
    assert ours_of(notebook_annotations(room)) == DEFAULTS


def test_a_users_own_annotations_win(room: Room) -> None:
    own = {OS: "centos8", VERSION: "450"}
    room.create(limits=SIZES["two GPUs"], annotations=own)
    expected = {INJECTION: "injection", **own}
    assert ours_of(notebook_annotations(room)) == expected
    pod = room.wait_running()
    assert ours_of(pod["metadata"]["annotations"]) == expected


def test_a_namespace_that_is_no_profile_is_left_to_the_reconciler(
    cluster: Cluster, ours: OurController
) -> None:
    room = Room(cluster, labels={})
    assert (
        not PROFILE.keys()
        & cluster.client.get(f"/api/v1/namespaces/{room.namespace}")["metadata"]["labels"].keys()
    )
    made = room.create(limits=SIZES["two GPUs"])
    assert not ours_of(made["metadata"]["annotations"])
    wait_until(lambda: ours_of(room.notebook()["metadata"]["annotations"]) == DEFAULTS, limit_s=20)


# A running notebook is not restarted.


def running_half(room: Room) -> Object:
    room.create(limits=SIZES["half a GPU"])
    pod = room.wait_running()
    wait_until_settled(lambda: (version(room.notebook()), version(room.stateful_set())))
    return pod


def test_another_size_waits_for_the_stop_and_comes_with_it_in_the_same_write(room: Room) -> None:
    pod = running_half(room)
    before, revisions = room.stateful_set(), room.revisions()
    room.annotate_with({REQUEST: "-n 2"})

    wait_until(lambda: PENDING in notebook_annotations(room), limit_s=10)
    words = "2 GPUs instead of 1 GPU × 50 %, from the next start"
    assert notebook_annotations(room)[PENDING] == words
    wait_until(lambda: any(words in each for each in events(room)), limit_s=5)
    wait_until_settled(lambda: version(room.stateful_set()))
    running = room.stateful_set()
    assert generation(running) == generation(before)
    assert running["spec"]["template"] == before["spec"]["template"]
    assert room.wait_running()["metadata"]["uid"] == pod["metadata"]["uid"]

    with history(room) as told:
        room.stop()
        wait_until(lambda: PENDING not in notebook_annotations(room), limit_s=10)
    old, new = DEFAULTS, {**DEFAULTS, REQUEST: "-n 2"}
    assert told.replicas_and_annotations() == [(1, old), (0, new)]
    after = room.start()
    assert ours_of(after["metadata"]["annotations"]) == new
    wait_until_settled(lambda: version(room.stateful_set()))
    assert len(room.revisions() - revisions) == 1
    assert PENDING not in room.template_annotations()


def test_a_size_changed_while_stopped_comes_with_the_start(room: Room) -> None:
    running_half(room)
    revisions = room.revisions()
    room.stop()
    with history(room) as told:
        # As somebody does who edits the YAML: size and start at once.
        room.annotate_with({REQUEST: "-n 2", STOPPED: None})
        after = room.wait_running()
    new = {**DEFAULTS, REQUEST: "-n 2"}
    # Before the start by the reconciler, or with it by admission: whoever comes first.
    assert told.replicas_and_annotations() in ([(0, DEFAULTS), (0, new), (1, new)], [(0, DEFAULTS), (1, new)])
    assert ours_of(after["metadata"]["annotations"]) == new
    wait_until_settled(lambda: version(room.stateful_set()))
    assert len(room.revisions() - revisions) == 1
    wait_until(lambda: PENDING not in notebook_annotations(room), limit_s=10)


def test_a_size_changed_while_stopped_is_there_before_the_start(room: Room) -> None:
    running_half(room)
    room.stop()
    room.annotate_with({REQUEST: "-n 2"})
    wait_until(lambda: room.template_annotations().get(REQUEST) == "-n 2", limit_s=10)
    assert room.stateful_set()["spec"]["replicas"] == 0
    pod = room.start()
    assert pod["metadata"]["annotations"][REQUEST] == "-n 2"


def test_a_change_taken_back_is_pending_no_more(room: Room) -> None:
    pod = running_half(room)
    before = generation(room.stateful_set())
    room.annotate_with({REQUEST: "-n 2"})
    wait_until(lambda: PENDING in notebook_annotations(room), limit_s=10)
    room.annotate_with({REQUEST: None})
    wait_until(lambda: PENDING not in notebook_annotations(room), limit_s=10)
    assert generation(room.stateful_set()) == before
    assert room.wait_running()["metadata"]["uid"] == pod["metadata"]["uid"]


def test_the_pending_change_shows_in_kubectl_describe(room: Room) -> None:
    running_half(room)
    room.annotate_with({REQUEST: "-n 2"})
    words = "2 GPUs instead of 1 GPU × 50 %, from the next start"
    wait_until(lambda: any(words in each for each in events(room)), limit_s=10)
    wait_until(lambda: notebook_annotations(room).get(PENDING) == words, limit_s=10)
    described = room.cluster.kubectl("describe", "notebook", "mine", "-n", room.namespace)
    assert described.count(words) >= 2  # the annotation, and the Event


def test_stop_and_start_while_the_pod_ends_gives_one_new_pod(
    cluster: Cluster, ours: OurController, kubeflow: Kubeflow
) -> None:
    room = Room(cluster)
    with (
        cluster.node_stub(room.namespace, termination_s=2.0),
        cluster.notebook_controller(kubeflow, room.namespace),
    ):
        first = running_half(room)
        revisions = room.revisions()
        room.annotate_with({REQUEST: "-n 2"})
        wait_until(lambda: PENDING in notebook_annotations(room), limit_s=10)
        room.annotate_with({STOPPED: "now"})
        wait_until(lambda: room.stateful_set()["spec"]["replicas"] == 0, limit_s=10)
        room.annotate_with({STOPPED: None})

        def another() -> Object | None:
            pod = room.pod()
            ready = pod and pod["status"].get("phase") == "Running"
            return pod if pod and ready and pod["metadata"]["uid"] != first["metadata"]["uid"] else None

        pod: Object = wait_until(another, limit_s=20)
        assert pod["metadata"]["annotations"][REQUEST] == "-n 2"
        wait_until_settled(lambda: version(room.stateful_set()), quiet_s=2)
        last = room.pod()
        assert last is not None
        assert last["metadata"]["uid"] == pod["metadata"]["uid"]
        assert len(room.revisions() - revisions) == 1
        wait_until(lambda: PENDING not in notebook_annotations(room), limit_s=10)


def test_a_spec_edit_of_a_running_notebook_is_warned_of(room: Room) -> None:
    running_half(room)
    del room.client.warnings[:]
    image = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "i:2"}
    room.client.patch(f"{room.notebooks}/mine", [image])
    assert any("restart" in warning for warning in room.client.warnings), room.client.warnings
