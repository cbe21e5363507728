"""The benchmark of a relist runs, on few notebooks; how fast anything is stands in no test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.measure import format_value
from benchmarks.relist import fill, make_namespaces, measure, rows_of
from benchmarks.table import format_table
from tests.cluster.cluster import Cluster


@pytest.fixture
def alone(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster of its own: what other tests left in theirs would be read, and healed, too."""
    own = Cluster.start(cluster.binaries)
    try:
        yield own
    finally:
        own.end()


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(120)
def test_every_way_reads_everything(alone: Cluster) -> None:
    fill(alone, make_namespaces(alone, 12), 12)
    rows = measure(alone, 12, 1)
    assert len(rows) == 5
    for row in rows:
        assert row.ours is not None
        assert row.ours.value > 0
        assert row.plain is not None
    assert "; 0 writes" in rows[0].note
    assert "0 lists expired half-way" in rows[2].note, "one page holds them all"


def test_too_many_requests_in_a_second_miss_the_goal() -> None:
    ours = {
        "seconds": 1.0, "queries": 30, "busiest": 25, "peak": 50e6,
        "lists_expired": 2, "again_seconds": 1.0, "again_queries": 20, "again_busiest": 5, "again_peak": 60e6,
        "writes": 0,
    }  # fmt: skip
    plain = {"seconds": 2.0, "queries": 20, "peak": 100e6}
    rows = rows_of({"ours": [ours], "dynamic": [plain], "custom": [plain]}, 5000)
    assert [row.verdict for row in rows] == ["met", "met", "not met", "met", "met"]
    assert "at most 25 in a second" in format_table(rows)
    assert "2 lists expired half-way" in format_table(rows)
    assert format_value(60e6, "MB") in format_table(rows)
