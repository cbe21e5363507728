"""Which gates are lifted, in which order, who is told what, and who goes back to the end of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bitfusion_device_plugin.queue.decisions import Decision, Knowledge, decide
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod
from tests.bitfusion_device_plugin.queue.pods import pod

GATED, KEPT, LIFTED, BOUND = PodState.GATED, PodState.KEPT, PodState.LIFTED, PodState.BOUND
FINISHED = PodState.FINISHED


def names(pods: Sequence[QueuedPod]) -> list[str]:
    return [one.name for one in pods]


def lifted(decision: Decision) -> list[str]:
    return names((*decision.lift, *decision.keep))


@pytest.mark.parametrize(
    ("pods", "kept"),
    [
        ([pod("p")], ["p"]),
        ([pod("p", 100)], ["p"]),
        ([pod("p", created=2), pod("q", created=1)], ["q", "p"]),
        ([pod("q"), pod("p")], ["p", "q"]),
        ([pod("p", state=BOUND), pod("q"), pod("r", created=1)], ["q"]),
        ([pod("p", state=LIFTED), pod("q", 51)], []),
        ([pod("p", state=FINISHED), pod("q", 100)], ["q"]),
        ([pod("p", state=BOUND, leaving=True), pod("q", 51)], []),
        ([pod("p", state=BOUND), pod("q", 60), pod("r", 10, created=1)], []),
        ([pod("p", 101), pod("q", 100, created=1)], ["q"]),
        ([pod("p", other_gates=("x",)), pod("q", 100, created=1)], ["q"]),
    ],
    ids=[
        "the pool is free",
        "all of the pool",
        "the older first",
        "of one second by name",
        "as many as fit",
        "one unit is missing",
        "what is finished is free again",
        "what ends is not free yet",
        "nobody overtakes",
        "larger than the pool holds up nobody",
        "held by another gate holds up nobody",
    ],
)
def test_whose_units_are_kept(pods: list[QueuedPod], kept: list[str]) -> None:
    assert names(decide(pods, 100).keep) == kept


def test_nothing_is_lifted_while_the_pool_is_away() -> None:
    decision = decide([pod("p", 1)], 0)
    assert (lifted(decision), decision.waiting) == ([], 1)
    words = decision.waits["p"]
    assert words.reason == "PoolAway"
    assert words.message == (
        "Waits for 1 unit of the Bitfusion pool, and no node offers any: the pool is away, or its device "
        "plugin does not run; position 1 of 1."
    )


def test_a_pod_is_told_what_it_waits_for_and_its_place() -> None:
    decision = decide([pod("p", 80, BOUND), pod("q", 50), pod("r", 50, created=1)], 100)
    assert {uid: words.reason for uid, words in decision.waits.items()} == {
        "q": "WaitsForPool",
        "r": "WaitsForPool",
    }
    assert decision.waits["r"].message == (
        "Waits for 50 units of the Bitfusion pool: 80 of 100 are taken; position 2 of 2 in the queue."
    )


def test_who_waits_behind_a_large_one_is_told_so() -> None:
    decision = decide([pod("p", 60, BOUND), pod("q", 50), pod("r", 40, created=1)], 100)
    assert decision.waits["r"].message == (
        "Waits for 40 units of the Bitfusion pool: 60 of 100 are taken; position 2 of 2 in the queue, whose "
        "first asks for 50."
    )


def test_who_does_not_stand_in_line_is_told_after_those_who_do() -> None:
    """Their order is that in which people are told, and how seldom their numbers are renewed."""
    large = [pod(f"x{number}", 101, created=number) for number in range(3)]
    decision = decide([*large, pod("p", 100, BOUND), pod("q", created=9), pod("r", created=10)], 100)
    assert list(decision.waits) == ["q", "r", "x0", "x1", "x2"]


NOT_READY = Knowledge(not_ready={"n1": "2026-11-25T10:30:00Z", "n2": "", "n9": "2026-11-25T10:30:00Z"})
CURE = (
    "an administrator frees them: kubectl taint node n1 "
    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or kubectl delete node n1."
)


def test_who_waits_for_units_on_a_node_that_is_not_ready_is_told_so_and_what_frees_them() -> None:
    lost = [pod("l", 100, BOUND, node="n1"), pod("m", 50, BOUND, node="n1", leaving=True)]
    decision = decide([*lost, pod("p", 50, BOUND, node="n3"), pod("q")], 200, NOT_READY)
    assert (decision.waits["q"].reason, decision.waits["q"].message) == (
        "WaitsForLostNode",
        "Waits for 50 units of the Bitfusion pool: 200 of 200 are taken, of them 150 on node n1, not ready "
        f"since 2026-11-25 10:30 UTC; position 1 of 1 in the queue. If n1 is dead, {CURE}",
    )
    assert (lifted(decision), decision.taken) == ([], 200)  # they may still run there
    assert [(node.name, node.units) for node in decision.lost] == [("n1", 150)]
    assert names(decision.on_lost) == ["l", "m"]


def test_of_many_lost_nodes_the_first_are_named() -> None:
    since = "2026-11-25T10:30:00Z"
    nodes = {f"n{number}": since for number in range(5)}
    lost = [pod(f"l{number}", 50 - number, BOUND, node=f"n{number}") for number in range(5)]
    message = decide([*lost, pod("q")], 200, Knowledge(not_ready=nodes)).waits["q"].message
    assert "of them 50 on node n0, not ready since 2026-11-25 10:30 UTC; 49 on node n1, not ready" in message
    assert (
        "48 on node n2, not ready since 2026-11-25 10:30 UTC; 93 on others like these; position 1" in message
    )
    assert message.endswith("or kubectl delete node n0.")
    assert len(message) < 1024


def test_a_lost_node_whose_pods_have_no_units_is_nobodys_matter() -> None:
    decision = decide([pod("p", 100, BOUND, node="n3"), pod("q")], 100, NOT_READY)
    assert (decision.lost, decision.waits["q"].reason) == ((), "WaitsForPool")


@pytest.mark.parametrize(
    ("waiting", "known", "reason", "message"),
    [
        (
            pod("p", 101),
            Knowledge(),
            "LargerThanPool",
            "Asks for 101 units, and the Bitfusion pool has 100 in all: stop it and choose a smaller size, "
            "or wait until the pool has grown. Others do not wait for it.",
        ),
        (
            pod("p", other_gates=("a", "b", "…")),
            Knowledge(),
            "OtherGates",
            "Is held by a, b, …; then it joins the queue for the Bitfusion pool.",
        ),
        (
            pod("p"),
            Knowledge(refused={"p": "admission webhook x denied the request"}),
            "LiftRefused",
            "Its turn for the Bitfusion pool has come, and the API server refuses to lift its gate, which is "
            "tried again: admission webhook x denied the request",
        ),
    ],
)
def test_why_a_pod_does_not_stand_in_line(
    waiting: QueuedPod, known: Knowledge, reason: str, message: str
) -> None:
    decision = decide([waiting, pod("q", 100, created=1)], 100, known)
    assert (decision.waits["p"].reason, decision.waits["p"].message) == (reason, message)
    assert names(decision.keep) == ["q"]


def test_units_that_are_kept_count_and_the_gate_goes() -> None:
    decision = decide([pod("p", 60, KEPT), pod("q", 50, created=1)], 100)
    assert (names(decision.lift), names(decision.keep), decision.taken) == (["p"], [], 60)


def test_units_that_may_be_kept_without_the_cache_showing_it_count() -> None:
    decision = decide([pod("p", 60), pod("q", 50, created=1)], 100, Knowledge(reserved={"p"}))
    assert (names(decision.lift), names(decision.keep), decision.taken) == (["p"], [], 60)
    assert "p" not in decision.waits


def test_what_is_kept_and_does_not_fit_is_taken_back_from_the_end_and_nothing_is_lifted_before() -> None:
    kept = [pod("p", 60, KEPT), pod("q", 60, KEPT, created=1), pod("r", 10, created=2)]
    decision = decide(kept, 100)
    assert (names(decision.take_back), lifted(decision)) == (["q"], [])
    shrunk = decide([pod("o", 80, BOUND), *kept], 100)
    assert names(shrunk.take_back) == ["q", "p"]
    assert shrunk.waits["q"].message == (
        "Waits again for 60 units of the Bitfusion pool: 200 of 100 are taken, those that were kept for it "
        "among them."
    )


def test_what_the_api_server_refuses_is_taken_back_and_holds_up_nobody_that_fits_beside_it() -> None:
    kept = [pod("q", 40, KEPT), pod("r", 20, created=1)]
    refused = decide(kept, 100, Knowledge(refused={"q": "no"}))
    assert (names(refused.take_back), lifted(refused)) == (["q"], ["r"])
    assert refused.waits["q"].reason == "LiftRefused"


STUCK = Knowledge(stuck={"s": 300.0, "t": 400.0, "u": 500.0})


def stuck(name: str, units: int = 50, **fields: Any) -> QueuedPod:
    return pod(name, units, LIFTED, no_node="cpu", **fields)


@pytest.mark.parametrize(
    ("pods", "sent"),
    [
        ([stuck("s")], []),
        ([stuck("s"), pod("p", 60)], ["s"]),
        ([stuck("s"), pod("p", 50)], []),
        ([stuck("x"), pod("p", 60)], []),
        ([stuck("s", 30), stuck("t", 30), stuck("u", 30), pod("p", 70)], ["u", "t"]),
        ([stuck("s", 30), pod("o", 70, BOUND), pod("p", 50)], []),
        ([stuck("s", 30), pod("o", 70, BOUND, leaving=True), pod("p", 50)], []),
        ([stuck("s", 30), pod("o", 70, BOUND, leaving=True), pod("p", 100)], ["s"]),
        ([pod("s", state=BOUND), pod("p", 60)], []),
        ([stuck("s", remade=False), pod("p", 60)], []),
        ([stuck("s"), pod("p", 200)], []),
    ],
    ids=[
        "nobody waits",
        "somebody waits",
        "who waits is served anyway",
        "not for long enough",
        "as many as are needed, the longest stuck first",
        "nobody would be served by it",
        "what ends is waited for",
        "what ends is not enough",
        "it has found a node",
        "nothing would make it anew",
        "who waits is larger than the pool",
    ],
)
def test_who_goes_back_to_the_end_of_the_queue(pods: list[QueuedPod], sent: list[str]) -> None:
    assert names(decide(pods, 100, STUCK).send_back) == sent


def test_who_holds_up_others_and_would_not_come_back_is_told() -> None:
    decision = decide([stuck("s", remade=False), pod("p", 60)], 100, STUCK)
    assert names(decision.holders_up) == ["s"]
    assert names(decide([stuck("s", remade=False)], 100, STUCK).holders_up) == []


def test_nobody_is_sent_back_while_the_pool_is_away() -> None:
    assert names(decide([stuck("s"), pod("p", 60)], 0, STUCK).send_back) == []


def test_units_that_are_taken_beyond_the_pool_hold_everybody_and_are_shown() -> None:
    decision = decide([pod("o", 150, BOUND), pod("p", 1)], 100)
    assert (decision.taken, lifted(decision), decision.waiting) == (150, [], 1)
