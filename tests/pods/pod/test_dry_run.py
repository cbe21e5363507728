"""The GPU pod of every rule that is shipped, before a real API server: a dry run as a profile's account.

The namespace enforces Pod Security *restricted*, the server all fields (``fieldValidation=Strict``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from bitfusion_client.errors import BitfusionError
from bitfusion_client.gpu_pods.size_rules import rule_for
from bitfusion_client.request.gpu_request import GpuRequest
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.pods.command.notebook import EDIT, VIEW, allow
from tests.pods.pod.golden_pods import CASES, RULES, golden_pod, settings
from tests.pods.pod.notebook_pods import made, notebook, template
from tests.support.waiting import wait_until

CLAIM_TEMPLATES = RULES / "dra-claim-templates.yaml"
FILES = sorted(file.stem for file in RULES.glob("*.yaml") if file != CLAIM_TEMPLATES)
EACH_RULE = [(file, rule.name) for file in FILES for rule in settings(file).rules]
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REQUESTS = [
    *(GpuRequest(gpus) for gpus in (1, 2, 4)),
    *(GpuRequest(1, share) for share in (0.1, 0.125, 0.2, 0.25, 0.4, 0.5, 0.9)),
    *(GpuRequest(1, None, mib) for mib in (1024, 8192, 16384)),
]
"""Every rule that is shipped serves one of these."""


class Judge:
    """The API server, asked by one account."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def dry_run(self, pod: Object) -> Object:
        """The pod as it would be stored. Raises Refused."""
        mine = copy.deepcopy(pod)
        mine["metadata"]["namespace"] = self.namespace
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.client.create(path, mine, dryRun="All", fieldValidation="Strict")


@pytest.fixture(scope="module")
def restricted(cluster: Cluster) -> Iterator[Judge]:
    """As the account of a profile's notebooks."""
    namespace = cluster.new_namespace(
        {
            "app.kubernetes.io/part-of": "kubeflow-profile",
            "pod-security.kubernetes.io/enforce": "restricted",
        }
    )
    allow(cluster, namespace, EDIT)
    # Admission looks for the class that all-settings.yaml names in a copy, which is late.
    cluster.client.create(PRIORITY_CLASSES, {"metadata": {"name": "notebooks-gpu"}, "value": 10})
    client = cluster.client_as(cluster.service_account_token(namespace, "default-editor"))
    judge = Judge(client, namespace)
    wait_until(lambda: judge.dry_run(golden_pod("all-settings")), "the class is known", errors=(Refused,))
    yield judge
    cluster.client.delete(f"{PRIORITY_CLASSES}/notebooks-gpu")


@pytest.mark.parametrize("case", CASES)
def test_a_golden_pod_would_be_taken_as_it_is(restricted: Judge, case: str) -> None:
    pod = golden_pod(case)
    taken = restricted.dry_run(pod)
    assert _devices(taken) == _devices(pod)
    assert taken["spec"].get("resourceClaims") == pod["spec"].get("resourceClaims")
    assert pod["metadata"]["labels"].items() <= taken["metadata"]["labels"].items()
    assert pod["metadata"]["annotations"].items() <= taken["metadata"]["annotations"].items()
    assert not restricted.client.warnings, "of a field that is deprecated"


def _devices(pod: Object) -> Object:
    limits: Object = _first(pod)["resources"].get("limits") or {}
    return {name: amount for name, amount in limits.items() if name not in ("cpu", "memory")}


@pytest.mark.parametrize(("file", "rule"), EACH_RULE)
def test_the_pod_of_every_rule_would_be_taken(restricted: Judge, file: str, rule: str) -> None:
    its = settings(file)
    served = [request for request in REQUESTS if _rule_of(request, file) == rule]
    assert served, "no request of this test reaches the rule"
    for request in served:
        restricted.dry_run(made(request=request, settings=its))


def _rule_of(request: GpuRequest, file: str) -> str:
    try:
        return rule_for(request, settings(file).rules).rule.name
    except BitfusionError:
        return ""


def test_the_claims_templates_would_be_taken(cluster: Cluster, restricted: Judge) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{restricted.namespace}/resourceclaimtemplates"
    templates = list(yaml.safe_load_all(CLAIM_TEMPLATES.read_text(encoding="utf-8")))
    assert len(templates) == 2
    for each in templates:
        cluster.client.create(path, each, dryRun="All", fieldValidation="Strict")
        with pytest.raises(Refused) as refused:  # so the admin puts them there
            restricted.client.create(path, each, dryRun="All", fieldValidation="Strict")
        assert refused.value.status == 403


def _first(pod: Object) -> Object:
    container: Object = pod["spec"]["containers"][0]
    return container


FAULTS: dict[str, tuple[Callable[[Object], Any], str]] = {
    "unknown field": (lambda pod: _first(pod).update(gpus=1), 'unknown field "spec.containers[0].gpus"'),
    "field in the wrong place": (
        lambda pod: pod["spec"].update(limits={"nvidia.com/gpu": "1"}),
        'unknown field "spec.limits"',
    ),
    "no quantity": (
        lambda pod: _first(pod)["resources"]["limits"].update({"nvidia.com/gpu": "{gpus}"}),
        "quantities must match",
    ),
    "half a device": (
        lambda pod: _first(pod)["resources"]["limits"].update({"nvidia.com/gpu": "0.5"}),
        "must be an integer",
    ),
    "label that is none": (lambda pod: pod["metadata"]["labels"].update(note="a b"), "Invalid value"),
    "volume that is not there": (
        lambda pod: _first(pod)["volumeMounts"].append({"name": "data", "mountPath": "/data"}),
        "Not found",
    ),
    "privileges": (
        lambda pod: _first(pod)["securityContext"].update(allowPrivilegeEscalation=True),
        'violates PodSecurity "restricted:latest"',
    ),
    "no seccomp profile": (
        lambda pod: _first(pod)["securityContext"].pop("seccompProfile"),
        "seccompProfile",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pod_with_a_fault_would_be_refused(restricted: Judge, fault: str) -> None:
    plant, said = FAULTS[fault]
    pod = golden_pod("whole")
    plant(pod)
    with pytest.raises(Refused) as refused:
        restricted.dry_run(pod)
    assert said in refused.value.message


def test_a_notebook_that_is_not_restricted_makes_no_pod_that_is(restricted: Judge) -> None:
    careless, its = notebook(), template()
    for spec in (careless["spec"], its["spec"]):
        del spec["containers"][0]["securityContext"]
    with pytest.raises(Refused) as refused:
        restricted.dry_run(made(pod=careless, of_template=its))
    assert 'container "program" must set securityContext' in refused.value.message
    assert "bitfusion-client" not in refused.value.message


def test_a_viewer_may_not_even_ask(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    allow(cluster, namespace, VIEW)
    client = cluster.client_as(cluster.service_account_token(namespace, "default-editor"))
    with pytest.raises(Refused) as refused:
        Judge(client, namespace).dry_run(golden_pod("whole"))
    assert refused.value.status == 403
