"""The table of docs/reference/containers.md: the rows that a node is asked about, the words seen there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.kind_pods import places
from tests.cluster.kinds import BY_PATH, KINDS
from tests.cluster.project_images import ROOT

GUIDE: Path = ROOT / "docs" / "reference" / "containers.md"
ROWS = dict(
    re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|$", GUIDE.read_text().split("## Quotas")[0])[1:]
)  # without the titles


def test_each_row_of_the_guide_is_a_pod_of_the_test() -> None:
    assert list(ROWS) == list(KINDS)


@pytest.mark.parametrize("title", KINDS)
def test_a_row_says_what_its_container_says(title: str) -> None:
    kind = KINDS[title]
    first, *more = re.findall("`([^`]+)`", ROWS[title])
    if words := kind.refused or kind.not_started or kind.says:
        assert any(each in words for each in (first, *more))
    else:
        assert first == kind.client
    if kind.version and kind.client != BY_PATH:
        assert any(kind.version.startswith(each) for each in more)


def test_all_pods_together_are_no_more_than_the_node_offers() -> None:
    asking = [each for each in places(KINDS) if not each.kind.refused]
    assert len({each.title for each in asking}) > 20
    assert sum(each.percent for each in asking) < 200
