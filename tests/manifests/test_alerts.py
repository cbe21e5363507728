"""The sample of alerts asks for metrics and labels that there are, and the guide lists the same ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from bitfusion_cluster.monitoring.metrics import FAILED, AdmissionMetrics, WatchMetrics
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics

ROOT = Path(__file__).parents[2]
SAMPLE = yaml.safe_load((ROOT / "manifests" / "samples" / "alerts.yaml").read_text())
GROUP, *_ = SAMPLE["spec"]["groups"]  # the others: test_pool_alerts.py
RULES: list[dict[str, Any]] = GROUP["rules"]
METRIC = re.compile(r"(bitfusion_\w+)(?:\{(\w+)=\"(\w+)\"\})?")


@pytest.fixture(scope="module")
def exposed() -> str:
    """/metrics of a replica that has met everything once."""
    registry = CollectorRegistry()
    admission, reconcile = AdmissionMetrics(registry), ReconcileMetrics(registry)
    watch = WatchMetrics(registry)
    admission.lookup_failures.labels("timeout", "cache").inc()
    admission.reviews.labels("notebooks", FAILED).inc()
    admission.reachable.set(0)
    reconcile.leader.set(0)
    watch.show_age("notebooks", lambda: 601.0)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_there_is(exposed: str, rule: dict[str, Any]) -> None:
    found = METRIC.findall(rule["expr"])
    assert found
    for name, label, value in found:
        samples = [line for line in exposed.splitlines() if re.match(rf"{name}[ {{]", line)]
        assert samples, f"no sample is called {name}"
        if label:
            assert any(f'{label}="{value}"' in line for line in samples)
    for shown in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert shown == "pod" or any(f'{shown}="' in line for line in samples)


def test_the_guide_lists_the_same_alerts() -> None:
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text()
    guide = page.partition("\n## Controller and injector\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(Bitfusion\w+)` \| `(.+?)`(?: for 5 minutes)? \|", guide, re.MULTILINE))
    assert rows == {rule["alert"]: rule["expr"] for rule in RULES}
    for rule in RULES:
        assert ("for 5 minutes |" in guide.split(rule["alert"])[1].partition("\n")[0]) == ("for" in rule)
