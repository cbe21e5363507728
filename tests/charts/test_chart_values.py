"""What the chart refuses, and in which words; its table of values; what helm's own check says."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.cluster.helm import CHART, Helm, HelmFailed
from tools.chart_values import rows, values_table

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"engin": "vmware"}, "engin", "additional properties"),
    ({"engine": "cuda"}, "/engine", "'cluster-gpus', 'simulated', 'vmware'"),
    ({"images": {"client": {"name": "x"}}}, "/images/client", "additional properties 'name'"),
    ({"images": {"clients": {}}}, "/images", "additional properties 'clients'"),
    ({"images": {"client": {"tag": 0.1}}}, "/images/client/tag", "want string"),
    ({"images": {"client": {"digest": "5555"}}}, "/images/client/digest", "does not match pattern"),
    ({"images": {"pool": {"repository": "a b"}}}, "/images/pool/repository", "does not match pattern"),
    ({"profiles": {"label": "team"}}, "/profiles/label", "does not match pattern"),
    ({"gpuPods": {"cpus": "4"}}, "/gpuPods", "additional properties 'cpus'"),
    ({"clients": [{"os": "*"}]}, "/clients/0", "missing properties 'version', 'kind'"),
    (
        {"clients": [{"os": "*", "version": "*", "kind": "x"}]},
        "/clients/0/kind",
        "'stand-in', 'pods', 'vmware'",
    ),
    ({"gpuPodsOnly": "deny"}, "/gpuPodsOnly", "'None', 'Warn', 'Deny'"),
    ({"queue": "yes please"}, "/queue", "want boolean"),
    ({"replicas": 0}, "/replicas", "minimum"),
    ({"webhookPort": 443}, "/webhookPort", "minimum"),
    ({"vmware": {"package": "a; b"}}, "/vmware/package", "does not match pattern"),
    ({"extraArgs": {"injector": ["log-level=debug"]}}, "/extraArgs/injector/0", "does not match pattern"),
]


@pytest.mark.parametrize(("values", "place", "why"), WRONG, ids=[f"{place} {why}" for _, place, why in WRONG])
def test_what_is_wrong_is_named_and_nothing_rendered(
    helm: Helm, values: dict[str, Any], place: str, why: str
) -> None:
    with pytest.raises(HelmFailed) as failed:
        helm.template(values=values)
    assert place in str(failed.value)
    assert why in str(failed.value)


def test_helm_finds_nothing_to_say(helm: Helm) -> None:
    for engine in ("cluster-gpus", "simulated", "vmware"):
        said = helm.run("lint", "--strict", "--quiet", str(CHART), values={"engine": engine})
        assert "ERROR" not in said
        assert "WARNING" not in said


def test_every_value_has_a_default_and_the_schema_knows_it() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(defaults) == set(schema["properties"]) - {"global"}  # helm's own
    assert all(meaning.endswith(".") for _, _, meaning in rows(schema, defaults))


def test_the_versions_are_the_projects() -> None:
    from bitfusion_client.version import VERSION

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


def test_the_reference_is_the_table_and_that_names_every_value() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    table = values_table()
    assert (CHART.parents[1] / "docs/reference/chart-values.md").read_text() == table, (
        "write it with `python -m tools.chart_values > docs/reference/chart-values.md`"
    )
    assert all(f"| `{name}" in table for name in defaults)


def test_the_notes_say_what_comes_next(helm: Helm) -> None:
    said = helm.run(
        "install", "bitfusion", str(CHART), "-n=kubeflow", "--dry-run=client", values={"engine": "vmware"}
    )
    notes = said.partition("NOTES:")[2]
    assert "kubeflow-bitfusion doctor --namespace kubeflow" in notes
    assert "bitfusion-issuer" in notes
