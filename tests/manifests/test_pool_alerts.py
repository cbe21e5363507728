"""The alerts but the controller's are PromQL over metrics that there are; a page lists them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.manifests.kube_state_metrics import labels_of_metrics
from tests.manifests.promql import labels_in, metrics_in
from tests.manifests.test_metrics_docs import documented

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "alerts.md").read_text(encoding="utf-8")
PAGE = PAGE.partition("\n## Pool, queue, GPU pods\n")[2]
SAMPLE = yaml.safe_load((ROOT / "manifests" / "samples" / "alerts.yaml").read_text())
_, *GROUPS = SAMPLE["spec"]["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])
    known = {**documented(), **labels_of_metrics()}
    named = metrics_in(rule["expr"])
    assert named
    labels = {"instance", "le"}
    for name in named:
        labels |= known[name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)]
    used = labels_in(rule["expr"]) | set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert used <= labels


def test_the_page_lists_the_same_alerts() -> None:
    rows = dict(re.findall(r"^\| `(Bitfusion\w+)` \| `(.+?)`(?: for \d+ minutes)? \|", PAGE, re.MULTILINE))
    assert rows == {rule["alert"]: rule["expr"] for rule in RULES}
    for rule in RULES:
        row = PAGE.split(f"`{rule['alert']}`")[1].partition("\n")[0]
        minutes = re.search(r"` for (\d+) minutes \|", row)
        assert (minutes and f"{minutes[1]}m") == rule.get("for")
