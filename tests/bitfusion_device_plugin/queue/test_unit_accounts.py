"""Who holds how many units for how long, with a bound on the number of notebooks; the pool's size."""

from __future__ import annotations

import pytest

from bitfusion_device_plugin.queue.leader import StuckPods
from bitfusion_device_plugin.queue.pod_states import PodState
from bitfusion_device_plugin.queue.unit_accounts import (
    IDLE_S,
    OTHERS,
    REST,
    NodeUnits,
    UnitAccounts,
    node_units,
    pool_size,
)
from tests.bitfusion_device_plugin.queue.pods import Object, pod, raw_node

BOUND, LIFTED = PodState.BOUND, PodState.LIFTED


@pytest.mark.parametrize(
    ("offered", "size"),
    [
        (["100", "100"], 100),
        (["100", "200"], 200),
        (["0", "5k"], 5000),
        ([50], 50),
        (["none", None, -5], 0),
        ([], 0),
    ],
    ids=["all report it", "one has seen it grow", "a quantity", "a number", "nothing usable", "no node"],
)
def test_the_pool_is_what_the_nodes_report_of_it(offered: list[object], size: int) -> None:
    nodes = [node_units(raw_node(f"n{number}", units)) for number, units in enumerate(offered)]
    assert pool_size(node for node in nodes if node is not None) == size


@pytest.mark.parametrize(
    ("ready", "found"),
    [
        ("True", NodeUnits("n", 100)),
        ("False", NodeUnits("n", 0, False, "2026-11-25T10:30:00Z")),
        ("Unknown", NodeUnits("n", 0, False, "2026-11-25T10:30:00Z")),
    ],
    ids=["ready", "not", "silent"],
)
def test_a_node_that_is_not_ready_says_what_the_pool_was_long_ago(ready: str, found: NodeUnits) -> None:
    raw = raw_node("n", "100")
    pressure = {"type": "DiskPressure", "status": "False"}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-25T10:30:00Z"}
    raw["status"]["conditions"] = [pressure, condition]
    assert node_units(raw) == found


AWAY = {"metadata": {"name": "n"}, "status": {"capacity": {"bitfusion.io/gpu": "100"}, "allocatable": {}}}
NEVER = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}}
ENDED = raw_node("n", "0")
SILENT = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        ([], 200),
        ([NEVER, ENDED], 200),
        ([SILENT], 200),
        ([AWAY], 0),
        ([AWAY, NEVER], 0),
        ([raw_node("n", "100")], 100),
    ],
    ids=["no node", "no plugin", "a lost node", "pool away", "pool away, and others", "offered"],
)
def test_where_no_node_could_offer_units_the_queue_goes_by_its_own_size(raw: list[Object], size: int) -> None:
    nodes = [found for found in map(node_units, raw) if found is not None]
    assert pool_size(nodes, 200) == size
    assert pool_size(nodes) == (0 if size == 200 else size)


@pytest.mark.parametrize("raw", [{}, {"status": None}, {"status": {"allocatable": []}}])
def test_a_node_of_any_shape_is_read(raw: dict[str, object]) -> None:
    assert node_units(raw) is None


def test_units_times_seconds_are_counted_by_notebook() -> None:
    accounts = UnitAccounts()
    first = pod("p", 50, BOUND, notebook="n")
    accounts.look([first, pod("q", 30)], 10.0)
    assert (accounts.held, accounts.seconds) == ({("a", "n"): 50}, {("a", "n"): 0.0})
    accounts.look([first, pod("q", 30, LIFTED)], 20.0)
    accounts.look([], 21.0)
    assert accounts.seconds == {("a", "n"): 550.0, ("a", ""): 30.0}
    assert accounts.held == {}


def test_nothing_is_counted_while_another_replica_leads() -> None:
    accounts = UnitAccounts()
    accounts.look([pod("p", 50, BOUND)], 0.0)
    accounts.look([pod("p", 50, BOUND)], 1.0)
    accounts.end()
    accounts.look([pod("p", 50, BOUND)], 1001.0)
    assert accounts.seconds == {("a", ""): 50.0}


def test_there_are_never_more_series_than_the_bound_and_none_is_lost() -> None:
    accounts = UnitAccounts(most=3)
    crowd = [pod(f"p{number}", 10, BOUND, notebook=f"n{number}") for number in range(5)]
    accounts.look(crowd, 0.0)
    accounts.look(crowd, 1.0)
    assert accounts.held == {("a", "n0"): 10, ("a", "n1"): 10, OTHERS: 30}
    assert sum(accounts.seconds.values()) == 50.0
    accounts.look(crowd[1:], 2.0)
    accounts.look(crowd[1:], 2.0 + IDLE_S)  # n0 has had none for long: its place is given away
    assert ("a", "n0") not in accounts.seconds
    assert len(accounts.seconds) == 3


def test_one_namespace_that_makes_up_names_takes_no_series_from_others() -> None:
    accounts = UnitAccounts(most=20, most_of_one=5)
    for second in range(10):  # a pod of each name, one after the other
        crowd = [pod(f"p{second}", 1, BOUND, namespace="flood", notebook=f"n{second}")]
        accounts.look([*crowd, pod("q", 10, BOUND, notebook="mine")], float(second))
    assert accounts.held == {("flood", REST): 1, ("a", "mine"): 10}
    assert sum(seconds for (namespace, _), seconds in accounts.seconds.items() if namespace == "flood") == 9
    later = [pod(f"z{number}", 1, BOUND, notebook=f"z{number}") for number in range(4)]
    accounts.look(later, 9.0 + IDLE_S)
    assert set(accounts.held) == {("a", f"z{number}") for number in range(4)}
    accounts.look([pod("x", 1, BOUND, namespace="flood", notebook="x")], 10.0 + 2 * IDLE_S)
    assert accounts.held == {("flood", "x"): 1}  # those that were idle for long have made room


def test_a_pod_is_stuck_from_when_it_was_first_seen_without_a_node() -> None:
    stuck = StuckPods(300.0)
    refused = pod("p", state=LIFTED, no_node="cpu")
    assert stuck.look([refused, pod("q", state=LIFTED)], 1000.0) == {}
    assert stuck.look([refused], 1299.0) == {}
    assert stuck.look([refused], 1300.0) == {"p": 300.0}
    assert stuck.look([pod("p", state=LIFTED)], 1301.0) == {}
    assert stuck.look([refused], 1302.0) == {}
    assert stuck.any()
    assert stuck.look([pod("p", state=BOUND)], 2000.0) == {}
    assert not stuck.any()
