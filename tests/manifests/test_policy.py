"""The ValidatingAdmissionPolicy refuses what the webhook refuses, in words of its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import NOTEBOOKS, POLICY, Object, build, one
from tests.manifests.judge import Judge, refusal
from tests.manifests.sizes import COUNTS, GPU, KEYS, MEMORIES, PERCENTS, TABLE, notebook
from tests.support.waiting import wait_until


@pytest.mark.parametrize("limits", TABLE, ids=lambda limits: ",".join(f"{k}={v}" for k, v in limits.items()))
def test_policy_and_webhook_refuse_the_same_sizes(judge: Judge, limits: dict[str, Any]) -> None:
    body = notebook("nb", limits)
    assert (judge.policy(body) is None) == (judge.webhook(body) is None)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([f"{GPU}{key}" for key in ("amount", "percent", "memory", *KEYS)]),
        st.sampled_from([*COUNTS, *PERCENTS, *MEMORIES, 1, 50]),
        max_size=3,
    )
)
def test_policy_and_webhook_refuse_the_same_combinations(judge: Judge, limits: dict[str, Any]) -> None:
    assert judge.agree(notebook("nb", limits))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {f"{GPU}amount": "0"},
            "0 Bitfusion GPUs (bitfusion.io/gpu-amount) cannot be had. Choose 1 or more, or no GPU at all.",
        ),
        (
            {f"{GPU}amount": "0.5"},
            'Bitfusion GPUs come in whole numbers from 1 to 1024, not "0.5" (bitfusion.io/gpu-amount). '
            'Half a GPU is written as bitfusion.io/gpu-50: "1".',
        ),
        (
            {f"{GPU}amount": "two"},
            'Bitfusion GPUs come in whole numbers from 1 to 1024, not "two" (bitfusion.io/gpu-amount). '
            'Half a GPU is written as bitfusion.io/gpu-50: "1".',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "0"},
            "The share of a Bitfusion GPU is a whole number of percent from 1 to 100, "
            'not "0" (bitfusion.io/gpu-percent).',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "101"},
            "The share of a Bitfusion GPU is a whole number of percent from 1 to 100, "
            'not "101" (bitfusion.io/gpu-percent).',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "50", f"{GPU}memory": "8Gi"},
            "A Bitfusion GPU is shared by percent or by memory, not by both: keep bitfusion.io/gpu-percent "
            "or bitfusion.io/gpu-memory, and take the other one out.",
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}memory": "8GB"},
            "The memory of a Bitfusion GPU is an amount of at least 1Mi, as in 8Gi or 8000Mi, "
            'not "8GB" (bitfusion.io/gpu-memory).',
        ),
        (
            {f"{GPU}percent": "50"},
            "The share of a Bitfusion GPU is given, but not of how many GPUs: add "
            'bitfusion.io/gpu-amount: "1".',
        ),
        (
            {f"{GPU}foo": "1"},
            '"bitfusion.io/gpu-foo" is not a Bitfusion size. There are bitfusion.io/gpu-amount (whole GPUs), '
            "bitfusion.io/gpu-1 to gpu-100 (percent of each GPU), and memory of each GPU as in "
            "bitfusion.io/gpu-8gib or gpu-8000mib.",
        ),
        (
            {f"{GPU}2000000000gib": "1"},
            '"bitfusion.io/gpu-2000000000gib" is more memory than any GPU has.',
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_do(
    judge: Judge, limits: dict[str, str], words: str
) -> None:
    assert judge.policy(notebook("nb", limits)) == words


def test_two_sizes_are_named_both(judge: Judge) -> None:
    words = judge.policy(notebook("nb", {f"{GPU}50": "1", f"{GPU}amount": "1"}))
    # The apiserver gives a map's keys in any order.
    either = [
        f"This notebook has two Bitfusion sizes, {GPU}{first} and {GPU}{second}. Keep one of them."
        for first, second in (("50", "amount"), ("amount", "50"))
    ]
    assert words in either


def test_two_containers_that_ask_are_refused_by_both(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}50": "1"}, {f"{GPU}50": "1"})
    assert judge.webhook(body)
    assert judge.policy(body) == (
        "Bitfusion GPUs are asked for by several containers of this notebook. Give the size to the "
        "notebook's own container and take it out of the others."
    )
    assert judge.policy(notebook("nb", {f"{GPU}50": "1"}, {"cpu": "1"})) is None


def test_an_init_container_that_asks_is_refused_by_both(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}50": "1"})
    resources = {"limits": {f"{GPU}50": "1"}}
    body["spec"]["template"]["spec"]["initContainers"] = [
        {"name": "prepare", "image": "x", "resources": resources}
    ]
    assert judge.webhook(body)
    assert judge.policy(body) == (
        'Init container "prepare" asks for Bitfusion GPUs; only the notebook itself can. '
        "Give the size to the notebook's own container."
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_every_served_version_is_judged(cluster: Cluster, judge: Judge, version: str) -> None:
    path = judge.path.replace("v1beta1", version)
    with pytest.raises(Refused, match="0 Bitfusion GPUs"):
        cluster.client.create(path, notebook("nb", {f"{GPU}amount": "0"}, version=version), dryRun="All")


def test_limits_do_not_matter_beside_the_annotation_that_overrides_them(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}amount": "0"})
    body["metadata"]["annotations"] = {"bitfusion.io/request": "-n 1 -p 0.5"}
    assert judge.policy(body) is None
    assert judge.webhook(body) is None
    body["metadata"]["annotations"] = {"bitfusion.io/request": "  "}
    assert judge.policy(body) is not None
    assert judge.webhook(body) is not None


def test_a_notebook_older_than_the_policy_can_be_stopped_labelled_and_deleted(
    cluster: Cluster, judge: Judge
) -> None:
    namespace = cluster.new_namespace({"bitfusion.io/admission": "ignore"})
    path = NOTEBOOKS.format(namespace=namespace)
    body = notebook("old", {f"{GPU}amount": 0.5, "cpu": "1"})
    body["metadata"]["finalizers"] = ["example.com/later"]
    made = cluster.client.create(path, body)
    label = {"metadata": {"labels": {"bitfusion.io/admission": None}}}
    cluster.client.merge(f"/api/v1/namespaces/{namespace}", label)
    wait_until(lambda: refusal(cluster, path, notebook("new", {f"{GPU}amount": "0"})), "looked after", 10)

    old = f"{path}/old"
    cluster.client.merge(old, {"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}})
    # as Kubeflow's culler puts it back: read into Go's types, which spell amounts anew
    culled = cluster.client.get(old)
    culled["metadata"]["annotations"] = {"notebooks.kubeflow.org/last-activity": "2026-11-21T08:00:00Z"}
    culled["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][f"{GPU}amount"] = "500m"
    cluster.client.put(old, culled)
    changed = copy.deepcopy(made)
    changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    del changed["metadata"]["resourceVersion"]
    limits = {"spec": changed["spec"]}
    cluster.client.merge(old, limits)
    with pytest.raises(Refused, match='not "-1"'):
        cluster.client.patch(
            old,
            [
                {
                    "op": "add",
                    "path": "/spec/template/spec/containers/0/resources/limits/bitfusion.io~1gpu-amount",
                    "value": "-1",
                }
            ],
        )
    cluster.client.delete(old)
    cluster.client.merge(old, {"metadata": {"finalizers": None}})
    wait_until(lambda: not cluster.client.exists(old), limit_s=10)


@pytest.mark.parametrize("where", ["namespace", "notebook"])
def test_the_opt_out_label_is_respected(cluster: Cluster, judge: Judge, where: str) -> None:
    label = {"bitfusion.io/admission": "ignore"}
    namespace = cluster.new_namespace(label if where == "namespace" else {})
    body = notebook("nb", {f"{GPU}amount": "0"})
    body["metadata"]["labels"] = label if where == "notebook" else {}
    cluster.client.create(NOTEBOOKS.format(namespace=namespace), body, dryRun="All")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"template": {}},
        {"template": {"spec": {}}},
        {"template": {"spec": {"containers": []}}},
        {"template": {"spec": {"containers": [{}]}}},
        {"template": {"spec": {"containers": [{"resources": {}}]}}},
        {"template": {"spec": {"containers": [{"resources": {"limits": {}}}]}}},
        {"template": {"spec": {"containers": [{"resources": {"limits": None}}]}}},
        {"template": {"spec": {"containers": "none"}}},
        {"template": None},
    ],
    ids=str,
)
def test_what_is_no_notebook_is_left_to_its_schema(judge: Judge, spec: dict[str, Any]) -> None:
    body = notebook("nb", {})
    body["spec"] = spec
    assert judge.policy(body) is None
    assert judge.webhook(body) is None


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
