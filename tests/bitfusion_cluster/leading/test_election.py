"""The Lease: taken, renewed, lost, given back, over a server that misbehaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from bitfusion_cluster.leading.election import Candidate, Election, LeaderCallbacks, LeaseTimes
from tests.bitfusion_cluster.fake_api import GET, PATCH, POST, FakeApi, Handler, fake_api
from tests.bitfusion_cluster.faults import reset, stall, status
from tests.notebook_controller_patch.reconcile.objects import LEASES
from tests.support.machine import scaled
from tests.support.waiting import wait_until

NOW = 1_800_000_000.0
QUICK = LeaseTimes(duration=1.5, renew_within=1.0, retry=0.1, timeout=(0.5, 0.5))
# where nobody is to lose the Lease, though the machine let a thread or the server sleep for seconds
LONG = LeaseTimes(duration=60, renew_within=40, retry=0.1, timeout=(20, 20))


def ignore() -> None:
    """For callbacks that do not matter."""


class Replica:
    def __init__(self, api: FakeApi, name: str, times: LeaseTimes = QUICK) -> None:
        self.told: list[str] = []
        self.election = Election(
            api.client(),
            Candidate("kubeflow", "lease", name, times),
            LeaderCallbacks(lambda: self.told.append("began"), lambda: self.told.append("ended")),
        )

    @property
    def leading(self) -> bool:
        return self.election.leading


@pytest.fixture
def candidates(api: FakeApi) -> Iterator[Any]:
    made: list[Replica] = []

    def start(name: str, times: LeaseTimes = QUICK) -> Replica:
        candidate = Replica(api, name, times)
        made.append(candidate)
        candidate.election.start()
        return candidate

    yield start
    for candidate in made:
        assert candidate.election.stop(scaled(5))


def spec(api: FakeApi) -> dict[str, Any]:
    lease = api.object(LEASES, "kubeflow", "lease")
    assert lease is not None
    found: dict[str, Any] = lease["spec"]
    return found


def test_the_first_one_makes_the_lease_and_leads(api: FakeApi, candidates: Any) -> None:
    one = candidates("one", LONG)
    wait_until(lambda: one.leading and one.told)
    assert one.told == ["began"]
    assert spec(api)["holderIdentity"] == "one"
    # microseconds: the API refuses a time without
    assert len(spec(api)["renewTime"]) == len("2026-11-21T07:30:00.000000Z")
    renewed = spec(api)["renewTime"]
    wait_until(lambda: spec(api)["renewTime"] != renewed)
    assert spec(api)["leaseTransitions"] == 0


def test_renewing_takes_one_request(api: FakeApi, candidates: Any) -> None:
    one = candidates("one", LONG)
    wait_until(lambda: one.leading and api.count(PATCH) >= 5)
    assert api.count(GET) == 1
    assert api.count(POST) == 1


def test_only_one_leads(api: FakeApi, candidates: Any) -> None:
    several = [candidates(name, LONG) for name in ("one", "two", "three")]
    wait_until(lambda: sum(candidate.leading for candidate in several) == 1)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert sum(candidate.leading for candidate in several) == 1
        time.sleep(0.005)


def test_the_lease_is_given_back_at_the_end(api: FakeApi, candidates: Any) -> None:
    one = candidates("one", LONG)
    wait_until(lambda: one.leading and one.told)
    two = candidates("two", LONG)
    wait_until(lambda: api.count(GET) >= 3)
    assert one.election.stop(scaled(5))
    assert one.told == ["began", "ended"]
    wait_until(lambda: two.leading)
    assert spec(api)["leaseTransitions"] == 1


@pytest.mark.parametrize("renewed", ["now", "2999-01-01T00:00:00.000000Z", "no time", None])
def test_a_leader_that_vanished_is_followed_after_its_lease(
    api: FakeApi, candidates: Any, renewed: str | None
) -> None:
    began = time.monotonic()
    if renewed == "now":
        renewed = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    gone = {"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": renewed}
    api.put(LEASES, {"metadata": {"namespace": "kubeflow", "name": "lease"}, "spec": gone})
    two = candidates("two")
    wait_until(lambda: two.leading)
    # its clock is not believed: only what was seen to stand still for its duration is over
    assert time.monotonic() - began >= 1.0


def expired_lease(api: FakeApi, seconds_ago: float) -> None:
    renewed = datetime.fromtimestamp(NOW - seconds_ago, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    gone = {"holderIdentity": "gone", "leaseDurationSeconds": 7, "renewTime": renewed}
    api.put(LEASES, {"metadata": {"namespace": "kubeflow", "name": "lease"}, "spec": gone})


@pytest.mark.parametrize(("seconds_ago", "leads"), [(20.9, False), (21.0, True), (90_000.0, True)])
def test_a_replica_that_starts_after_an_outage_of_all_waits_for_nobody(
    api: FakeApi, seconds_ago: float, leads: bool
) -> None:
    expired_lease(api, seconds_ago)
    candidate = Candidate("kubeflow", "lease", "new", LONG)
    election = Election(api.client(), candidate, LeaderCallbacks(ignore, ignore), now=lambda: NOW)
    election.attempt()
    assert election.leading is leads


PATIENT = LeaseTimes(duration=60, renew_within=40, retry=0.1, timeout=(20, 20), patient=True)


@pytest.mark.parametrize("missing", [False, True], ids=["a lease that looks long over", "no lease at all"])
def test_a_patient_replica_waits_for_a_holder_that_nobody_sees(api: FakeApi, missing: bool) -> None:
    now = 100.0
    if not missing:
        expired_lease(api, 90_000.0)
    election = Election(
        api.client(),
        Candidate("kubeflow", "lease", "new", PATIENT),
        LeaderCallbacks(ignore, ignore),
        lambda: now,
        lambda: NOW,
    )
    for passed in (0.0, 6.9):
        now = 100.0 + passed * (60 / 7 if missing else 1)  # a missing lease says no duration: our own
        election.attempt()
        assert not election.leading
    now = 200.0
    election.attempt()
    assert election.leading


def test_one_whose_clock_goes_wrong_takes_the_lease_once_at_most(api: FakeApi) -> None:
    expired_lease(api, 1.0)
    election = Election(
        api.client(),
        Candidate("kubeflow", "lease", "new", LONG),
        LeaderCallbacks(ignore, ignore),
        lambda: 0.0,
        lambda: NOW,
    )
    election.attempt()
    expired_lease(api, 10_000.0)  # renewed, by a clock that is hours behind
    election.attempt()
    assert not election.leading


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset, id="RST"),
        pytest.param(status(500), id="500"),
        pytest.param(status(403, "Forbidden"), id="403"),
        pytest.param(status(429, Retry_After="1"), id="429"),
        pytest.param(stall, id="silence"),
        pytest.param(lambda handler: handler.answer(200, ["nonsense"]), id="nonsense"),
    ],
)
def test_a_leader_that_cannot_renew_stops_in_time_and_comes_back(
    api: FakeApi, candidates: Any, fault: Any
) -> None:
    one = candidates("one")
    wait_until(lambda: one.leading)
    began = time.monotonic()
    asked = api.count()
    api.misbehave(fault, times=10_000)
    wait_until(lambda: not one.leading and one.told[-1:] == ["ended"])
    requests = api.count() - asked
    assert requests <= 4 + (time.monotonic() - began) / 0.1, "and does not hammer"
    api.behave()
    wait_until(lambda: one.leading and one.told[-1] == "began")


def test_the_servers_return_is_told_once(api: FakeApi) -> None:
    told: list[str] = []
    callbacks = LeaderCallbacks(_nothing, _nothing, lambda: told.append("back"))
    election = Election(api.client(), Candidate("kubeflow", "lease", "one", LONG), callbacks)
    election.attempt()
    api.misbehave(status(500), times=2)
    election.attempt()
    assert told == [], "an error is an answer"
    api.misbehave(reset, times=3)
    for _ in range(5):
        election.attempt()
    assert told == ["back"]


def _nothing() -> None:
    pass


def test_a_refused_connection_does_not_end_the_loop(api: FakeApi) -> None:
    with fake_api() as other:
        candidate = Replica(other, "one")
        port = other.port
    candidate.election.start()
    time.sleep(0.5)
    assert not candidate.leading
    assert candidate.told == []
    assert port
    assert candidate.election.stop(scaled(5))


def test_a_lease_taken_away_is_noticed(api: FakeApi, candidates: Any) -> None:
    one = candidates("one", LONG)
    wait_until(lambda: one.leading)
    lease = api.object(LEASES, "kubeflow", "lease")
    assert lease is not None
    lease["spec"].update(holderIdentity="two", leaseDurationSeconds=3600)
    api.put(LEASES, lease)
    wait_until(lambda: not one.leading and one.told == ["began", "ended"])
    assert spec(api)["holderIdentity"] == "two"


def test_a_deleted_lease_is_made_again(api: FakeApi, candidates: Any) -> None:
    one = candidates("one")
    wait_until(lambda: one.leading)
    api.remove(LEASES, "kubeflow", "lease")
    wait_until(lambda: api.object(LEASES, "kubeflow", "lease") is not None)
    wait_until(lambda: one.leading)


def test_two_that_take_a_free_lease_at_once_do_not_both_get_it(api: FakeApi) -> None:
    api.put(
        LEASES,
        {"metadata": {"namespace": "kubeflow", "name": "lease"}, "spec": {"holderIdentity": ""}},
    )
    one, two = Replica(api, "one", LONG), Replica(api, "two", LONG)
    before = api.object(LEASES, "kubeflow", "lease")
    taken = threading.Event()

    def as_it_was_before(handler: Handler) -> None:
        taken.wait(scaled(10))
        handler.answer(200, before)

    api.misbehave(as_it_was_before, GET)
    slow = threading.Thread(target=one.election.attempt)
    slow.start()
    wait_until(lambda: api.count(GET) == 1)
    two.election.attempt()
    assert two.leading
    taken.set()
    slow.join(scaled(5))
    assert api.count(PATCH) == 2, "both tried"
    assert not one.leading
    assert two.leading


def test_a_frozen_replica_knows_that_it_does_not_lead_any_more(api: FakeApi) -> None:
    now = [0.0]
    times = LeaseTimes(duration=15, renew_within=10, retry=2, timeout=(20, 20))
    candidate = Candidate("kubeflow", "lease", "one", times)
    election = Election(api.client(), candidate, LeaderCallbacks(_nothing, _nothing), lambda: now[0])
    election.attempt()
    assert election.leading
    now[0] = 9.9
    assert election.leading
    now[0] = 10.0
    assert not election.leading


def test_the_defaults_leave_time_between_two_leaders() -> None:
    times = LeaseTimes()
    assert times.duration - times.renew_within >= 2 * times.retry
    # one attempt that stalls still leaves time for another
    assert sum(times.timeout) + times.retry * 1.2 < times.duration
