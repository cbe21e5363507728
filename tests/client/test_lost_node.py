"""Since when a node is not ready, and what an administrator is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.lost_node import if_it_is_dead, not_ready_since, not_ready_text

SINCE = "2026-11-25T10:30:12Z"


def node(*conditions: object) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("raw", "since"),
    [
        (node({"type": "Ready", "status": "True", "lastTransitionTime": SINCE}), None),
        (node({"type": "Ready", "status": "False", "lastTransitionTime": SINCE}), SINCE),
        (node("odd", {"type": "Ready", "status": "Unknown", "lastTransitionTime": SINCE}), SINCE),
        (node({"type": "Ready", "status": "Unknown"}), ""),
        (node({"type": "Ready", "status": "Unknown", "lastTransitionTime": "9" * 1000}), "9" * 40),
        (node({"type": "DiskPressure", "status": "False", "lastTransitionTime": SINCE}), None),
        (node(), None),
        ({"status": None}, None),
        ({}, None),
    ],
)
def test_since_when_a_node_is_not_ready(raw: dict[str, Any], since: str | None) -> None:
    assert not_ready_since(raw) == since


def test_it_is_told_to_the_minute() -> None:
    assert not_ready_text(SINCE) == "not ready since 2026-11-25 10:30 UTC"
    assert not_ready_text("") == not_ready_text("yesterday") == "not ready"


@given(st.text())
def test_whatever_stands_there_is_one_line(since: str) -> None:
    assert not_ready_text(since).isprintable()


def test_what_frees_its_units() -> None:
    assert if_it_is_dead("n1") == (
        "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, "
        "or kubectl delete node n1"
    )
