"""`bitfusion run` where GPU pods stand in queues of a real Kueue: place, admission, preemption are told."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.command.client_lines import Waiting
from bitfusion_client.command.client_output import parse_line
from tests.cluster.kueue import Kueue
from tests.cluster.rights import may
from tests.pods.command.gpu_node import NODE
from tests.pods.command.notebook import Command, Notebook, notebook_in
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(180)]

FOR_EVER = ("sh", "-c", "echo runs; exec sleep 600")
MINE = ("run", "-n", "1", "--", "echo", "mine")
ROLES = Path(__file__).parents[3] / "manifests" / "components" / "kueue-places" / "roles.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SEES_PLACES = [
    {
        "group": "visibility.kueue.x-k8s.io",
        "resource": "localqueues",
        "subresource": "pendingworkloads",
        "verb": "get",
    },
    {"group": "kueue.x-k8s.io", "resource": "workloads", "verb": "list"},
]
_AGGREGATE = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-"
LOST = "Error: GPU pod lost: Kueue gave the GPU to others, who have priority"
AGAIN = (
    "What to do: run the cells again from the first one: a new pod is made for them. "
    "It joins the queue again."
)
_numbers = count(1)

NotebookOf = Callable[..., Notebook]


@pytest.fixture(scope="module", autouse=True)
def prepared(kueue: Kueue) -> None:
    """A flavor, a priority, and Kubeflow's roles that take ours in (kubeflow/manifests, kubeflow-roles)."""
    kueue.flavor("plain")
    client = kueue.cluster.client
    # Pods on a node that there is not are deleted after 40 s, by the collector of garbage.
    client.create("/api/v1/nodes", {"metadata": {"name": NODE}})
    client.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "first"}, "value": 1000}
    )
    for name in ("edit", "view"):
        labels = {f"{_AGGREGATE}edit": "true"} if name == "view" else {}
        role = {
            "metadata": {"name": f"kubeflow-{name}", "labels": labels},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {f"{_AGGREGATE}{name}": "true"}}]},
            "rules": [],
        }
        client.create(f"{RBAC}/clusterroles", role)
    kueue.cluster.kubectl("apply", "--filename", str(ROLES))
    wait_until(lambda: client.get(f"{RBAC}/clusterroles/kubeflow-edit")["rules"], "the roles are aggregated")


@pytest.fixture
def queue(kueue: Kueue) -> str:
    """A ClusterQueue with one GPU."""
    return cluster_queue(kueue)


def cluster_queue(kueue: Kueue, gpus: int = 1, **spec: object) -> str:
    name = f"gpus-{next(_numbers)}"
    kueue.cluster_queue(name, gpus, "plain", **spec)
    return name


@pytest.fixture
def notebook(kueue: Kueue, tmp_path: Path) -> Iterator[NotebookOf]:
    """Makes one, in a namespace of its own with a LocalQueue of this ClusterQueue."""
    with ExitStack() as stack:

        def made(of: str, local: str = "team", sees_places: bool = True) -> Notebook:
            folder = tmp_path / str(next(_numbers))
            folder.mkdir()
            found = stack.enter_context(notebook_in(kueue.cluster, folder))
            kueue.local_queue(found.namespace, local, of)
            if sees_places:
                _bind(found)
            return found

        yield made


def _bind(notebook: Notebook) -> None:
    account = {"kind": "ServiceAccount", "name": "default-editor", "namespace": notebook.namespace}
    binding = {
        "metadata": {"name": "default-editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubeflow-edit"},
        "subjects": [account],
    }
    client = notebook.cluster.client
    client.create(f"{RBAC}/namespaces/{notebook.namespace}/rolebindings", binding)
    user = f"system:serviceaccount:{notebook.namespace}:default-editor"
    for asked in SEES_PLACES:  # who is refused once is told no place
        wait_until(partial(may, client, user, namespace=notebook.namespace, **asked), "its rights")


def start(notebook: Notebook, *words: str, local: str = "team", **settings: Any) -> Command:
    return notebook.start(*words, queues={"*": local}, **settings)


def holding(notebook: Notebook, **settings: Any) -> Command:
    """A command whose program runs."""
    command = start(notebook, "run", "-n", "1", "--", *FOR_EVER, **settings)
    assert command.stdout is not None
    assert command.stdout.readline() == b"runs\n", command.finish()
    return command


def a_second_later() -> None:
    """Who comes in one second is sorted by the pods' uids: a Workload's time has whole seconds."""
    time.sleep(1.1)


def no_workload(kueue: Kueue, namespace: str) -> bool:
    return not kueue.workloads(namespace)


def ended(command: Command) -> str:
    command.terminate()
    assert command.finish() == 128 + signal.SIGTERM
    return command.told


def lost_line(command: Command) -> str:
    """What a command whose pod was taken says in the end."""
    assert command.finish() == 128 + signal.SIGTERM, command.told
    (error,) = [line for line in command.told.splitlines() if line.startswith("Error: ")]
    return error


def test_who_waits_is_told_the_place_until_it_is_the_turn(
    kueue: Kueue, queue: str, notebook: NotebookOf
) -> None:
    first, second, third = notebook(queue), notebook(queue), notebook(queue)
    holder = holding(first)
    next_one = start(second, *MINE)
    next_one.until_told(
        "position 1 of 1; why: Kueue: about 1st of 1, the queue's quota of nvidia.com/gpu is used up"
    )
    a_second_later()
    last = start(third, *MINE)
    last.until_told("position 2 of 2; why: Kueue: about 2nd of 2, ")
    told = parse_line(last.told.splitlines()[-1])
    assert isinstance(told, Waiting), "as a kernel reads it"
    assert (told.queue_position, told.queue_length) == (2, 2)
    assert told.why == "Kueue: about 2nd of 2, the queue's quota of nvidia.com/gpu is used up"
    next_one.send_signal(signal.SIGINT)
    assert next_one.finish() == 128 + signal.SIGINT
    last.until_told("position 1 of 1; why: Kueue: about 1st of 1, ")
    ended(holder)
    assert (last.finish(), last.said) == (0, b"mine\n"), last.told
    for each in (first, second, third):
        assert not each.gpu_pods()
        wait_until(partial(no_workload, kueue, each.namespace), "Kubernetes collects the Workloads", 20)


def test_queues_of_other_names_are_before_one_too(kueue: Kueue, queue: str, notebook: NotebookOf) -> None:
    first, second, third = (notebook(queue, local=name) for name in ("red", "green", "blue"))
    holder = holding(first, local="red")
    next_one = start(second, *MINE, local="green")
    next_one.until_told("Kueue: about 1st of 1, ")
    a_second_later()
    last = start(third, *MINE, local="blue")
    last.until_told("position 2 of 2; why: Kueue: about 2nd of 2 or more, ")
    ended(holder)
    for each in (next_one, last):
        assert (each.finish(), each.said) == (0, b"mine\n"), each.told


def test_one_container_after_another_gets_the_gpu(queue: str, notebook: NotebookOf) -> None:
    """Its own second program waits, too: each is a pod of the queue."""
    mine = notebook(queue)
    holder = holding(mine)
    waiter = start(mine, *MINE)
    waiter.until_told("Kueue: about 1st of 1, ")
    ended(holder)
    assert (waiter.finish(), waiter.said) == (0, b"mine\n"), waiter.told


@pytest.mark.parametrize("sees_places", [True, False])
def test_more_than_the_queue_ever_has_is_an_error_at_once(
    queue: str, notebook: NotebookOf, sees_places: bool
) -> None:
    mine = notebook(queue, sees_places=sees_places)
    asked = start(mine, "run", "-n", "2", "--", "true")
    assert asked.finish() == 1
    assert "Error: GPU pod: Kueue: the queue can never provide so much nvidia.com/gpu" in asked.told
    assert "ask for less, or ask your administrator for more in the queue team." in asked.told
    assert not mine.gpu_pods()


def test_without_the_right_to_see_places_the_reason_is_told(queue: str, notebook: NotebookOf) -> None:
    mine = notebook(queue, sees_places=False)
    holder = holding(mine)
    waiter = start(mine, *MINE)
    waiter.until_told("why: Kueue: waiting in the queue team, the queue's quota of nvidia.com/gpu is used up")
    assert "position" not in waiter.told
    ended(holder)
    assert waiter.finish() == 0, waiter.told


def test_a_cluster_queue_without_cpu_is_told(queue: str, notebook: NotebookOf) -> None:
    mine = notebook(queue)
    asked = start(mine, *MINE, cpu=1)
    assert asked.finish() == 1
    assert "Error: GPU pod: Kueue: the queue has no cpu" in asked.told
    assert "ask your administrator: the ClusterQueue of the queue team must cover it" in asked.told


def test_a_queue_that_is_not_there_is_told(queue: str, notebook: NotebookOf) -> None:
    mine = notebook(queue)
    asked = start(mine, *MINE, local="elsewhere")
    assert asked.finish() == 1
    assert "Error: GPU pod: Kueue: LocalQueue elsewhere doesn't exist" in asked.told
    assert "the settings for GPU pods name the queue elsewhere" in asked.told


def test_who_is_preempted_is_told_and_queues_again(kueue: Kueue, notebook: NotebookOf) -> None:
    of = cluster_queue(kueue, preemption={"withinClusterQueue": "LowerPriority"})
    mine, others = notebook(of), notebook(of)
    holder = holding(mine)
    urgent = holding(others, pod={"spec": {"priorityClassName": "first"}})
    assert lost_line(holder) == f"{LOST} (prioritization in the ClusterQueue). {AGAIN}"
    again = start(mine, *MINE)
    again.until_told("Kueue: about 1st of 1, ")
    ended(urgent)
    assert (again.finish(), again.said) == (0, b"mine\n"), again.told


def test_who_has_borrowed_gives_back_to_the_owner(kueue: Kueue, notebook: NotebookOf) -> None:
    """Two ClusterQueues of a cohort, of which one has nothing of its own."""
    cohort = f"cohort-{next(_numbers)}"
    guests = cluster_queue(kueue, gpus=0, cohortName=cohort)
    owners = cluster_queue(kueue, cohortName=cohort, preemption={"reclaimWithinCohort": "Any"})
    guest, owner = notebook(guests), notebook(owners)
    borrowed = holding(guest)
    own = holding(owner)
    assert lost_line(borrowed) == f"{LOST} (reclamation within the cohort). {AGAIN}"
    again = start(guest, *MINE)
    again.until_told("Kueue: about 1st of 1, the queue's quota of nvidia.com/gpu is used up")
    ended(own)
    assert (again.finish(), again.said) == (0, b"mine\n"), again.told


def test_a_gate_that_a_user_lifts_is_no_way_past_the_queue(queue: str, notebook: NotebookOf) -> None:
    """A profile's contributor may patch pods, and so their gates: Kueue deletes what it has not admitted.

    Until it does, for half a second, the program may run.
    """
    mine = notebook(queue)
    holder = holding(mine)
    waiter = start(mine, "run", "-n", "1", "--", "sh", "-c", "sleep 20; echo mine")
    waiter.until_told("Kueue: about 1st of 1, ")
    (gated,) = [pod for pod in mine.gpu_pods() if pod["spec"].get("schedulingGates")]
    path = f"/api/v1/namespaces/{mine.namespace}/pods/{gated['metadata']['name']}"
    cluster = mine.cluster
    me = cluster.client_as(cluster.service_account_token(mine.namespace, "default-editor"))
    me.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}])
    assert waiter.finish() != 0
    assert waiter.said == b""
    assert "Kueue ended the pod: Not admitted by cluster queue" in waiter.told
    ended(holder)


def test_a_stopped_queue_is_told(kueue: Kueue, queue: str, notebook: NotebookOf) -> None:
    mine = notebook(queue)
    holder = holding(mine)
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
    kueue.cluster.client.merge(path, {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert holder.finish() == 128 + signal.SIGTERM, holder.told
    assert "Error: GPU pod lost: the queue was stopped: " in holder.told
    waiter = start(mine, *MINE)
    waiter.until_told("is inactive")
    kueue.cluster.client.merge(path, {"spec": {"stopPolicy": "None"}})
    assert waiter.finish() == 0, waiter.told


def test_kueue_may_be_away_while_a_program_runs(kueue: Kueue, queue: str, notebook: NotebookOf) -> None:
    """Its finalizer keeps the pod, which has ended and holds no GPU; a new one waits until it is back."""
    mine = notebook(queue)
    holder = holding(mine)
    kueue.process.kill()
    try:
        assert "may still exist: it still exists" in ended(holder)
        assert mine.node.held == 0
        waiter = start(mine, *MINE)
        waiter.until_told("why: the admission webhook mpod.kb.io does not answer")
    finally:
        kueue.process.start()
    assert (waiter.finish(), waiter.said) == (0, b"mine\n"), waiter.told
    wait_until(lambda: not mine.gpu_pods(), "its pod is gone", 20)
