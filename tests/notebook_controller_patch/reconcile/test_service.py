"""The whole reconciler of one or two replicas against a server on loopback that misbehaves.

What is asserted: that it converges, that a second look finds nothing to do, and how many requests it took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from prometheus_client import CollectorRegistry

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.paths import NAMESPACES
from bitfusion_cluster.leading.election import Candidate, LeaseTimes
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from bitfusion_cluster.watching.watched_resource import WatchLimits
from notebook_controller_patch.reconcile import term
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.decisions import Assessment
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
from notebook_controller_patch.reconcile.service import ReconcileService
from notebook_controller_patch.reconcile.writer import Writer
from tests.bitfusion_cluster.fake_api import (
    DELETE,
    GET,
    LIST,
    PATCH,
    POST,
    WATCH,
    FakeApi,
    Handler,
)
from tests.bitfusion_cluster.faults import reset, stall, status, status_object
from tests.notebook_controller_patch.reconcile.objects import (
    CLIENT,
    EVENTS,
    LABEL,
    LEASES,
    NOTEBOOKS,
    OS,
    PENDING,
    PODS,
    REQUEST,
    STATEFULSETS,
    Object,
    admitted,
    notebook,
    pod,
    statefulset,
)
from tests.support import apiserver_answers as answers
from tests.support.machine import scaled
from tests.support.waiting import wait_until, wait_until_settled

TWO = {"bitfusion.io/gpu-amount": "2"}
LIMITS = WatchLimits(
    page=100,
    shortest_watch=30,
    longest_watch=40,
    quiet=20,
    first_delay=0.1,
    longest_delay=0.4,
    list_timeout=(10, 10),
    watch_timeout=(10, 10),
)
# a leader that the machine lets sleep for seconds still leads
TIMES = LeaseTimes(duration=60, renew_within=40, retry=0.2, timeout=(10, 10))
SHORT_TIMES = LeaseTimes(duration=3, renew_within=2, retry=0.2, timeout=(0.7, 0.7))
POD = f"{PODS.rpartition('/')[0]}/namespaces/ann/pods/nb-0"
WATCHED = f"{LEASES.rpartition('/')[0]}/"


Read = Callable[[Configuration], None]


def context(
    client: KubernetesApi, name: str, registry: CollectorRegistry, times: LeaseTimes = TIMES
) -> ReconcileContext:
    return ReconcileContext(
        api=client,
        candidate=Candidate("kubeflow", "bitfusion-notebook-controller", name, times),
        rules=lambda: DEFAULT_RULES,
        metrics=ReconcileMetrics(registry),
        watch_metrics=WatchMetrics(registry),
        watch_limits=LIMITS,
    )


class Replica:
    def __init__(self, api: FakeApi, name: str, read: Read | None, times: LeaseTimes) -> None:
        self.registry = CollectorRegistry()
        self.service = ReconcileService(context(api.client(read), name, self.registry, times))
        self.service.start()

    @property
    def leading(self) -> bool:
        return self.service.leading

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def replicas(api: FakeApi) -> Iterator[Any]:
    made: list[Replica] = []

    def start(name: str = "one", read: Read | None = None, times: LeaseTimes = TIMES) -> Replica:
        replica = Replica(api, name, read, times)
        made.append(replica)
        return replica

    yield start
    for replica in made:
        replica.service.stop(5)
    wait_until(lambda: not ours(), lambda: f"the end of the threads {ours()}", 5)


def ours() -> list[str]:
    names = ("watch-", "reconcile-", "election")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


def get(api: FakeApi, collection: str, name: str = "nb") -> Object:
    found = api.object(collection, "ann", name)
    assert found is not None
    return found


def notes(api: FakeApi, name: str = "nb") -> dict[str, str]:
    found: dict[str, str] = get(api, NOTEBOOKS, name)["metadata"].get("annotations") or {}
    return found


def template(api: FakeApi, name: str = "nb") -> dict[str, str]:
    metadata = get(api, STATEFULSETS, name)["spec"]["template"]["metadata"]
    return metadata.get("annotations") or {}


def has_client(api: FakeApi, name: str) -> bool:
    return OS in notes(api, name)


def reasons(api: FakeApi) -> list[str]:
    return sorted(event["reason"] for event in api.objects(EVENTS))


def work(api: FakeApi) -> int:
    """Requests of the reconciler itself: neither watches nor the lease."""
    return api.count(PATCH, POST, DELETE, GET) - api.count(path=WATCHED)


def writes(api: FakeApi, path: str = "") -> int:
    """Those that changed something: not what was tried again because the cache had not heard of it yet."""
    found = [request for request in api.written if not request.path.startswith(WATCHED)]
    return sum(1 for request in found if request.path.startswith(path))


def settled(api: FakeApi, replica: Replica, seconds: float = 0.5) -> int:
    """Wait until the reconciler has asked nothing for a while; how much it wrote in all."""
    wait_until_settled(partial(work, api), seconds)
    return writes(api)


def restart(api: FakeApi, name: str = "nb") -> None:
    """What the notebook controller and admission do when somebody stops and starts a notebook."""
    of = get(api, NOTEBOOKS, name)
    wanted = {key: value for key, value in of["metadata"]["annotations"].items() if key in {*CLIENT, REQUEST}}
    api.put(STATEFULSETS, statefulset(of, annotations=wanted))


def test_what_was_missed_while_nobody_was_there_is_healed(api: FakeApi, replicas: Any) -> None:
    missed = api.put(NOTEBOOKS, notebook("missed", TWO))
    api.put(STATEFULSETS, statefulset(missed, replicas=0))
    running = api.put(NOTEBOOKS, notebook("running", TWO))
    before = api.put(STATEFULSETS, statefulset(running))
    wrong = api.put(NOTEBOOKS, notebook("wrong", {"bitfusion.io/gpu-amount": "0"}))
    api.put(NOTEBOOKS, notebook("plain"))
    api.put(STATEFULSETS, {"metadata": {"name": "web", "namespace": "ann"}, "spec": {"replicas": 0}})
    replica = replicas()
    wait_until(lambda: template(api, "missed") == CLIENT and PENDING in notes(api, "running"))
    wait_until(lambda: reasons(api) == ["BitfusionChangePending", "BitfusionRequestRefused"])
    # two patches for the missed one, Event and patch for the running, one Event for the wrong
    wait_until(lambda: writes(api) == 5, lambda: api.written)
    assert settled(api, replica) == 5
    assert get(api, NOTEBOOKS, "missed")["metadata"]["labels"] == {LABEL: "true"}
    assert get(api, STATEFULSETS, "running")["metadata"] == before["metadata"], "a running notebook"
    assert get(api, NOTEBOOKS, "wrong")["metadata"] == wrong["metadata"]
    assert api.count(LIST) == 5, "four watches, and the Events about pods that were refused"
    assert replica.metric("bitfusion_reconcile_leader") == 1
    wait_until(lambda: replica.metric("bitfusion_reconcile_pending_notebooks") == 1)
    wait_until(lambda: replica.metric("bitfusion_reconcile_queued") == 0)


def test_a_change_waits_for_the_restart_and_is_told(api: FakeApi, replicas: Any) -> None:
    of = api.put(NOTEBOOKS, admitted())
    api.put(STATEFULSETS, statefulset(of, annotations=CLIENT))
    replica = replicas()
    wait_until(lambda: replica.leading and api.watching(STATEFULSETS))
    api.put(NOTEBOOKS, admitted(annotations={REQUEST: "-n 1 -p 0.5"}))
    wait_until(lambda: notes(api).get(PENDING) == "1 GPU × 50 % instead of 2 GPUs, from the next start")
    settled(api, replica)
    assert template(api) == CLIENT
    restart(api)
    wait_until(lambda: PENDING not in notes(api))
    wait_until(lambda: reasons(api) == ["BitfusionChangeApplied", "BitfusionChangePending"])
    # Event and patch, twice
    assert settled(api, replica) == 4


def test_what_admission_was_unsure_of_is_looked_at_again(api: FakeApi, replicas: Any) -> None:
    """It let a start through with the size of before; the pod, which nobody watches, comes a bit later."""
    of = api.put(NOTEBOOKS, admitted(annotations={REQUEST: "-n 2"}))
    old = {**CLIENT, REQUEST: "-n 1"}
    sts = api.put(STATEFULSETS, statefulset(of, ready=False, annotations=old))
    leader, other = replicas(), replicas("two")
    wait_until(lambda: leader.leading or other.leading)
    if other.leading:
        leader, other = other, leader
    wait_until(lambda: api.count(GET, path=POD))
    settled(api, leader)
    api.put(PODS, pod(sts, old))
    other.service.look_again("ann", "nb")  # it does not lead, and the leader looks by itself
    leader.service.look_again("ann", "no longer there")
    settled(api, leader)
    assert api.object(PODS, "ann", "nb-0") is not None
    leader.service.look_again("ann", "nb")
    wait_until(lambda: api.object(PODS, "ann", "nb-0") is None)
    assert template(api) == {**CLIENT, REQUEST: "-n 2"}
    assert "BitfusionPodRemade" in reasons(api)


def test_a_pod_that_can_never_start_is_made_again_once(api: FakeApi, replicas: Any) -> None:
    of = api.put(NOTEBOOKS, admitted())
    sts = api.put(STATEFULSETS, statefulset(of, ready=False, revising=True))
    api.put(PODS, pod(sts))
    replica = replicas()
    wait_until(lambda: api.object(PODS, "ann", "nb-0") is None)
    wait_until(lambda: template(api) == CLIENT)
    # the StatefulSet controller
    api.put(PODS, pod(get(api, STATEFULSETS), CLIENT) | {"spec": {"containers": []}})
    api.put(STATEFULSETS, statefulset(of, ready=False, annotations=CLIENT))
    wait_until(lambda: reasons(api) == ["BitfusionPodRemade"])
    # the pod's end, its Event and the template
    assert settled(api, replica) == 3
    assert api.count(DELETE) == 1


def test_a_pod_that_was_bound_meanwhile_is_not_deleted(api: FakeApi, replicas: Any) -> None:
    of = api.put(NOTEBOOKS, admitted())
    sts = api.put(STATEFULSETS, statefulset(of, ready=False, revising=True, annotations=CLIENT))
    api.put(PODS, pod(sts))

    def bind_first(handler: Handler) -> None:
        api.put(PODS, pod(sts, node="n1", phase="Running"))
        body = {"preconditions": {"uid": "uid-of-pod-nb", "resourceVersion": "103"}}
        api.serve(handler, "DELETE", "/api/v1/namespaces/ann/pods/nb-0", {}, body, arrived=False)

    api.misbehave(bind_first, DELETE)
    replica = replicas()
    wait_until(lambda: api.count(DELETE) == 1)
    settled(api, replica, 1.0)
    assert api.object(PODS, "ann", "nb-0") is not None
    assert api.count(DELETE) == 1


def test_a_notebook_that_starts_meanwhile_is_not_touched(api: FakeApi, replicas: Any) -> None:
    of = api.put(NOTEBOOKS, admitted())
    api.put(STATEFULSETS, statefulset(of, replicas=0))

    def start_first(handler: Handler) -> None:
        api.put(STATEFULSETS, statefulset(of, replicas=1))
        handler.answer(422, answers.patch_not_applied())

    api.misbehave(start_first, PATCH, STATEFULSETS.rpartition("/")[0] + "/namespaces")
    replica = replicas()
    wait_until(lambda: PENDING in notes(api))
    settled(api, replica)
    assert template(api) == {}


def test_foreign_writes_are_not_quarrelled_with_for_ever(api: FakeApi, replicas: Any) -> None:
    """Something else removes our label each time: bounded, and other notebooks go on."""
    api.put(NOTEBOOKS, notebook("nb", TWO))
    replica = replicas()
    ending = threading.Event()
    undone: list[Object] = []

    def undo() -> None:
        while not ending.wait(0.01):
            data = api.object(NOTEBOOKS, "ann", "nb")
            if data is not None and LABEL in (data["metadata"].get("labels") or {}):
                undone.append(api.put(NOTEBOOKS, notebook("nb", TWO)))

    quarreller = threading.Thread(target=undo)
    quarreller.start()
    try:
        wait_until(lambda: len(undone) >= 20)
        time.sleep(2.0)
        api.put(NOTEBOOKS, notebook("other", TWO))
        wait_until(lambda: OS in notes(api, "other"))
    finally:
        ending.set()
        quarreller.join(scaled(5))
    # 20 are free, then 1, 2, 4 s between them
    assert len(undone) <= 25
    assert replica.leading


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(status(500, "InternalError"), 4, id="500"),
        pytest.param(reset, 3, id="RST"),
        pytest.param(status(409, "Conflict"), 3, id="409"),
        pytest.param(status(429, "TooManyRequests", Retry_After="1"), 2, id="429"),
        pytest.param(status(504, "Timeout"), 2, id="504"),
    ],
)
def test_writes_that_fail_are_tried_again_later(api: FakeApi, replicas: Any, fault: Any, times: int) -> None:
    api.put(NOTEBOOKS, notebook("nb", TWO))
    api.misbehave(fault, PATCH, NOTEBOOKS.rpartition("/")[0], times=times)
    replica = replicas()
    wait_until(lambda: OS in notes(api), limit_s=20)
    assert settled(api, replica) == 1
    assert work(api) >= times + 1


def test_retry_after_holds_back_every_worker(
    api: FakeApi, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_back = threading.Event()
    pauses: list[tuple[float, float]] = []  # when each began and ended
    real = Writer.pause

    def pause(writer: Writer, seconds: float) -> None:
        began = time.monotonic()
        real(writer, seconds)
        pauses.append((began, time.monotonic()))
        held_back.set()

    def keep_the_other_worker(handler: Handler) -> None:
        held_back.wait(scaled(10))
        handler.answer(409, status_object(409, "Conflict"))

    monkeypatch.setattr(Writer, "pause", pause)
    names = [f"nb-{number}" for number in range(6)]
    for name in names:
        api.put(NOTEBOOKS, notebook(name, TWO))
    path = NOTEBOOKS.rpartition("/")[0]
    api.misbehave(status(429, "TooManyRequests", Retry_After="2"), PATCH, path)
    api.misbehave(keep_the_other_worker, PATCH, path)
    replicas()
    wait_until(lambda: all(has_client(api, name) for name in names), limit_s=20)
    ((began, ended),) = pauses
    at = [request.at for request in api.requests if request.verb == PATCH and request.path.startswith(path)]
    # one more may have been on its way in the other worker
    assert sum(1 for moment in at if ended <= moment < began + 2) <= 1


def test_many_notebooks_are_healed_at_a_limited_rate(api: FakeApi, replicas: Any) -> None:
    for number in range(40):
        api.put(NOTEBOOKS, notebook(f"nb-{number}", TWO))
    began = time.monotonic()
    replica = replicas()
    wait_until(lambda: all(OS in notes(api, f"nb-{number}") for number in range(40)), limit_s=20)
    assert settled(api, replica) == 40
    # 15 at once, then 15 a second
    assert max(request.at for request in api.written) - began >= 25 / 15


def test_only_the_leader_reconciles_and_the_next_one_takes_over(api: FakeApi, replicas: Any) -> None:
    one = replicas("one")
    wait_until(lambda: one.leading)
    two = replicas("two")
    wait_until(lambda: two.service.notebooks.synced())
    api.put(NOTEBOOKS, notebook("first", TWO))
    wait_until(lambda: OS in notes(api, "first"))
    wait_until(lambda: two.service.notebooks.get("ann", "first") is not None)
    assert not two.leading
    wait_until(lambda: api.watching(NOTEBOOKS) == 2)
    wait_until(lambda: api.watching(STATEFULSETS) == 1)
    assert settled(api, one) == 1, "by one of them"
    assert api.watching(STATEFULSETS) == 1, "the leader's"
    one.service.stop(5)
    api.put(NOTEBOOKS, notebook("second", TWO))
    wait_until(lambda: two.leading and OS in notes(api, "second"))
    assert settled(api, two) == 2


def test_a_leader_cut_off_stops_writing_before_the_next_one_begins(api: FakeApi, replicas: Any) -> None:
    one = replicas("one", times=SHORT_TIMES)
    wait_until(lambda: one.leading and api.watching(STATEFULSETS) == 1)
    # its renewals stall half-open; its watches go on
    api.misbehave(stall, PATCH, WATCHED, times=1000)
    wait_until(lambda: not one.leading)
    api.put(NOTEBOOKS, notebook("while-cut-off", TWO))
    time.sleep(0.3)
    assert OS not in notes(api, "while-cut-off")
    api.behave()
    two = replicas("two", times=SHORT_TIMES)
    wait_until(lambda: OS in notes(api, "while-cut-off"))
    wait_until(lambda: one.leading != two.leading)


def test_every_connection_cut_again_and_again(api: FakeApi, replicas: Any) -> None:
    replica = replicas()
    wait_until(lambda: replica.leading and api.watching(STATEFULSETS) == 1)
    asked = api.count(LIST, WATCH)
    for number in range(5):
        api.misbehave(reset, times=3)
        api.end_watches()
        api.put(NOTEBOOKS, notebook(f"nb-{number}", TWO))
        if number == 2:
            api.compact()
        wait_until(partial(has_client, api, f"nb-{number}"), limit_s=20)
    settled(api, replica)
    assert api.count(LIST, WATCH) - asked <= 5 * 2 * 6


def test_a_token_that_ran_out_is_replaced(api: FakeApi, replicas: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    api.token = "first"

    def read(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {token.read_text()}"

    replica = replicas("one", read)
    wait_until(lambda: replica.leading and api.watching(STATEFULSETS) == 1)
    began = time.monotonic()
    asked = api.count()
    api.token = "second"
    api.end_watches()
    time.sleep(1.5)
    refused = api.count() - asked
    # two watches at 0.05 s and more, lease at 0.1 s and more
    assert refused <= (time.monotonic() - began) / 0.1 * 3
    token.write_text("second")
    api.put(NOTEBOOKS, notebook("nb", TWO))
    wait_until(lambda: OS in notes(api))


def test_an_api_that_is_not_there_yet_is_waited_for(api: FakeApi, replicas: Any) -> None:
    api.misbehave(reset, times=12)
    api.put(NOTEBOOKS, notebook("nb", TWO))
    replica = replicas()
    wait_until(lambda: OS in notes(api), limit_s=20)
    assert replica.service.notebooks.synced()


def test_a_role_without_events_does_not_stop_the_rest(api: FakeApi, replicas: Any) -> None:
    api.misbehave(status(403, "Forbidden"), POST, "/api/v1/", times=100)
    of = api.put(NOTEBOOKS, admitted(annotations={REQUEST: "-n 4"}))
    api.put(STATEFULSETS, statefulset(of, annotations=CLIENT))
    replica = replicas()
    wait_until(lambda: PENDING in notes(api))
    settled(api, replica)
    assert 4 <= api.count(POST, path="/api/v1/") <= 9, "an Event is not tried for ever"
    assert api.objects(EVENTS) == []


def test_an_event_is_not_lost_because_the_server_has_just_started(api: FakeApi, replicas: Any) -> None:
    api.misbehave(status(403, "Forbidden"), POST, "/api/v1/", times=2)
    of = api.put(NOTEBOOKS, admitted(annotations={REQUEST: "-n 4"}))
    api.put(STATEFULSETS, statefulset(of, annotations=CLIENT))
    replicas()
    wait_until(lambda: PENDING in notes(api))
    assert reasons(api) == ["BitfusionChangePending"]


def test_a_bug_in_one_notebook_does_not_stop_the_others(
    api: FakeApi, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from notebook_controller_patch.reconcile import decisions, reconciler

    real = decisions.assess

    def assess(of: NotebookRecord, *rest: Any) -> Assessment | None:
        if of.name == "bad":
            raise ZeroDivisionError
        return real(of, *rest)

    monkeypatch.setattr(reconciler, "assess", assess)
    api.put(NOTEBOOKS, notebook("bad", TWO))
    api.put(NOTEBOOKS, notebook("good", TWO))
    began = time.monotonic()
    replica = replicas()
    wait_until(lambda: OS in notes(api, "good"))
    wait_until(lambda: replica.metric("bitfusion_reconcile_runs_total", result="error") >= 4)
    errors = replica.metric("bitfusion_reconcile_runs_total", result="error")
    # 0.25 s between the first two at least, then twice as long each time; one more for its Notebook's event
    assert 0.25 * (2 ** (errors - 2) - 1) <= time.monotonic() - began


def test_stop_is_quick_and_gives_the_lease_back(api: FakeApi, replicas: Any) -> None:
    replica = replicas()
    wait_until(lambda: replica.leading and api.watching(STATEFULSETS) == 1)
    began = time.monotonic()
    replica.service.stop(5)
    assert time.monotonic() - began < 25, "its watches would go on for 30 s"
    assert not replica.leading
    lease = api.object(LEASES, "kubeflow", "bitfusion-notebook-controller")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""
    assert replica.metric("bitfusion_reconcile_leader") == 0


def test_what_waits_is_shown_while_it_leads(
    api: FakeApi, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term, "ADMITTED_S", 600.0)
    replica = replicas()
    wait_until(lambda: replica.leading and api.watching(STATEFULSETS) == 1)
    for name in ("one", "two", "two"):
        replica.service.look_again("ann", name)
    wait_until(lambda: replica.metric("bitfusion_reconcile_queued") == 2)
    replica.service.stop(5)
    assert replica.metric("bitfusion_reconcile_queued") == 0


def test_a_service_that_was_never_started_can_be_stopped(api: FakeApi) -> None:
    ReconcileService(context(api.client(), "x", CollectorRegistry())).stop(1)
    assert api.count() == 0


def test_a_namespace_opts_out_and_in_again(api: FakeApi, replicas: Any) -> None:
    ignored = {"metadata": {"name": "ann", "labels": {"bitfusion.io/admission": "ignore"}}}
    api.put(NAMESPACES, ignored)
    api.put(NAMESPACES, {"metadata": {"name": "other"}})
    mine = api.put(NOTEBOOKS, notebook("mine", TWO))
    api.put(STATEFULSETS, statefulset(mine, replicas=0))
    replica = replicas()
    wait_until(lambda: replica.leading and api.watching(NAMESPACES) == 1)
    settled(api, replica)
    assert get(api, NOTEBOOKS, "mine")["metadata"] == mine["metadata"]
    assert template(api, "mine") == {}

    api.put(NAMESPACES, {"metadata": {"name": "ann"}})
    wait_until(lambda: template(api, "mine") == CLIENT)

    api.put(NAMESPACES, ignored)
    wait_until(lambda: replica.metric("bitfusion_watch_objects", resource="namespaces") == 1)
    late = api.put(NOTEBOOKS, notebook("late", TWO))
    settled(api, replica)
    assert get(api, NOTEBOOKS, "late")["metadata"] == late["metadata"]
