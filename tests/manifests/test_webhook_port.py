"""The webhooks' port is changed in one place, or is one of the node: every other place follows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.guide import yaml_block
from tests.manifests.built import (
    INSTALLED,
    PROCESSES,
    Objects,
    build_own,
    container,
    of_kind,
    one,
    pod_template,
)
from tests.manifests.test_overlays import settings
from tests.support.schemas import validate

ON_THE_NODE = {"bitfusion-notebook-controller": (10271, 10272), "bitfusion-injector": (10273, 10274)}

each_overlay = pytest.mark.parametrize("overlay", INSTALLED)


def ports(objects: Objects, process: str) -> dict[str, Any]:
    return {each["name"]: each["containerPort"] for each in container(objects, process)["ports"]}


def of_the_guide(cluster: Cluster, overlay: str, *components: str) -> Objects:
    """As the guide has it, with other components before."""
    own: dict[str, Any] = yaml.safe_load(yaml_block("bitfusion-webhook-port"))
    assert own.pop("components") == ["../manifests/components/webhook-port"]
    return build_own(cluster, [f"overlays/{overlay}"], [*components, "webhook-port"], **own)


@each_overlay
def test_one_word_changes_the_port_everywhere(cluster: Cluster, overlay: str) -> None:
    objects = of_the_guide(cluster, overlay, "restrict-account", "queue")
    for process in PROCESSES:
        assert ports(objects, process) == {"https-webhook": 10250, "http-monitoring": 8080}
        found = settings(objects, process)
        assert (found.port, found.monitoring_port) == (10250, 8080)
        # By its name, so that they follow.
        service = one(objects, "Service", process)["spec"]["ports"][0]
        assert (service["port"], service["targetPort"]) == (443, "https-webhook")
        first, *_ = one(objects, "NetworkPolicy", process)["spec"]["ingress"]
        assert first["ports"] == [{"port": "https-webhook", "protocol": "TCP"}]
        assert "8443" not in str(one(objects, "Deployment", process))
        validate(one(objects, "Deployment", process))
    # What said so is for kustomize alone.
    assert not [each for each in of_kind(objects, "ConfigMap") if "port" in each["metadata"]["name"]]


def test_nothing_else_changes(cluster: Cluster) -> None:
    def others(objects: Objects) -> Objects:
        return [each for each in objects if each["kind"] != "Deployment"]

    plain = build_own(cluster, ["overlays/kubeflow"])
    changed = of_the_guide(cluster, "kubeflow")
    assert others(changed) == others(plain)
    assert str(changed).replace("10250", "8443") == str(plain)


@each_overlay
def test_on_the_nodes_network_no_two_want_the_same_port(cluster: Cluster, overlay: str) -> None:
    objects = build_own(cluster, [f"overlays/{overlay}"], ["host-network"])
    taken: list[int] = []
    for process in PROCESSES:
        webhooks, monitoring = ON_THE_NODE[process]
        assert ports(objects, process) == {"https-webhook": webhooks, "http-monitoring": monitoring}
        found = settings(objects, process)
        assert (found.port, found.monitoring_port) == (webhooks, monitoring)
        template = pod_template(objects, process)
        assert template["metadata"]["annotations"]["prometheus.io/port"] == str(monitoring)
        assert (template["spec"]["hostNetwork"], template["spec"]["dnsPolicy"]) == (
            True,
            "ClusterFirstWithHostNet",
        )
        # Of three nodes two have it already: a new pod beside the old ones would find no port.
        strategy = one(objects, "Deployment", process)["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
        validate(one(objects, "Deployment", process))
        taken += [webhooks, monitoring]
    assert len(set(taken)) == len(taken)


def test_on_the_nodes_network_pod_security_wants_to_allow_it(cluster: Cluster) -> None:
    spec = pod_template(build_own(cluster, ["overlays/kubeflow"], ["host-network"]), PROCESSES[0])["spec"]
    spec.pop("serviceAccountName")

    def dry_run(level: str) -> str:
        namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": level})
        body = {"metadata": {"name": "pod"}, "spec": {**spec, "priorityClassName": ""}}
        try:
            cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
        except Refused as refused:
            return refused.message
        return ""

    assert "host namespaces (hostNetwork=true)" in dry_run("baseline")
    assert dry_run("privileged") == ""
