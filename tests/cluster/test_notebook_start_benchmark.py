"""The benchmark of a notebook's start runs, on one pair; how fast anything is stands in no test."""

from __future__ import annotations

import pytest

from benchmarks.notebook_start import ContainerTimes, Start, measure, rows_of
from benchmarks.table import format_table
from tests.cluster.installation import User
from tests.cluster.node import Node


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(1200)  # images are built when they never were
def test_a_notebook_with_the_client_and_one_without_are_timed(node: Node, user: User) -> None:
    rows = measure(node, user, 1)
    assert len(rows) == 5
    for row in rows:
        assert row.ours is not None
        assert row.ours.value > 0, row.what
    assert [row.plain is not None for row in rows] == [True, True, False, False, False]


def test_containerds_events_say_when_a_container_began_and_ended() -> None:
    times = ContainerTimes()
    for line in (
        '2026-11-23 16:00:00.25 +0000 UTC k8s.io /tasks/create {"container_id":"a","pid":7}',
        '2026-11-23 16:00:00.5 +0000 UTC k8s.io /tasks/start {"container_id":"a","pid":7}',
        '2026-11-23 16:00:01 +0000 UTC k8s.io /tasks/exec-started {"container_id":"a","exec_id":"b","pid":8}',
        '2026-11-23 16:00:02 +0000 UTC k8s.io /tasks/exit {"container_id":"a","id":"b","pid":8}',
        '2026-11-23 16:00:03.123456789 +0000 UTC k8s.io /tasks/exit {"container_id":"a","id":"a","pid":7}',
        "no event",
    ):
        times.take(line)
    assert times.began == {"a": 1795449600.5}
    assert times.ended == {"a": pytest.approx(1795449603.123457, abs=1e-6)}


def test_the_table_says_what_the_client_adds_and_where() -> None:
    ours = [Start(100.0, 100.5, 100.75, 101.5, 102.0), Start(200.0, 200.5, 200.75, 201.5, 202.0)]
    table = format_table(rows_of(ours, [Start(150.0, 0, 0, 150.5, 151.0)]))
    for line in (
        "Notebook created -> its pod is Running",
        "+1.00 s with the client",
        "the kubelet looks once a second whether a container has ended",
    ):
        assert line in table
    assert [row.ours and row.ours.value for row in rows_of(ours, ours)] == [2.0, 1.5, 0.5, 0.25, 0.75]
