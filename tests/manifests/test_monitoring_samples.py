"""manifests/samples/monitoring: what is to be scraped is there, where it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"
SAMPLES = MANIFESTS / "samples" / "monitoring"
DEPLOYMENTS = [
    MANIFESTS / "base" / "controller",
    MANIFESTS / "base" / "injector",
    MANIFESTS / "identity" / "base",
    MANIFESTS / "samples" / "pool",
]


def objects(path: Path) -> list[dict[str, Any]]:
    found = list(yaml.safe_load_all(path.read_text()))
    return [one for one in found if isinstance(one, dict)]  # a list of JSON patches is none


def in_folder(folder: Path) -> list[dict[str, Any]]:
    return [one for path in sorted(folder.glob("*.yaml")) for one in objects(path)]


@pytest.mark.parametrize("folder", DEPLOYMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_pod_monitor_finds_each_program_and_its_policy_lets_it_in(folder: Path) -> None:
    (monitor,) = objects(SAMPLES / "pod-monitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (deployment,) = (one for one in in_folder(folder) if one["kind"] == "Deployment")
    ports = [
        port["name"]
        for container in deployment["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    ]
    assert endpoint["port"] in ports
    (policy,) = (one for one in in_folder(folder) if one["kind"] == "NetworkPolicy")
    name = endpoint["port"]
    (rule,) = (one for one in policy["spec"]["ingress"] if name in [port["port"] for port in one["ports"]])
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}]
    labels = monitor["spec"]["selector"]["matchLabels"]
    parents = (folder / "kustomization.yaml", folder.parent / "kustomization.yaml")
    given = [
        entry["pairs"]
        for path in parents
        if path.exists()
        for entry in yaml.safe_load(path.read_text()).get("labels", [])
        if entry.get("includeTemplates")
    ]
    assert any(labels.items() <= pairs.items() for pairs in given)


def test_the_sample_pool_serves_metrics_where_its_port_is() -> None:
    (deployment,) = (one for one in in_folder(MANIFESTS / "samples" / "pool") if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = (one["containerPort"] for one in container["ports"] if one["name"] == "http-monitoring")
    assert {f"--metrics-port={port}", "--metrics-address=0.0.0.0"} <= set(container["args"])
