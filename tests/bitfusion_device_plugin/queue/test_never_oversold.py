"""Never more units than there are, in any order of requests that are lost, late, or a leader's last one."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod
from bitfusion_device_plugin.queue.unit_accounts import NodeUnits
from tests.bitfusion_device_plugin.queue.pods import GATE, raw_pod, scheduled
from tests.bitfusion_device_plugin.queue.world import ENDS, KILLED_LATE, LATE, LOST, OK, Replica, World

GATED, KEPT, LIFTED, BOUND = PodState.GATED, PodState.KEPT, PodState.LIFTED, PodState.BOUND
often = st.sampled_from([OK, OK, OK, LATE, LATE, KILLED_LATE, *ENDS])
number = st.integers(0, 99)


class OnePool(RuleBasedStateMachine):
    """A pool of 100 units, pods that come and go, and leaders that follow each other."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.replica = Replica(self.world)
        self.created = 0

    @rule(units=st.sampled_from([30, 60, 60, 100, 101]), before=st.integers(0, 9), others=number)
    def a_pod_is_made(self, units: int, before: int, others: int) -> None:
        """Times of creation are whole seconds of another machine: not always in order."""
        self.created += 1
        gates = ("other/gate", GATE) if others % 4 == 3 else (GATE,)
        self.world.put(raw_pod(f"p{self.created}", units, max(0, self.created - before), gates=gates))

    @rule(which=number, what=st.sampled_from(["node", "no node", "other gate", "any change"]))
    def a_pod_changes(self, which: int, what: str) -> None:
        """By the scheduler, by whoever has set another gate, by anybody."""
        pod = self.one_of(which, LIFTED) if what.endswith("node") else self.one_of(which, GATED, KEPT, LIFTED)
        if pod is None:
            return
        raw = copy.deepcopy(self.world.pods[pod.key])
        if what == "node":
            raw["spec"]["nodeName"] = "n"
        elif what == "no node":
            conditions = [one for one in raw["status"]["conditions"] if one["type"] != "PodScheduled"]
            raw["status"]["conditions"] = [*conditions, scheduled("Unschedulable", "cpu")]
        elif what == "other gate":
            gates = raw["spec"]["schedulingGates"] if pod.state in (GATED, KEPT) else []
            gates[:] = [gate for gate in gates if gate["name"] != "other/gate"]
        self.world.put(raw)

    @rule(which=number)
    def a_pod_is_deleted(self, which: int) -> None:
        pod = self.one_of(which, GATED, KEPT, LIFTED, BOUND)
        if pod is not None:
            self.world.remove(pod.key)

    @rule(which=number)
    def a_pod_is_deleted_and_a_finalizer_keeps_it(self, which: int) -> None:
        """Without a node it never gets one: the API server refuses the binding."""
        pod = self.one_of(which, GATED, KEPT, LIFTED, BOUND)
        if pod is not None:
            raw = copy.deepcopy(self.world.pods[pod.key])
            raw["metadata"]["deletionTimestamp"] = "2026-11-25T12:00:00Z"
            self.world.put(raw)

    @rule(which=number)
    def a_pod_is_changed_by_somebody(self, which: int) -> None:
        pod = self.one_of(which, GATED, KEPT, LIFTED)
        if pod is not None:
            self.world.put(self.world.pods[pod.key])

    @rule(events=st.sampled_from([1, 1, 2, 3, None]))
    def the_watch_brings_some(self, events: int | None) -> None:
        self.replica.deliver(events)

    @rule(planned=st.lists(often, max_size=4))
    def the_leader_looks(self, planned: list[str]) -> None:
        self.world.ends.extend(planned)
        self.followed(self.replica.step())

    @rule(planned=st.lists(often, max_size=2))
    def the_leader_tells(self, planned: list[str]) -> None:
        self.world.ends.extend(planned)
        self.followed(self.replica.tell())

    @rule(seconds=st.sampled_from([2, 10, 40, 100, 400]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds

    @rule()
    def another_one_leads(self) -> None:
        self.followed(False)

    @precondition(lambda self: self.world.late)
    @rule(which=number)
    def a_late_request_lands(self, which: int) -> None:
        self.world.land(which % len(self.world.late))

    @invariant()
    def the_pool_is_not_sold_twice(self) -> None:
        assert self.world.taken() <= self.world.pool

    def teardown(self) -> None:
        """When all is calm nobody waits for units that are free."""
        while self.world.late:
            self.world.land(len(self.world.late) - 1)
            self.the_pool_is_not_sold_twice()
        for _ in range(30):
            self.world.now += 61.0
            self.replica.deliver()
            assert self.replica.step()
            self.the_pool_is_not_sold_twice()
        assert self.world.seen(KEPT) == []
        free = self.world.pool - self.world.taken()
        waiting = [
            pod for pod in self.world.seen(GATED) if not pod.other_gates and pod.units <= self.world.pool
        ]
        assert not waiting or waiting[0].units > free

    def one_of(self, which: int, *states: PodState) -> QueuedPod | None:
        found = self.world.seen(*states)
        return found[which % len(found)] if found else None

    def followed(self, leads: bool) -> None:
        self.world.ends.clear()
        if not leads:
            self.replica = Replica(self.world)


OnePool.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_in_any_order_of_things_the_pool_is_never_sold_twice = OnePool.TestCase


def lost_leader(*ends: str) -> World:
    """A world whose leader was killed in the last of these requests, and what it was about to do is late."""
    world = World()
    world.put(raw_pod("p", created=5, gates=("other/gate", GATE), units=60))
    world.put(raw_pod("q", created=6, units=60))
    world.ends.extend(ends)
    assert not Replica(world).step()
    world.ends.clear()
    gates = world.pods["a", "p"]["spec"]["schedulingGates"]
    del gates[0]
    world.put(world.pods["a", "p"])  # which is before q
    return world


def test_a_removal_that_is_late_finds_its_pod_counted_by_the_next_leader() -> None:
    world = lost_leader("answered", KILLED_LATE)
    successor = Replica(world)
    successor.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["q"]
    world.land(0)
    assert world.taken() == 60


def test_a_late_condition_is_followed_by_nothing_and_taken_back_where_it_does_not_fit() -> None:
    world = lost_leader(KILLED_LATE)
    successor = Replica(world)
    successor.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["p"]
    world.land(0)
    assert [pod.name for pod in world.seen(KEPT)] == ["q"]
    successor.deliver()
    successor.step()
    assert [pod.name for pod in world.seen(GATED)] == ["q"]
    assert world.taken() == 60


def test_a_removal_that_was_sent_before_its_pod_was_taken_back_is_refused_after_it() -> None:
    world = World()
    world.put(raw_pod("p", 60))
    world.ends.extend(["answered", KILLED_LATE])
    Replica(world).step()
    world.ends.clear()
    world.pool = 50
    successor = Replica(world)
    successor.step()
    assert world.seen(KEPT) == []
    world.land(0)
    assert world.taken() == 0


def test_units_that_may_have_been_kept_count_until_the_watch_shows_the_pod_anew() -> None:
    world = World()
    world.put(raw_pod("p", 60))
    replica = Replica(world)
    world.ends.append(LATE)
    replica.step()
    world.remove(("a", "p"))  # nobody has seen it yet
    world.put(raw_pod("q", 60, created=1))
    replica.deliver(0)
    replica.step()
    assert world.taken() == 0
    world.now += 2  # what nobody answered is followed by a pause
    replica.step()
    assert world.taken() == 0
    replica.deliver()
    replica.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["q"]


def test_a_removal_under_way_counts_while_the_watch_is_late_and_another_pod_is_first() -> None:
    world = World()
    world.put(raw_pod("p", 60, created=5))
    replica = Replica(world)
    world.put(raw_pod("q", 60, created=4))
    world.ends.extend(["answered", LATE])
    replica.step()
    replica.deliver(1)
    replica.step()
    assert world.taken() == 0
    world.land(0)
    assert [pod.name for pod in world.seen(LIFTED)] == ["p"]


def test_a_refused_lift_is_passed_over_after_three_times_and_tried_again() -> None:
    world = World()
    world.put(raw_pod("p", 60))
    world.put(raw_pod("q", 60, created=1))
    replica = Replica(world)
    for _ in range(3):
        world.ends.append("forbidden")
        replica.step()
        world.ends.clear()
        world.now += 5
    replica.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["q"]
    replica.deliver()
    replica.tell()
    replica.tell()
    (told,) = [one for one in world.pods["a", "p"]["status"]["conditions"] if one["type"] != "PodScheduled"]
    assert told["reason"] == "LiftRefused"
    assert told["message"].endswith("which is tried again: not now")
    world.remove(("a", "q"))
    world.now += 61
    replica.deliver()
    replica.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["p"]


def test_a_pod_whose_lift_is_never_answered_is_passed_over_and_its_units_are_others() -> None:
    """As by somebody's webhook for changes of pods; the leader renews its Lease meanwhile."""
    world = World()
    world.put(raw_pod("p", 60))
    world.put(raw_pod("q", 60, created=1))
    replica = Replica(world)
    world.ends.extend([OK, LOST])
    for _ in range(5):
        replica.step()
        replica.deliver()
        world.ends.clear()
        world.ends.append(LOST)
        world.now += 31
    assert [pod.name for pod in world.seen(KEPT)] == ["p"]
    world.ends.clear()
    for _ in range(2):
        replica.step()
        replica.deliver()
    assert [pod.name for pod in world.seen(GATED)] == ["p"]
    assert [pod.name for pod in world.seen(LIFTED)] == ["q"]


def test_a_throttled_leader_pauses_as_long_as_it_is_told() -> None:
    world = World()
    world.put(raw_pod("p", 30))
    world.put(raw_pod("q", 30, created=1))
    replica = Replica(world)
    world.ends.append("throttled")
    replica.step()
    replica.step()
    assert world.requests == ["status"]
    world.now += 2
    replica.step()
    assert len(world.seen(LIFTED)) == 2


def no_node_takes(world: World, name: str, said: str) -> None:
    """The scheduler has looked at a lifted pod, and says why no node takes it."""
    raw = world.pods["a", name]
    others = [one for one in raw["status"]["conditions"] if one["type"] != "PodScheduled"]
    raw["status"]["conditions"] = [*others, scheduled("Unschedulable", said)]
    world.put(raw)


def test_a_pod_no_node_takes_goes_to_the_end_and_the_others_have_their_turn() -> None:
    world = World()
    world.put(raw_pod("p", 100))
    world.put(raw_pod("q", 100, created=1))
    replica = Replica(world)
    replica.step()
    no_node_takes(world, "p", "0/1 nodes are available: 1 Insufficient cpu")
    replica.deliver()
    replica.step()
    world.now += 299
    replica.step()
    assert "delete" not in world.requests
    world.now += 1
    replica.step()
    assert ("a", "p") not in world.pods
    world.put(raw_pod("p", 100, created=2))  # as its StatefulSet does
    replica.deliver()
    replica.step()
    assert [pod.name for pod in world.seen(LIFTED)] == ["q"]
    assert [pod.name for pod in world.seen(GATED)] == ["p"]


def test_a_pod_without_a_node_keeps_its_turn_when_a_pool_that_was_away_for_long_is_back() -> None:
    world = World()
    world.put(raw_pod("p", 100))
    world.put(raw_pod("q", 100, created=1))
    replica = Replica(world)
    replica.step()
    no_node_takes(world, "p", "0/1 nodes are available: 1 Insufficient bitfusion.io/gpu")
    replica.deliver()
    replica.nodes.remove(("", "n"))
    replica.step()
    world.now += 3600
    replica.step()
    replica.nodes.put(NodeUnits("n", world.pool))
    replica.step()  # before the scheduler has looked again
    world.now += 299
    replica.step()
    assert "delete" not in world.requests
    world.now += 1
    replica.step()
    assert "delete" in world.requests
