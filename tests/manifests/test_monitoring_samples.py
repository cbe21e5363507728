"""manifests/samples/monitoring: what is to be scraped is there, where it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_device_plugin.health_check.settings import PROGRAM
from tests.support.schemas import validate

MANIFESTS = Path(__file__).parents[2] / "manifests"
SAMPLES = MANIFESTS / "samples" / "monitoring"
DEPLOYMENTS = [
    MANIFESTS / "base" / "controller",
    MANIFESTS / "base" / "injector",
    MANIFESTS / "identity" / "base",
    MANIFESTS / "device-plugin" / "base",
    MANIFESTS / "components" / "queue-without-policies",
    MANIFESTS / "samples" / "pool",
]


def objects(path: Path) -> list[dict[str, Any]]:
    found = list(yaml.safe_load_all(path.read_text()))
    return [one for one in found if isinstance(one, dict)]  # a list of JSON patches is none


def in_folder(folder: Path) -> list[dict[str, Any]]:
    return [one for path in sorted(folder.glob("*.yaml")) for one in objects(path) if "kind" in one]


@pytest.mark.parametrize("folder", DEPLOYMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_pod_monitor_finds_each_program_and_its_policy_lets_it_in(folder: Path) -> None:
    (monitor,) = objects(SAMPLES / "pod-monitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (deployment,) = (one for one in in_folder(folder) if one["kind"] in ("Deployment", "DaemonSet"))
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
    given.append(deployment["spec"]["template"]["metadata"]["labels"])
    assert any(labels.items() <= pairs.items() for pairs in given)


def test_the_sample_pool_serves_metrics_where_its_port_is() -> None:
    (deployment,) = (one for one in in_folder(MANIFESTS / "samples" / "pool") if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = (one["containerPort"] for one in container["ports"] if one["name"] == "http-monitoring")
    assert {f"--metrics-port={port}", "--metrics-address=0.0.0.0"} <= set(container["args"])


HEALTH_CHECK = SAMPLES / "health-check"


@pytest.mark.parametrize("version", ["1.25", "1.34", "1.37"])
def test_the_health_checks_objects_fit_the_schemas(version: str) -> None:
    found = [one for one in in_folder(HEALTH_CHECK) if one["kind"] != "Kustomization"]
    assert {one["kind"] for one in found} == {
        *("CronJob", "NetworkPolicy", "Role", "RoleBinding", "ServiceAccount"),
    }
    for one in found:
        validate(one, version)


def test_the_health_check_runs_with_the_devices_plugins_token_and_no_more() -> None:
    (job,) = objects(HEALTH_CHECK / "cron-job.yaml")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == [PROGRAM.name]
    settings = PROGRAM.settings_of(container["args"], {"BITFUSION_HEALTH_CHECK_NAMESPACE": "a"})
    assert settings.cron_job == job["metadata"]["name"]
    assert settings.limit < job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert [one["name"] for one in container["env"]] == ["BITFUSION_HEALTH_CHECK_NAMESPACE", "HOME"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]} == {"identity", "tmp"}
    plugin = objects(MANIFESTS / "device-plugin" / "base" / "daemon-set.yaml")[0]["spec"]["template"]["spec"]
    (secret,) = (one["secret"] for one in plugin["volumes"] if "secret" in one)
    assert pod["volumes"][0]["secret"]["secretName"] == secret["secretName"]
    home = yaml.safe_load((MANIFESTS / "device-plugin" / "base" / "kustomization.yaml").read_text())
    own = yaml.safe_load((HEALTH_CHECK / "kustomization.yaml").read_text())
    assert own["namespace"] == home["namespace"]


def test_the_health_check_can_be_scraped_after_its_report() -> None:
    (job,) = objects(HEALTH_CHECK / "cron-job.yaml")
    template = job["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    settings = PROGRAM.settings_of(container["args"], {"BITFUSION_HEALTH_CHECK_NAMESPACE": "a"})
    (monitor,) = objects(SAMPLES / "pod-monitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert settings.show_metrics >= 5 * float(endpoint["interval"].removesuffix("s"))
    deadline = job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert settings.limit + settings.show_metrics + 60 < deadline
    assert container["ports"] == [{"name": endpoint["port"], "containerPort": settings.monitoring_port}]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(settings.monitoring_port)
    (own,) = yaml.safe_load((HEALTH_CHECK / "kustomization.yaml").read_text())["labels"]
    assert own["includeTemplates"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= own["pairs"].items()
    (policy,) = objects(HEALTH_CHECK / "network-policy.yaml")
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}]
    assert [port["port"] for port in rule["ports"]] == [endpoint["port"]]
