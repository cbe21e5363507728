"""Which NetworkPolicies open or close the way from a notebook to its GPU pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_pods.places.network_policies import EGRESS, INGRESS, Direction, direction

FILE = Path(__file__).parents[3] / "manifests/components/gpu-pods-network-policy/network-policy.yaml"
PORT = 8778
NOTEBOOK = {"metadata": {"labels": {"notebook-name": "digits"}}}
GPU_POD = {"metadata": {"labels": {"bitfusion.io/gpu-pod-of": "uid"}}}
GPU_PODS = {"podSelector": {"matchExpressions": [{"key": "bitfusion.io/gpu-pod-of", "operator": "Exists"}]}}


def policy(name: str = "p", selects: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podSelector": selects or {}, **spec}}


def out(*policies: Any) -> Direction:
    return direction(list(policies), EGRESS, NOTEBOOK, GPU_POD, "team", PORT)


def into(*policies: Any, notebook: Any = NOTEBOOK) -> Direction:
    return direction(list(policies), INGRESS, GPU_POD, notebook, "team", PORT)


def egress(**rule: Any) -> dict[str, Any]:
    return policy(policyTypes=["Egress"], egress=[rule])


DENY = policy("deny-all", policyTypes=["Ingress", "Egress"])


def test_without_a_policy_both_are_open() -> None:
    assert (out(), into()) == (Direction((), True), Direction((), True))


def test_one_that_denies_all_closes_both_and_is_named() -> None:
    assert (out(DENY), into(DENY)) == (Direction(("deny-all",), False), Direction(("deny-all",), False))


def test_the_shipped_one_opens_the_way_in_to_notebooks_only_also_beside_one_that_denies_all() -> None:
    shipped = yaml.safe_load(FILE.read_text())
    both = ("bitfusion-gpu-pods", "deny-all")
    assert into(shipped, DENY) == Direction(both, True)
    for labels in ({"notebooks.kubeflow.org/workspace-name": "w"}, {"component": "singleuser-server"}):
        assert into(shipped, notebook={"metadata": {"labels": labels}}).is_open
    assert into(shipped, notebook={"metadata": {"labels": {"component": "hub"}}}).is_open is False
    assert out(shipped, DENY) == Direction(("deny-all",), False), "it says nothing of the way out"


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({}, True),
        ({"to": [], "ports": []}, True),
        ({"to": [GPU_PODS]}, True),
        ({"to": [{"podSelector": {}}]}, True),
        ({"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}, False),
        ({"to": [{"podSelector": {"matchLabels": {"app": "db"}}}, GPU_PODS]}, True),
        ({"to": [{"namespaceSelector": {}}]}, True),
        ({"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}}]}, True),
        ({"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "db"}}}]}, False),
        ({"to": [{"namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}]}, None),
        ({"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "db"}}}]}, False),
        ({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, None),
        ({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, GPU_PODS]}, True),
        ({"ports": [{"port": 8778}]}, True),
        ({"ports": [{"port": 8778, "protocol": "TCP"}]}, True),
        ({"ports": [{"port": 8778, "protocol": "UDP"}]}, False),
        ({"ports": [{"port": 443}, {"port": 8778}]}, True),
        ({"ports": [{"port": 443}]}, False),
        ({"ports": [{"port": 8000, "endPort": 9000}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8777}]}, False),
        ({"ports": [{"port": "agent"}]}, False),
        ({"ports": [{"protocol": "TCP"}]}, True),
        ({"ports": [{"protocol": "UDP"}]}, False),
    ],
    ids=str,
)
def test_a_rule_lets_through_what_its_peers_and_its_ports_say(rule: Any, is_open: bool | None) -> None:
    assert out(egress(**rule)).is_open is is_open


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ({"matchLabels": {"notebook-name": "digits"}}, True),
        ({"matchLabels": {"notebook-name": "other"}}, False),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "In", "values": ["digits"]}]}, True),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "NotIn", "values": ["digits"]}]}, False),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "NotIn", "values": ["other"]}]}, True),
        ({"matchExpressions": [{"key": "notebook-name", "operator": "Like"}]}, False),
    ],
    ids=str,
)
def test_only_those_that_select_the_pod_count(selector: Any, is_selected: bool) -> None:
    assert out(policy("p", selector, policyTypes=["Egress"])).is_open is not is_selected


def test_a_policy_without_types_is_one_for_what_comes_in_and_for_its_rules() -> None:
    assert (out(policy()).is_open, into(policy()).is_open) == (True, False)
    assert out(policy(egress=[{"ports": [{"port": 443}]}])).is_open is False


def test_what_has_another_shape_is_passed_over_and_many_names_are_cut() -> None:
    assert into(policy(policyTypes=True, ingress=[{}])).is_open
    for odd in (
        None,
        7,
        [None, {"spec": 7}, {"spec": {"policyTypes": ["Egress"], "egress": [7, {"to": 7}]}}],
    ):
        direction(odd, EGRESS, {}, {}, "", 0)
    many = out(*(policy(f"p{number}", policyTypes=["Egress"]) for number in range(9)))
    assert many.names == "p0, p1, p2, p3, p4 and 4 more"
