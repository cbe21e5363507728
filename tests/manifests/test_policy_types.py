"""The policy's expressions fit the types that the apiserver knows from Kubeflow's full CRD."""

from __future__ import annotations

from typing import Any

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import POLICY, Object, build, one
from tests.support.waiting import wait_until


def test_expressions_fit_the_types_of_kubeflows_full_schema(cluster: Cluster) -> None:
    """The real CRD knows every field of a pod; the apiserver then checks the expressions' types.

    A resource of our own with the part of that schema that the policy reads, and a copy of the policy for it.
    """
    quantity = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": True,
    }
    limits = {"type": "object", "additionalProperties": quantity}
    container = _object(name={"type": "string"}, resources=_object(limits=limits, requests=limits))
    containers = {"type": "array", "items": {**container, "required": ["name"]}}
    pod = _object(containers=containers, initContainers=containers)
    schema = _object(
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata={"type": "object"},
        spec=_object(template=_object(spec=pod)),
    )
    group = "typed.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"notebooks.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Notebook", "plural": "notebooks", "singular": "notebook"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    policy = one(build(cluster, "validating-policy"), "ValidatingAdmissionPolicy", POLICY)
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    rule["apiGroups"] = [group]
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.client.create(crds, crd)
    try:
        served = f"/apis/{group}/v1/notebooks"
        wait_until(lambda: cluster.client.get(served), limit_s=20, errors=(Refused,))

        def warnings(name: str, **changed: Any) -> Any:
            body = {**policy, "metadata": {"name": name}, "spec": {**policy["spec"], **changed}}
            cluster.client.create(policies, body)
            try:
                status = wait_until(
                    lambda: _status_with(cluster.client.get(f"{policies}/{name}"), "typeChecking"), limit_s=10
                )
            finally:
                cluster.client.delete(f"{policies}/{name}")
            return status["typeChecking"].get("expressionWarnings", [])

        # A policy is checked once: not before the controller knows the resource's schema.
        wrong = [{"expression": "object.spec.colour == 'red'"}]
        wait_until(lambda: warnings("typed-wrong", validations=wrong), "types are checked", 25)
        assert warnings("typed-sizes") == []
    finally:
        cluster.client.delete(f"{crds}/notebooks.{group}")


def _status_with(found: Object, field: str) -> Object | None:
    status: Object = found.get("status", {})
    return status if field in status else None


def _object(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}
