"""The GPU pod of every rule that is shipped, whole: as written down, and as Kubernetes' schema has pods."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bitfusion_client.gpu_pods.size_rules import rule_for
from tests.pods.pod.golden_pods import CASES, GOLDEN, RULES, golden_pod, settings
from tests.pods.pod.notebook_pods import made, program
from tests.support.schemas import validate


def written(case: str) -> dict[str, Any]:
    pod = yaml.safe_load((GOLDEN / f"{case}.yaml").read_text(encoding="utf-8"))
    assert isinstance(pod, dict)
    return pod


@pytest.mark.parametrize("case", CASES)
def test_the_pod_is_as_written(case: str) -> None:
    assert golden_pod(case) == written(case)


@pytest.mark.parametrize("case", CASES)
def test_the_pod_is_one_of_kubernetes(case: str) -> None:
    validate(golden_pod(case))


@pytest.mark.parametrize("case", CASES)
def test_the_pod_is_restricted_as_its_notebook_is(case: str) -> None:
    pod = golden_pod(case)
    for container in pod["spec"]["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"])


@pytest.mark.parametrize("case", CASES)
def test_a_trial_of_each_rule_asks_for_no_gpu(case: str) -> None:
    """In none of the ways, waits in no queue, counts in no budget, and is where a GPU pod may be."""
    rules, request, others = CASES[case]
    filled = rule_for(request, settings(rules).rules).without_gpu()
    trial = made(request=request, settings=settings(rules), **{**others, "filled_rule": filled})
    pod, container = golden_pod(case), program(trial)
    validate(trial)
    named = {name for part in container["resources"].values() for name in part}
    assert named <= {"cpu", "memory", "ephemeral-storage"}
    assert "claims" not in container["resources"]
    assert "resourceClaims" not in trial["spec"]
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert trial["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert "kueue.x-k8s.io/queue-name" not in trial["metadata"]["labels"]
    for same in ("tolerations", "affinity", "nodeSelector", "volumes", "securityContext"):
        assert trial["spec"].get(same) == pod["spec"].get(same), same


def test_every_file_of_rules_has_a_golden_pod() -> None:
    files = {file.stem for file in RULES.glob("*.yaml")} - {"dra-claim-templates"}
    assert {rules for rules, _, _ in CASES.values()} == files
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(CASES)


def test_the_claim_templates_are_those_that_the_rules_name() -> None:
    texts = (RULES / "dra-claim-templates.yaml").read_text(encoding="utf-8")
    templates = list(yaml.safe_load_all(texts))
    for template in templates:
        validate(template)
    named = {
        claim["resourceClaimTemplateName"]
        for case in ("dra-one", "dra-two")
        for claim in golden_pod(case)["spec"]["resourceClaims"]
    }
    assert {template["metadata"]["name"] for template in templates} == named
