"""What is said at quotas that limit nothing: once, in turn, and again before it is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bitfusion_cluster.leading import quota_teller
from bitfusion_cluster.leading.quota_teller import MOST_OF_ONE, QuotaTeller
from bitfusion_cluster.watching.cache import Cache
from bitfusion_device_plugin.identity.quotas import QuotaRecord
from tests.bitfusion_cluster.fake_api import POST, FakeApi
from tests.bitfusion_cluster.faults import Fault, after, reset, status
from tests.support.machine import scaled
from tests.support.waiting import wait_until

EVENTS = "/api/v1/events"
WRONG = ("bitfusion.io/gpu",)
COUNTS = "use requests.bitfusion.io/gpu, in hundredths of a GPU, 150 for one and a half."


class Room:
    """A teller and its thread, not held back by the rate that a cluster has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quota_teller, "EVENTS_PER_SECOND", 1000.0)
        monkeypatch.setattr(quota_teller, "RETRY_S", 0.1)
        self.api = FakeApi()
        self.client = self.api.client()
        self.leads = True
        self.quotas: Cache[QuotaRecord] = Cache(lambda old, new: self.teller.changed(old, new))
        self.teller = QuotaTeller(
            self.client, ("bitfusion-identity", "replica"), self.quotas, lambda: self.leads
        )
        self._thread = threading.Thread(target=self.teller.work)
        self._thread.start()

    def close(self) -> None:
        self.teller.stop()
        self._thread.join(scaled(10))
        self.client.close()
        self.api.close()

    def said(self) -> list[tuple[str, str, str]]:
        """Namespace and name of the quota, and what is said there."""
        return sorted(
            (one["involvedObject"]["namespace"], one["involvedObject"]["name"], one["message"])
            for one in self.api.objects(EVENTS)
        )


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    made = Room(monkeypatch)
    yield made
    made.close()


def test_the_event_is_at_the_quota_and_names_the_key_that_counts(room: Room) -> None:
    room.quotas.put(QuotaRecord("a", "gpus", None, WRONG, "uid-1"))
    (event,) = wait_until(lambda: room.api.objects(EVENTS))
    assert event["involvedObject"] == {
        **{"apiVersion": "v1", "kind": "ResourceQuota", "namespace": "a", "name": "gpus", "uid": "uid-1"},
    }
    assert (event["type"], event["reason"], event["message"]) == (
        *("Warning", "BitfusionQuotaKey"),
        f"This quota does not limit GPUs by bitfusion.io/gpu: {COUNTS}",
    )


def test_at_kubeflows_own_quota_it_says_where_that_is_written(room: Room) -> None:
    room.quotas.put(QuotaRecord("a", "kf-resource-quota", None, WRONG))
    wait_until(room.said)
    assert room.said()[0][2] == (
        f"This quota does not limit GPUs by bitfusion.io/gpu: {COUNTS} Write it in the Profile's "
        "spec.resourceQuotaSpec.hard, from which Kubeflow creates this quota."
    )


def test_of_many_quotas_of_a_namespace_a_few_are_told_and_others_do_not_wait(room: Room) -> None:
    all_are_there = threading.Event()
    room.api.misbehave(after(all_are_there), POST)
    for number in range(200):
        room.quotas.put(QuotaRecord("flood", f"q{number:03}", None, WRONG))
    room.quotas.put(QuotaRecord("z", "gpus", None, WRONG))
    all_are_there.set()
    wait_until(lambda: len(room.said()) == MOST_OF_ONE + 1, room.said)
    assert "/api/v1/namespaces/z/events" in [one.path for one in room.api.requests[:5]]
    assert [name for namespace, name, _ in room.said() if namespace == "flood"] == [
        f"q{number:03}" for number in range(MOST_OF_ONE)
    ]


def test_a_quota_that_was_corrected_is_told_nothing(room: Room) -> None:
    room.quotas.put(QuotaRecord("a", "gpus", 150))
    room.teller.changed(None, QuotaRecord("a", "gpus", None, WRONG))
    room.quotas.put(QuotaRecord("b", "gpus", None, WRONG))
    wait_until(room.said)
    assert [namespace for namespace, _, _ in room.said()] == ["b"]


@pytest.mark.parametrize("fault", [reset, status(403, "Forbidden"), status(429), status(500), status(404)])
def test_what_fails_is_told_later(room: Room, fault: Fault) -> None:
    room.api.misbehave(fault, POST)
    room.quotas.put(QuotaRecord("a", "gpus", None, WRONG))
    wait_until(room.said, limit_s=20)


def test_only_new_wrong_keys_are_told(room: Room) -> None:
    wrong = QuotaRecord("a", "gpus", None, WRONG)
    room.teller.changed(wrong, QuotaRecord("a", "gpus", 150, WRONG))
    room.teller.changed(wrong, QuotaRecord("a", "gpus", 150))
    room.teller.changed(wrong, None)
    assert room.teller._queue.idle()


def test_it_is_told_again_before_it_is_forgotten(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_teller, "AGAIN_S", 0.1)
    room.quotas.put(QuotaRecord("a", "gpus", None, WRONG))
    wait_until(lambda: room.api.count(POST) >= 3)  # the second one is there already, and that is no failure
    assert len(room.said()) == 1


def test_who_does_not_lead_tells_nothing(room: Room) -> None:
    room.leads = False
    room.quotas.put(QuotaRecord("a", "gpus", None, WRONG))
    wait_until(lambda: room.teller._queue.idle())
    assert room.api.requests == []
