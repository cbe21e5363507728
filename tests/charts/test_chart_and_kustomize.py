"""helm and kustomize say the same: the chart is made of what kustomize builds, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.charts.conftest import Built
from tests.charts.expected import comparable, expected, thrown
from tests.charts.valid_values import ALONE, ANY, EACH
from tests.cluster.cluster import Cluster
from tests.cluster.helm import CHART, Helm
from tools.chart import TEMPLATES, written

HEALTHY = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def same(helm: Helm, built: Built, values: dict[str, Any]) -> None:
    rendered = comparable(helm.template(values=values))
    wanted = comparable(expected(built(values.get("engine", "cluster-gpus"), *thrown(values)), values))
    assert rendered.keys() == wanted.keys()
    for key, item in wanted.items():
        assert rendered[key] == item, key


def test_the_templates_are_what_make_chart_writes(cluster: Cluster) -> None:
    files = written(cluster.binaries.path("kubectl"))
    assert {path: path.read_text() for path in TEMPLATES.glob("*.yaml")} == files, "run `make chart`"


def test_the_defaults_say_what_kustomize_says(helm: Helm, built: Built) -> None:
    same(helm, built, {})


def test_every_value_is_tried_alone() -> None:
    names = {name for values in ALONE for name in values}
    assert names == {"engine", *EACH}


@pytest.mark.long
@pytest.mark.parametrize("values", ALONE, ids=lambda values: "+".join(values))
def test_a_value_alone_changes_what_it_says(helm: Helm, built: Built, values: dict[str, Any]) -> None:
    same(helm, built, values)


@pytest.mark.long
@settings(max_examples=6, deadline=None, suppress_health_check=HEALTHY)
@given(values=ANY)
def test_values_together(helm: Helm, built: Built, values: dict[str, Any]) -> None:
    same(helm, built, values)


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.timeout(300)
@settings(max_examples=200, deadline=None, suppress_health_check=HEALTHY)
@given(values=ANY)
def test_two_hundred_sets_of_values(helm: Helm, built: Built, values: dict[str, Any]) -> None:
    same(helm, built, values)


def test_another_namespace_takes_the_place_of_kubeflows(helm: Helm) -> None:
    text = helm.run(
        "template",
        "bitfusion",
        str(CHART),
        "-n=elsewhere",
        values={"engine": "simulated", "certManager": True},
    )
    words = ("namespace: kubeflow", ":kubeflow:", ".kubeflow.svc", "metadata.name: kubeflow", "- kubeflow\n")
    assert [word for word in (*words, ": kubeflow/") if word in text] == []
    assert "system:serviceaccount:elsewhere:bitfusion-queue" in text


def test_no_file_of_the_templates_is_left_over() -> None:
    assert {path.name for path in Path(TEMPLATES).iterdir()} >= {"_helpers.tpl", "NOTES.txt", "injector.yaml"}
