"""What the client prints, as the JSON of the pool; any text gives one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ext.server.pool_history import LEAST_APART, MOST_POINTS, PoolHistory
from jupyter_ext.server.pool_report import figures, is_mine, pool_report

OUTPUT = """\
[INFO] 2026-11-27T03:29:50Z Query server 127.0.0.1:56001 to claim client id
- server 0 [127.0.0.1:56001]: running 2 tasks
   |- GPU 0: free memory 4040 MiB / 16160 MiB (Simulated Tesla V100)
   |  |- 8080 MiB held by ada: x.ipynb (1 GPU × 50 %, since 03:29 UTC)
   |  |- 4040 MiB held by bob: <b>y</b>.ipynb (1 GPU × 25 %, since 03:30 UTC)
   |- GPU 1: free memory 16160 MiB / 16160 MiB (Simulated Tesla V100)
   |  |- 12 MiB used by programs outside the pool
- waiting, position 1: ada: z.ipynb (2 GPUs, since 03:31 UTC)
- waiting, position 2: bob: held by (1 GPU, since 03:32 UTC)
- 1 server did not answer
"""
CLUSTER = """\
- server 0 [node-a]: running 1 tasks
   |- GPU 0: free memory 0 MiB / 0 MiB (NVIDIA A100)
   |  |- held by digits-0-gpu-x7: 1 GPU, since 03:29
- waits: other-0-gpu-1: 1 GPU
"""
GRAMMAR = st.sampled_from(
    [
        *OUTPUT.splitlines(),
        *CLUSTER.splitlines(),
        "   |- GPU 99999999999999999999: free memory 1 MiB / 2 MiB",
        "- server ² [x]: running 1 tasks",
        "- waiting, position 999999999999999999999: a",
        "- waiting, position : ",
        "   |  |- ² MiB held by x",
        "- ",
    ]
)


def test_servers_holders_and_waiters_are_told() -> None:
    report = pool_report(OUTPUT, ["ada: "])
    (server,) = report["servers"]
    assert server["address"] == "127.0.0.1:56001"
    first, second = server["gpus"]
    assert first == {
        "index": 0,
        "name": "Simulated Tesla V100",
        "simulated": True,
        "free_mib": 4040,
        "total_mib": 16160,
        "holders": [
            {"text": "ada: x.ipynb (1 GPU × 50 %, since 03:29 UTC)", "mine": True, "mib": 8080},
            {"text": "bob: <b>y</b>.ipynb (1 GPU × 25 %, since 03:30 UTC)", "mine": False, "mib": 4040},
        ],
        "notes": [],
    }
    assert second["notes"] == ["12 MiB used by programs outside the pool"]
    assert report["waiting"] == [
        {"text": "ada: z.ipynb (2 GPUs, since 03:31 UTC)", "mine": True, "position": 1},
        {"text": "bob: held by (1 GPU, since 03:32 UTC)", "mine": False, "position": 2},
    ]
    assert report["notes"] == ["1 server did not answer"]
    assert (report["simulated"], report["text"]) == (True, None)
    assert figures(report) == {"held": 0.75, "total": 2, "waiting": 2}


def test_gpus_of_a_cluster_have_no_memory_and_no_order() -> None:
    report = pool_report(CLUSTER, ["digits-0-"])
    (gpu,) = report["servers"][0]["gpus"]
    assert gpu["holders"] == [{"text": "digits-0-gpu-x7: 1 GPU, since 03:29", "mine": True, "mib": None}]
    assert report["waiting"] == [{"text": "other-0-gpu-1: 1 GPU", "mine": False, "position": None}]
    assert report["simulated"] is False
    assert figures(report) == {"held": 1.0, "total": 1, "waiting": 1}


def test_an_unknown_form_is_kept_as_text() -> None:
    assert pool_report("GPUs: plenty\n", [])["text"] == "GPUs: plenty\n"
    assert len(pool_report("x" * 100_000, [])["text"]) == 4000


@pytest.mark.parametrize(
    ("text", "mine"),
    [("ada: x (1 GPU)", True), ("adam: x (1 GPU)", False), ("bob: ada: x", False), ("", False)],
)
def test_mine_is_told_by_the_whole_name(text: str, mine: bool) -> None:
    assert is_mine(text, ["ada: "]) is mine


@given(st.lists(GRAMMAR | st.text(max_size=40), max_size=12).map("\n".join))
def test_any_output_gives_a_report(output: str) -> None:
    report = pool_report(output, ["ada: "])
    json.dumps(report)
    told = figures(report)
    assert 0 <= told["held"] <= told["total"]
    assert told["waiting"] == len(report["waiting"])


def test_the_history_is_bounded_and_keeps_changes() -> None:
    history = PoolHistory()
    free, held = ({"held": held, "total": 1, "waiting": 0} for held in (0.0, 1.0))
    history.add(1.0, free)
    history.add(2.0, free)
    history.add(3.0, held)
    history.add(3.0 + LEAST_APART, held)
    assert [point["at"] for point in history.to_json()] == [1.0, 3.0, 3.0 + LEAST_APART]
    for second in range(1000):
        history.add(100.0 + second, free if second % 2 else held)
    assert len(history.to_json()) == MOST_POINTS
    assert history.to_json()[-1]["at"] == 1099.0
