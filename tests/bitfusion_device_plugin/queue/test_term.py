"""One term of leadership over an API server that misbehaves: refusals, outages, an end in between."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.watched_resource import WatchLimits
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.term import QueueTerm
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts
from tests.bitfusion_cluster.fake_api import DELETE, LIST, PATCH, POST, WATCH, FakeApi
from tests.bitfusion_cluster.faults import Fault, after, answered, reset, status
from tests.bitfusion_device_plugin.queue.pods import GATE, raw_node, raw_pod, scheduled
from tests.support.machine import scaled
from tests.support.waiting import wait_until

PODS, NODES, EVENTS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"
PATH = "/api/v1/namespaces/a/pods/"
LIMITS = WatchLimits(page=2, page_pause=0.0, first_delay=0.05, longest_delay=0.2)


class Room:
    """A pool of 100 units; `terms` are started by a test, and ended at the end."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.leads = True
        self.registry = CollectorRegistry()
        self.accounts = UnitAccounts()
        self.metrics = QueueMetrics(self.registry, self.accounts)
        self._watch_metrics = WatchMetrics(self.registry)
        self.client = self.api.client()
        self.terms: list[QueueTerm] = []
        self.api.put(NODES, raw_node("n1", "100"))

    def begin(self, stuck_after_s: float = 300.0, units_from_zero: int = 0) -> QueueTerm:
        context = QueueContext(
            *(self.client, self.metrics, self.accounts, "replica", stuck_after_s),
            leading=lambda: self.leads,
            units_from_zero=units_from_zero,
        )
        term = QueueTerm(context, self._watch_metrics, LIMITS)
        self.terms.append(term)
        term.start()
        return term

    def close(self) -> None:
        for term in self.terms:
            term.stop()
        self.api.close()
        for term in self.terms:
            term.join(scaled(10))
        self.client.close()

    def make(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            self.api.put(PODS, pod)

    def lifted(self) -> list[str]:
        return sorted(
            one["metadata"]["name"]
            for one in self.api.objects(PODS)
            if not any(gate["name"] == GATE for gate in one["spec"].get("schedulingGates", []))
        )

    def until_lifted(self, *names: str) -> None:
        wait_until(lambda: self.lifted() == sorted(names), self.lifted, 20)

    def until_so_many_are_lifted(self, count: int) -> None:
        wait_until(lambda: len(self.lifted()) == count, self.lifted)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def events(self) -> dict[str, dict[str, Any]]:
        return {one["reason"]: one for one in self.api.objects(EVENTS)}


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    try:
        yield made
    finally:
        made.close()


FORBIDDEN = (
    'pods "p" is forbidden: User "x" cannot patch resource "pods/status" in API group "" in namespace "a"'
)


WEBHOOK = "admission webhook x denied the request: no"


@pytest.mark.parametrize("path", [PATH + "p/status", PATH + "p"], ids=["to keep units", "to lift the gate"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset, id="RST"),
        pytest.param(status(500), id="500"),
        pytest.param(status(503), id="503"),
        pytest.param(status(403, "Forbidden", WEBHOOK), id="403 of a webhook"),
        pytest.param(status(403, "Forbidden", FORBIDDEN), id="403 of a role"),
        pytest.param(status(401, "Unauthorized"), id="401"),
        pytest.param(status(429, Retry_After="1"), id="429"),
        pytest.param(status(409, "Conflict", "modified"), id="409"),
        pytest.param(status(404, "NotFound"), id="404"),
        pytest.param(answered({"kind": "Status"}), id="nonsense"),
    ],
)
def test_a_request_that_fails_is_made_again_and_nothing_is_sold_twice(
    room: Room, fault: Fault, path: str
) -> None:
    room.api.misbehave(fault, PATCH, path)
    room.make(raw_pod("p", 60), raw_pod("q", 60, created=1))
    room.begin()
    room.until_lifted("p")
    wait_until(lambda: room.value("bitfusion_queue_taken_units") == 60)
    room.api.remove(PODS, "a", "p")
    room.until_lifted("q")


def test_what_is_refused_for_good_does_not_hold_up_the_others_and_is_told(room: Room) -> None:
    room.api.misbehave(status(403, "Forbidden", WEBHOOK), PATCH, PATH + "p", times=1000)
    room.make(raw_pod("p", 60), raw_pod("q", 60, created=1))
    room.begin()
    room.until_lifted("q")
    wait_until(lambda: "BitfusionLiftRefused" in room.events(), room.events)
    assert WEBHOOK in room.events()["BitfusionLiftRefused"]["message"]


def test_a_role_that_is_missing_is_no_pods_fault(room: Room) -> None:
    room.api.misbehave(status(403, "Forbidden", FORBIDDEN), PATCH, PATH + "p", times=5)
    room.make(raw_pod("p", 60), raw_pod("q", 60, created=1))
    room.begin()
    room.until_lifted("p")  # in its turn


def test_a_term_that_has_ended_lifts_nothing_when_its_replica_leads_again(room: Room) -> None:
    released, served = threading.Event(), threading.Event()
    room.api.misbehave(after(released, served.set), PATCH, PATH + "p/status")
    room.make(raw_pod("p", 60))
    term = room.begin()
    wait_until(lambda: room.api.count(PATCH, path=PATH + "p/status"))
    term.stop()  # somebody else leads; and this replica again
    released.set()
    assert served.wait(scaled(10))
    term.join(scaled(10))
    assert room.api.count(PATCH, path=PATH) == 1
    assert room.lifted() == []
    room.begin()
    room.until_lifted("p")  # whose units it finds kept


def test_a_new_term_shows_its_own_figures_while_a_thread_of_the_one_before_still_hangs(room: Room) -> None:
    released = threading.Event()
    room.api.misbehave(after(released), PATCH, PATH + "p/status")
    room.make(raw_pod("p", 60))
    first = room.begin()
    wait_until(lambda: room.api.count(PATCH))
    first.stop()
    room.begin()
    room.until_lifted("p")
    released.set()
    first.join(scaled(10))
    wait_until(lambda: room.value("bitfusion_queue_taken_units") == 60)
    assert room.value("bitfusion_queue_protected") == 1


def test_one_slow_request_does_not_put_the_queue_to_sleep(room: Room) -> None:
    released = threading.Event()
    room.api.misbehave(after(released), PATCH, PATH + "p/status")
    room.make(raw_pod("p", 30), raw_pod("q", 30, created=1))
    room.begin()
    wait_until(lambda: room.api.count(PATCH))
    threading.Timer(2.0, released.set).start()
    assert released.wait(scaled(20))
    wait_until(lambda: room.lifted() == ["p", "q"], room.lifted, 5)


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda api: api.end_watches(), id="watches cut"),
        pytest.param(lambda api: (api.compact(), api.end_watches()), id="410"),
        pytest.param(
            lambda api: (api.misbehave(status(500), LIST, times=3), api.compact(), api.end_watches()),
            id="500",
        ),
        pytest.param(lambda api: (api.misbehave(reset, WATCH, times=5), api.end_watches()), id="RST"),
    ],
)
def test_watches_that_break_hold_up_nobody_for_long(room: Room, cut: Callable[[FakeApi], object]) -> None:
    room.begin()
    room.make(raw_pod("p", 60))
    room.until_lifted("p")
    cut(room.api)
    room.make(raw_pod("q", 60, created=1))
    room.api.remove(PODS, "a", "p")
    room.until_lifted("q")


@pytest.mark.parametrize("version", [{"major": "1", "minor": "26+"}, {"major": "1", "minor": "20"}])
def test_without_gates_pods_are_only_counted_and_the_log_says_so_once(
    room: Room, version: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    room.api.misbehave(answered(version), path="/version", times=10)
    room.make(raw_pod("p", 60, gates=(), node="n1"), raw_pod("q", 30))
    room.begin()
    wait_until(lambda: room.value("bitfusion_queue_taken_units") == 60)
    assert room.value("bitfusion_queue_protected") == 0
    (said,) = [one for one in caplog.records if one.message.startswith("not protected against overselling")]
    assert said.levelname == "WARNING"
    assert room.api.count(PATCH, POST, DELETE) == 0


def test_the_version_is_asked_for_until_it_is_answered(room: Room) -> None:
    room.api.misbehave(status(500), path="/version", times=2)
    room.make(raw_pod("p"))
    room.begin()
    room.until_lifted("p")


def test_pods_that_came_past_the_queue_count_and_are_shown(room: Room) -> None:
    room.make(raw_pod("p", 60, gates=(), node="n1", phase="Running"), raw_pod("q", 60))
    room.begin()
    wait_until(lambda: room.value("bitfusion_queue_unqueued_pods") == 1)
    wait_until(lambda: room.value("bitfusion_queue_waiting_pods") == 1)
    assert room.lifted() == ["p"]


def test_thousands_of_other_pods_are_not_kept(room: Room) -> None:
    for number in range(50):
        room.make(raw_pod(f"other-{number}", 0, gates=()))
    room.make(raw_pod("p", 200))
    room.begin()
    wait_until(lambda: room.value("bitfusion_queue_waiting_pods") == 1)
    assert room.value("bitfusion_watch_objects", resource="pods") == 1


def events_of(room: Room, reason: str) -> list[str]:
    return [one["message"] for one in room.api.objects(EVENTS) if one["reason"] == reason]


def test_pods_that_ask_for_nothing_take_nobodys_turn(room: Room) -> None:
    """200 of them took every lift for as long as they came."""
    flood = [raw_pod(f"f{number:03}", 0, namespace="flood") for number in range(200)]
    room.make(*flood, raw_pod("p", 30, created=9), raw_pod("mine", 0, created=9))
    room.begin()
    wait_until(lambda: {"p", "mine"} <= set(room.lifted()), room.lifted)
    wait_until(lambda: room.value("bitfusion_queue_waiting_pods") == 0)  # they wait for nothing
    before_q = len(room.lifted())
    room.api.put(PODS, raw_pod("q", 30, created=10))
    wait_until(lambda: "q" in room.lifted(), room.lifted)
    let_go = [one.path for one in room.api.written if one.path.startswith("/api/v1/namespaces/")]
    assert max(let_go.index(PATH + name) for name in ("p", "mine")) < 100
    assert let_go.index(PATH + "q") < before_q + 50


@pytest.mark.parametrize("fault", [reset, status(500), status(429), status(409, "Conflict"), status(404)])
def test_a_pod_that_asks_for_nothing_is_let_go_again_when_that_failed(room: Room, fault: Fault) -> None:
    room.api.misbehave(fault, PATCH, PATH + "p")
    room.make(raw_pod("p", 0))
    room.begin()
    room.until_lifted("p")


def test_one_that_asks_for_nothing_any_more_is_let_go_and_one_that_begins_to_ask_waits(room: Room) -> None:
    room.api.misbehave(status(500), PATCH, PATH + "q")
    room.make(raw_pod("p", 200), raw_pod("q", 0))
    room.begin()
    wait_until(lambda: room.value("bitfusion_queue_waiting_pods") == 1)
    room.make(raw_pod("p", 0), raw_pod("q", 200))  # resized in place
    room.until_lifted("p")


def test_pods_whose_every_write_fails_hold_up_nobody(room: Room) -> None:
    """As those that are as large as a pod may be, so that no condition fits: the API server says 500."""
    room.api.misbehave(status(500), PATCH, "/api/v1/namespaces/flood/", times=100_000)
    room.make(*(raw_pod(f"f{number:02}", 1, namespace="flood") for number in range(40)))
    room.begin()
    wait_until(lambda: room.api.count(PATCH) >= 3)
    took = []
    for number in range(10):
        began = time.monotonic()
        room.make(raw_pod(f"p{number}", 1, created=number))
        room.until_so_many_are_lifted(number + 1)
        took.append(time.monotonic() - began)
    assert sorted(took)[5] < scaled(0.9), took  # most are shorter than one pause


def test_pods_that_somebody_writes_to_all_the_time_take_nobodys_turn(room: Room) -> None:
    """Each write to them is a conflict: forty took all tries of each step."""
    room.api.misbehave(status(409, "Conflict"), PATCH, "/api/v1/namespaces/flood/", times=100_000)
    flood = [raw_pod(f"f{number:02}", 1, namespace="flood") for number in range(40)]
    room.make(*flood)
    room.begin()
    stop = threading.Event()

    def touch() -> None:
        while not stop.wait(0.02):
            room.make(*(copy.deepcopy(pod) for pod in flood))

    toucher = threading.Thread(target=touch)
    toucher.start()
    try:
        wait_until(lambda: room.api.count(PATCH) >= 40)
        began = time.monotonic()
        room.make(*(raw_pod(f"p{number:02}", 1, created=number) for number in range(30)))
        room.until_so_many_are_lifted(30)
        assert time.monotonic() - began < scaled(5)
    finally:
        stop.set()
        toucher.join()


def test_units_on_a_node_that_is_not_ready_stay_taken_and_everybody_says_where_they_are(room: Room) -> None:
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-25T10:30:00Z"}
    gone = raw_node("n2", "100")
    gone["status"]["conditions"] = [condition]
    room.api.put(NODES, gone)
    room.make(raw_pod("p", 60, gates=(), node="n2", phase="Running"), raw_pod("q", 60, created=1))
    room.begin()
    wait_until(lambda: room.value("bitfusion_queue_lost_units") == 60)
    wait_until(lambda: {"BitfusionWaitsForLostNode", "BitfusionNodeLost"} <= set(room.events()), room.events)
    taint = "kubectl taint node n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    dead = f"dead, an administrator frees them: {taint}, or kubectl delete node n2."
    assert events_of(room, "BitfusionWaitsForLostNode") == [
        "Waits for 60 units of the Bitfusion pool: 60 of 100 are taken, of them 60 on node n2, not ready "
        f"since 2026-11-25 10:30 UTC; position 1 of 1 in the queue. If n2 is {dead}"
    ]
    assert events_of(room, "BitfusionNodeLost") == [
        "Its node n2 is not ready since 2026-11-25 10:30 UTC, and its 60 units of the Bitfusion pool stay "
        f"taken, as it may still run there. If the node is {dead}"
    ]
    assert room.lifted() == ["p"]
    room.api.put(NODES, raw_node("n2", "100"))  # it was only cut off
    wait_until(lambda: room.value("bitfusion_queue_lost_units") == 0)
    wait_until(lambda: "BitfusionWaitsForPool" in room.events(), room.events)


def test_where_no_node_could_offer_units_gates_are_lifted_by_the_queues_own_size(room: Room) -> None:
    room.api.remove(NODES, "", "n1")
    room.make(*(raw_pod(f"p{number}", 50, created=number) for number in range(3)))
    room.begin(stuck_after_s=1.0, units_from_zero=100)
    room.until_lifted("p0", "p1")
    no_node(room, "p0", "no nodes available to schedule pods")
    assert room.value("bitfusion_queue_pool_units") == 100
    time.sleep(2)  # which is no time in which a node could have taken it
    assert room.lifted() == ["p0", "p1"]
    assert room.value("bitfusion_queue_stuck_pods") == 0
    room.api.put(NODES, raw_node("n1", "200"))
    room.until_lifted("p0", "p1", "p2")


def test_while_the_pool_is_away_the_queues_own_size_counts_nothing(room: Room) -> None:
    away = raw_node("n1", "0")
    away["status"]["capacity"] = {"bitfusion.io/gpu": "100"}
    room.api.put(NODES, away)
    room.make(raw_pod("p", 50))
    room.begin(units_from_zero=100)
    wait_until(lambda: "BitfusionPoolAway" in room.events(), room.events)
    assert room.lifted() == []


def no_node(room: Room, name: str, words: str = "0/1 nodes are available: 1 Insufficient cpu.") -> None:
    """As the scheduler writes it."""
    pod = room.api.object(PODS, "a", name)
    assert pod is not None
    conditions = [one for one in pod["status"]["conditions"] if one["type"] != "PodScheduled"]
    pod["status"]["conditions"] = [scheduled("Unschedulable", words), *conditions]
    room.api.put(PODS, pod)


def test_a_pod_that_no_node_takes_is_deleted_while_others_wait_and_the_schedulers_words_are_told(
    room: Room,
) -> None:
    room.make(raw_pod("p", 60))
    room.begin(stuck_after_s=1.0)
    room.until_lifted("p")
    no_node(room, "p")
    wait_until(lambda: room.value("bitfusion_queue_stuck_pods") == 1)
    assert room.lifted() == ["p"]  # nobody waits
    room.make(raw_pod("q", 60, created=1))
    room.until_lifted("q")
    assert room.api.object(PODS, "a", "p") is None
    wait_until(lambda: "BitfusionSentBack" in room.events())
    told = room.events()["BitfusionSentBack"]
    assert (told["type"], told["message"]) == (
        "Warning",
        "No node can take it, and others wait for its 60 units of the Bitfusion pool: it goes to the end of "
        "the queue. The scheduler says: 0/1 nodes are available: 1 Insufficient cpu.",
    )


def test_a_pod_that_nothing_would_make_anew_is_not_deleted_and_its_owner_is_told(room: Room) -> None:
    room.make(raw_pod("p", 60, owner=None))
    room.begin(stuck_after_s=1.0)
    room.until_lifted("p")
    no_node(room, "p")
    room.make(raw_pod("q", 60, created=1))
    wait_until(lambda: "BitfusionHoldsUpOthers" in room.events(), limit_s=20)
    told = room.events()["BitfusionHoldsUpOthers"]["message"]
    assert "It is not deleted, as nothing might make it anew, or a Job count it as failed: delete it" in told
    assert room.lifted() == ["p"]
    room.api.remove(PODS, "a", "p")  # as the message says
    room.until_lifted("q")


def test_a_pod_that_finds_its_node_at_the_last_moment_is_not_deleted(room: Room) -> None:
    room.make(raw_pod("p", 60))
    room.begin(stuck_after_s=1.0)
    room.until_lifted("p")
    bound = threading.Event()

    def bind(handler: Any) -> None:
        pod = room.api.object(PODS, "a", "p")
        assert pod is not None
        pod["spec"]["nodeName"] = "n1"
        room.api.put(PODS, pod)
        bound.set()
        after(bound)(handler)

    room.api.misbehave(bind, DELETE, PATH + "p")
    no_node(room, "p")
    room.make(raw_pod("q", 60, created=1))
    assert bound.wait(scaled(20))
    wait_until(lambda: room.value("bitfusion_queue_writes_total", step="send_back", result="conflict") == 1)
    assert room.api.object(PODS, "a", "p") is not None
