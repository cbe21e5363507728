"""The tables, word for word."""

from __future__ import annotations

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_device_plugin.units_report.cluster_objects import cluster_objects
from bitfusion_device_plugin.units_report.cluster_report import cluster_report
from bitfusion_device_plugin.units_report.report_text import report_json, report_text
from tests.bitfusion_device_plugin.units_report.raw import (
    SECONDS,
    entry,
    gated,
    node,
    pod,
    queue_pod,
    quota,
    status,
    waiting,
)

ITEMS = [
    node(),
    node("n2"),
    queue_pod(),
    quota(),
    pod(),
    gated(units=200, message="position 1 of 1: 150 of 200"),
]
HELD = {"held": 50, "leases": 1, "waiting": 0, "idle": 0, "seconds": SECONDS, "idle_seconds": None}
EVERYTHING = """\
Units of the pool: 200, 50 taken by pods, 150 free
1 pod waiting at a gate for 200 units
Protected against overselling by the queue, kubeflow/bitfusion-queue-7d9f

┌───────────┬──────────┬───────┬───────────────────┬──────┬───────┬─────────────┬─────────────┬─────────┐
│ Namespace │ Notebook │ Units │ State             │ Node │ holds │         for │ idle        │ waiting │
├───────────┼──────────┼───────┼───────────────────┼──────┼───────┼─────────────┼─────────────┼─────────┤
│ team-a    │ big      │   200 │ waits at its gate │      │       │             │             │         │
│ team-a    │ mnist    │    50 │ runs              │ n1   │    50 │ 16 min 39 s │ 12 min 05 s │       1 │
└───────────┴──────────┴───────┴───────────────────┴──────┴───────┴─────────────┴─────────────┴─────────┘

team-a/big: position 1 of 1: 150 of 200

┌───────────┬───────┬──────┬──────────┐
│ Namespace │ Quota │ used │ of units │
├───────────┼───────┼──────┼──────────┤
│ team-a    │ gpus  │   50 │      120 │
└───────────┴───────┴──────┴──────────┘

Holders that no pod accounts for:
┌────────────────┬─────────────┬───────┬─────────────┬──────┬────────┬─────────────────────────────────┐
│ Holder         │ Place       │ holds │         for │ idle │ leases │ why                             │
├────────────────┼─────────────┼───────┼─────────────┼──────┼────────┼─────────────────────────────────┤
│ cluster/team-a │ team-a/gone │   100 │ 16 min 39 s │      │      1 │ no pod with units has this name │
└────────────────┴─────────────┴───────┴─────────────┴──────┴────────┴─────────────────────────────────┘
"""


def test_everything_at_once() -> None:
    idle = entry(activity=KernelActivity("idle", 1275.0, 1275.0))
    pool = status(idle, waiting(number=2), entry(host="team-a/gone", mib=16160, number=3))
    assert report_text(cluster_report(cluster_objects(ITEMS), pool)) == EVERYTHING


def test_a_cluster_in_which_nobody_asks() -> None:
    text = report_text(cluster_report(cluster_objects([node(units=None)]), None, "none is named"))
    assert text == (
        "Units of the pool: none, no node offers any; 0 taken by pods\n"
        "Not protected against overselling:\n"
        "  - no pod of the account bitfusion-queue is ready, so nobody lifts gates in order\n"
        "\n"
        "No pod asks for units of the pool.\n"
        "\n"
        "The pool itself was not asked who holds what: none is named\n"
    )


def test_units_of_a_lost_node_are_told_with_what_frees_them() -> None:
    """The row said *runs*, and the pool seemed to have what the lost node said last."""
    items = [node(units=300, ready="Unknown"), node("n2"), queue_pod(), pod(units="150"), gated(units=200)]
    text = report_text(cluster_report(cluster_objects(items), status()))
    assert text.splitlines()[:4] == [
        "Units of the pool: 200, 150 taken by pods, 50 free",
        "150 of them on n1, not ready since 2026-11-25 10:30 UTC; if it is dead: kubectl taint node n1 "
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or kubectl delete node n1",
        "1 pod waiting at a gate for 200 units",
        "Protected against overselling by the queue, kubeflow/bitfusion-queue-7d9f",
    ]
    assert "│ mnist    │   150 │ node not ready    │ n1   │" in text


def test_of_many_lost_nodes_the_first_are_told() -> None:
    nodes = [node(f"n{number}", ready="False") for number in range(8)]
    pods = [pod(f"p{number}-0", node=f"n{number}") for number in range(8)]
    text = report_text(cluster_report(cluster_objects([*nodes, *pods]), None, "none"))
    assert text.count("of them on n") == 5
    assert "150 of them on 3 more nodes that are not ready\n" in text


def test_a_quota_that_limits_nothing_is_told_with_the_key_that_counts() -> None:
    items = [*ITEMS, quota("team-b", key="bitfusion.io/gpu"), quota("team-c", key="limits.bitfusion.io/gpu")]
    text = report_text(cluster_report(cluster_objects(items), status()))
    counts = "use requests.bitfusion.io/gpu, in hundredths of a GPU, 150 for one and a half"
    assert (
        "└───────────┴───────┴──────┴──────────┘\n\n"
        f"Quota team-b/gpus does not limit GPUs by bitfusion.io/gpu: {counts}\n"
        f"Quota team-c/gpus does not limit GPUs by limits.bitfusion.io/gpu: {counts}\n"
    ) in text
    many = [quota(f"team-{number:02}", key="bitfusion.io/gpu") for number in range(25)]
    text = report_text(cluster_report(cluster_objects([node(), *many]), status()))
    assert "and 5 more quotas that limit nothing\n" in text
    assert "of units" not in text


def test_an_oversold_pool_and_nodes_without_units_are_told() -> None:
    items = [node(units=40), *(node(f"x{n}", None) for n in range(7)), queue_pod(), pod()]
    lines = report_text(cluster_report(cluster_objects(items), status())).splitlines()
    assert lines[:2] == [
        "Units of the pool: 40, 50 taken by pods, OVERSOLD BY 10",
        "7 of 8 nodes offering no units: x0, x1, x2, x3, x4 and 2 more",
    ]
    assert lines[-1] == "Every lease of the pool is accounted for by a pod."


def test_one_namespace_alone_says_so_and_lists_no_holders_of_others() -> None:
    pool = status(entry(), entry(user="cluster/team-b", host="team-b/x", number=2))
    report = cluster_report(cluster_objects([node(), pod()]), pool)
    lines = report_text(report).splitlines()
    assert lines[0] == "Units of the pool: 200, 50 taken by pods of this namespace"
    assert lines[1] == (
        "Only the pods of namespace team-a were read: what others have taken, and whether the queue runs, is "
        "not seen"
    )
    assert lines[-1] == "Every lease of namespace team-a is accounted for by a pod."
    data = report_json(report)
    assert (data["only_namespace"], data["protected"], data["unaccounted"]) == ("team-a", None, [])
    (gone,) = cluster_report(cluster_objects([node(), pod()]), status(entry(host="team-a/z"))).unaccounted
    assert gone.holder.place == "team-a/z"


def test_leases_that_the_pool_did_not_show_are_counted() -> None:
    pool = status(entry(), left_out=7)
    report = cluster_report(cluster_objects(ITEMS), pool)
    assert report_text(report).endswith(
        "accounted for by a pod.\nand 7 more leases or requests, which the pool did not show\n"
    )
    assert report_json(report)["left_out"] == 7


def test_reasons_are_bounded() -> None:
    items = [node(), *(gated(f"g{n:02}-0", message="full") for n in range(23))]
    text = report_text(cluster_report(cluster_objects(items), status()))
    assert text.count(": full\n") == 20
    assert "\nand 3 more\n" in text


def test_the_same_for_programs() -> None:
    data = report_json(cluster_report(cluster_objects(ITEMS), status(entry())))
    assert (data["pool_units"], data["free"], data["protected"], data["unprotected"]) == (200, 150, True, [])
    assert data["pods"][1] == {
        "namespace": "team-a",
        "name": "mnist-0",
        "notebook": "mnist",
        "units": 50,
        "state": "runs",
        "counts": True,
        "node": "n1",
        "why": "",
        "pool": HELD,
    }
    assert data["quotas"] == [
        {
            **{"namespace": "team-a", "name": "gpus", "used": 50, "hard": 120, "scoped": False},
            "wrong_keys": (),
        }
    ]
    assert data["lost"] == []
    assert (data["unaccounted"], data["no_pool"]) == ([], "")
    lost = cluster_report(cluster_objects([node(ready="Unknown"), pod()]), status())
    assert report_json(lost)["lost"] == [
        {"node": "n1", "units": 50, "not_ready_since": "2026-11-25T10:30:00Z"}
    ]
    (one,) = report_json(cluster_report(cluster_objects(ITEMS), status(entry(user="ada"))))["unaccounted"]
    assert one == {
        "holder": "ada",
        "place": "",
        "pool": HELD,
        "why": "a token of no namespace",
    }
