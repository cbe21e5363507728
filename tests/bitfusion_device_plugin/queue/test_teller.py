"""What waiting pods are told, in which order and how often: conditions, and one Event for each reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.events import NORMAL, WARNING
from bitfusion_cluster.watching.cache import Cache
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.decisions import decide
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.pod_states import QueuedPod, queued_pod
from bitfusion_device_plugin.queue.teller import EVENT_AGAIN_S, MOST_ANNOUNCED, Teller
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts
from bitfusion_device_plugin.queue.words import Words, holds_up, lifted
from tests.bitfusion_cluster.fake_api import GET, PATCH, POST, FakeApi
from tests.bitfusion_cluster.faults import status
from tests.bitfusion_device_plugin.queue.pods import raw_pod

PODS, EVENTS, NOTEBOOKS = "/api/v1/pods", "/api/v1/events", "/apis/kubeflow.org/v1/notebooks"
PATH = "/api/v1/namespaces/a/pods/"


class Room:
    """A teller without its thread, over a clock that a test moves."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.now = 1000.0
        self.leads = True
        self.client = self.api.client()
        registry, accounts = CollectorRegistry(), UnitAccounts()
        self.pods: Cache[QueuedPod] = Cache()
        context = QueueContext(
            self.client,
            QueueMetrics(registry, accounts),
            accounts,
            "replica",
            300.0,
            leading=lambda: self.leads,
            clock=lambda: self.now,
            now=lambda: self.now,
        )
        self.teller = Teller(context, self.pods)

    def make(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            self.api.put(PODS, pod)
        self.see()

    def see(self) -> None:
        """The watch has brought everything."""
        found = [pod for pod in map(queued_pod, self.api.objects(PODS)) if pod is not None]
        self.pods.replace({pod.key: pod for pod in found})

    def want(self, words: dict[str, Words] | None = None) -> None:
        """These words by the pods' names, or what `decide` wants to be said while the pool is away."""
        pods = self.pods.records()
        wanted = {pod.uid: words[pod.name] for pod in pods if pod.name in words} if words else None
        self.teller.waits(wanted or decide(pods, 0).waits)

    def say(self, seconds: int = 1) -> None:
        """All that is said in so many seconds."""
        for _ in range(seconds):
            self.now += 1
            self.teller.say_next()
            self.see()

    def told(self) -> list[str]:
        """The paths of pods whose condition was written since the last call, in order."""
        found = [one.path for one in self.api.requests if one.verb == PATCH and one.path.endswith("/status")]
        self.api.requests.clear()
        return [path.split("/")[-2] for path in found]

    def events(self) -> list[dict[str, Any]]:
        return self.api.objects(EVENTS)


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.client.close()
    made.api.close()


def notebook(room: Room, name: str, version: str) -> str:
    made = room.api.put(
        NOTEBOOKS, {"apiVersion": version, "kind": "Notebook", "metadata": {"namespace": "a", "name": name}}
    )
    return str(made["metadata"]["uid"])


def test_ten_a_second_are_told_the_first_in_the_queue_first(room: Room) -> None:
    room.make(*(raw_pod(f"p{number:02}", created=number) for number in range(25)))
    room.want()
    room.say()
    assert room.told() == [f"p{number:02}" for number in range(10)]
    room.say(2)
    assert room.told() == [f"p{number:02}" for number in range(10, 25)]
    room.say(20)
    assert room.told() == []  # nothing has changed


def test_a_new_position_is_written_the_more_seldom_the_further_back_it_is_and_a_new_reason_at_once(
    room: Room,
) -> None:
    room.make(*(raw_pod(f"p{number:02}", created=number) for number in range(12)))
    room.want()
    room.say(3)
    room.told()
    written: dict[str, int] = {}
    for step in range(60):
        room.want({f"p{number:02}": Words("PoolAway", f"step {step}") for number in range(12)})
        room.say()
        for name in room.told():
            written[name] = written.get(name, 0) + 1
    assert written["p00"] == 12  # every 5 s
    assert written["p10"] == 6  # every 10 s
    room.want({f"p{number:02}": Words("WaitsForPool", "again") for number in range(12)})
    room.say(2)
    assert sorted(room.told()) == [f"p{number:02}" for number in range(12)]


@pytest.mark.parametrize("version", ["kubeflow.org/v1beta1", ""])
def test_there_is_one_event_for_each_reason_on_the_notebook_however_often_it_waits(
    room: Room, version: str
) -> None:
    uid = notebook(room, "n", version)
    room.make(raw_pod("n-0", notebook="n"))
    for position in range(3):
        room.want({"n-0": Words("WaitsForPool", f"position {position}")})
        room.say(10)
    (event,) = room.events()
    assert event["involvedObject"] == {
        "apiVersion": version or "kubeflow.org/v1",
        "kind": "Notebook",
        "namespace": "a",
        "name": "n",
        "uid": uid,
    }
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "BitfusionWaitsForPool",
        "position 0",  # the condition has the newest
    )
    room.api.remove(PODS, "a", "n-0")
    room.make(raw_pod("n-0", created=50, notebook="n"))  # sent back
    room.want({"n-0": Words("WaitsForPool", "position 9")})
    room.say(2)
    (event,) = room.events()
    assert event["message"] == "position 9"
    room.want({"n-0": Words("PoolAway", "away")})
    room.say(2)
    assert len(room.events()) == 2


def test_an_event_is_renewed_before_the_api_server_forgets_it(room: Room) -> None:
    room.make(raw_pod("p"))
    room.want()
    room.say(3)
    room.api.requests.clear()
    room.now += EVENT_AGAIN_S
    room.say(3)
    assert room.api.count(POST) == 1
    assert room.told() == []


def test_a_new_leader_does_not_say_everything_again(room: Room) -> None:
    room.make(*(raw_pod(f"p{number}", created=number) for number in range(5)))
    room.want()
    room.say(3)
    room.api.requests.clear()
    other = Room()
    try:
        other.teller, before = Teller(other.teller._context, room.pods), room.teller
        other.teller.waits(before._wanted)
        for _ in range(5):
            other.now += 1
            other.teller.say_next()
        assert other.api.requests == []
    finally:
        other.client.close()
        other.api.close()


def test_a_pod_of_a_label_that_names_no_notebook_has_the_event_itself(room: Room) -> None:
    room.make(raw_pod("p", notebook="none"))
    room.want()
    room.say()
    (event,) = room.events()
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Pod", "p")


def test_a_name_in_an_ownerreference_leads_nowhere_else(room: Room) -> None:
    """It had all pods of the cluster read, or a watch followed for a minute."""
    owned = raw_pod("p")
    name = "../../../../../../api/v1/pods?watch=true"
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Notebook", "apiVersion": "kubeflow.org/v1", "name": name}
    ]
    room.make(owned)
    room.want()
    room.say()
    (asked,) = (request for request in room.api.requests if request.verb == GET)
    assert asked.path.startswith("/apis/kubeflow.org/v1/namespaces/a/notebooks/..%2F..%2F")
    assert room.told() == ["p"]


@pytest.mark.parametrize("code", [403, 404, 409, 422, 429, 500])
def test_a_condition_that_is_refused_is_tried_again_and_the_event_is_not_sent_twice(
    room: Room, code: int
) -> None:
    room.api.misbehave(status(code, "Why", "no"), PATCH, PATH)
    room.make(raw_pod("p"))
    room.want()
    room.say()
    assert room.told() == ["p"]
    room.teller._limiter.pause(0)
    room.say(10)
    assert room.told() == ["p"]
    assert len(room.events()) == 1


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (500, 2), (404, 2)])
def test_an_event_that_fails_for_now_is_sent_again_and_a_missing_right_stops_no_condition(
    room: Room, code: int, tries: int
) -> None:
    room.api.misbehave(status(code, "Why", "no"), POST, "/api/v1/namespaces/a/events")
    room.make(raw_pod("p"))
    room.want()
    room.say(10)
    assert room.api.count(POST) == tries
    assert room.told() == ["p"]


def test_who_holds_up_others_is_told_again_after_half_an_hour(room: Room) -> None:
    room.make(raw_pod("p", gates=()))
    (pod,) = room.pods.records()
    for _ in range(5):
        room.teller.announce(pod, WARNING, holds_up(50, "cpu"))
        room.say()
    assert room.api.count(POST) == 1
    room.now += EVENT_AGAIN_S
    room.teller.announce(pod, WARNING, holds_up(50, "cpu"))
    room.say()
    assert room.api.count(POST) == 2
    (event,) = room.events()
    assert event["message"] == (
        "No node can take it, and others wait for its 50 units of the Bitfusion pool. It is not deleted, "
        "as nothing might make it anew, or a Job count it as failed: delete it, or make room for it. The "
        "scheduler says: cpu"
    )


def test_thousands_of_one_namespace_silence_nobody_else(room: Room) -> None:
    """400 s of them stood before the others."""
    room.make(*(raw_pod(f"f{number:04}", namespace="flood") for number in range(4000)))
    room.make(raw_pod("p", created=1), raw_pod("q", created=2))
    room.want()
    room.say()
    assert {"p", "q"} <= set(room.told())


def test_announcements_and_conditions_take_turns_and_so_do_namespaces(room: Room) -> None:
    """As when somebody makes pods of one unit and deletes them, all the time."""
    room.make(raw_pod("l", gates=(), namespace="quiet"), *(raw_pod(f"w{number}") for number in range(3)))
    room.make(*(raw_pod(f"f{number}", gates=(), namespace="flood") for number in range(200)))
    room.want()
    for pod in sorted(room.pods.records(), key=lambda pod: pod.namespace):
        if not pod.other_gates and pod.gate_index < 0:
            room.teller.announce(pod, NORMAL, lifted(50))
    room.say(3)
    assert room.told() == ["w0", "w1", "w2"]
    assert "quiet" in {event["metadata"]["namespace"] for event in room.events()}
    room.say(200)
    announced = [event for event in room.events() if event["reason"] == "BitfusionLifted"]
    assert len(announced) == 1 + MOST_ANNOUNCED


def test_who_does_not_lead_says_nothing(room: Room) -> None:
    room.make(raw_pod("p"))
    room.want()
    room.leads = False
    room.say(3)
    assert room.api.count(PATCH, POST, GET) == 0


def test_five_thousand_pods_that_wait_are_looked_at_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Measured, not asserted; what is asserted is what was decided."""
    pods = [pod for pod in (queued_pod(raw_pod(f"p{n}", created=n)) for n in range(5000)) if pod is not None]
    began = time.perf_counter()
    decision = decide(reversed(pods), 100)
    took = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n5,000 waiting pods decided in {took * 1000:.0f} ms")
    assert [pod.name for pod in decision.keep] == ["p0", "p1"]
    assert len(decision.waits) == 4998
