"""The dashboards in manifests/samples/monitoring: their queries are PromQL over metrics that there are."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from tests.manifests.kube_state_metrics import labels_of_metrics
from tests.manifests.promql import labels_in, metrics_in
from tests.manifests.test_metrics_docs import documented

FOLDER = Path(__file__).parents[2] / "manifests" / "samples" / "monitoring"
NAMES = ("dashboard", "gpu-pods-dashboard")
DASHBOARDS: dict[str, dict[str, Any]] = {
    name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES
}
VARIABLES = {
    "dashboard": {"namespace": "label_values(bitfusion_pool_holder_gpus, namespace)"},
    "gpu-pods-dashboard": {
        "namespace": 'label_values(kube_pod_owner{owner_kind="Pod"}, namespace)',
        "resource": 'label_values(kube_node_status_allocatable{unit="integer", '
        'resource!~"pods|bitfusion_io_.*"}, resource)',
    },
}
GRAFANAS = {
    **{"$__rate_interval": "5m", "$__interval_ms": "60000", "$__interval": "1m", "$__range": "6h"},
    **{"$namespace": ".*", "$resource": "(nvidia_com_gpu|nvidia_com_mig_1g_5gb)"},
}
"""The variables that Grafana fills in, with values as it would."""
OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
OPTIONAL = {"Now", "Held, by the kernel's state"}
"""Panels that show less where kube-state-metrics has not got the option."""
TARGETS = [
    pytest.param(panel, target, id=f"{name}-{panel['title']}-{target['refId']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    for target in panel["targets"]
]
each_dashboard = pytest.mark.parametrize("name", NAMES)


def filled(query: str) -> str:
    for name, value in GRAFANAS.items():
        query = query.replace(name, value)
    return query


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_query_is_promql_over_metrics_and_labels_that_there_are(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    query = filled(target["expr"])
    assert not re.search(r"\$(?!1\")", query)  # "$1" is label_replace's
    promql_parser.parse(query)
    known = {**documented(), **labels_of_metrics()}
    named = metrics_in(query)
    assert named
    labels: set[str] = set()
    for name in named:
        metric = name if name in known else OF_A_HISTOGRAM.sub("", name)
        assert metric in known, name
        labels |= known[metric]
    used = labels_in(query) | set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    made = set(re.findall(r'"(\w+)", "\$1"', query))
    assert used <= labels | made | {"le", "instance"}, panel["title"]


def test_the_parser_refuses_what_is_no_promql() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum by namespace (bitfusion_pool_gpus")


def test_only_what_is_said_to_be_optional_needs_an_option_of_kube_state_metrics() -> None:
    panels = DASHBOARDS["gpu-pods-dashboard"]["panels"]
    asking = {
        panel["title"]
        for panel in panels
        for target in panel["targets"]
        if metrics_in(target["expr"]) & {"kube_pod_annotations", "kube_pod_labels"}
    }
    assert asking == OPTIONAL
    for panel in panels:
        assert ("where kube-state-metrics tells the annotation" in panel["description"]) == (
            panel["title"] in OPTIONAL
        )
        if panel["title"] in OPTIONAL:
            assert any("kube_pod_annotations" not in target["expr"] for target in panel["targets"])


@each_dashboard
def test_no_two_panels_lie_on_each_other_and_all_are_on_the_grid(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    places = [panel["gridPos"] for panel in panels]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 for one in places)
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert len({panel["id"] for panel in panels}) == len(panels)


@each_dashboard
def test_the_data_source_and_what_is_shown_are_chosen_in_the_dashboard(name: str) -> None:
    variables = {one["name"]: one for one in DASHBOARDS[name]["templating"]["list"]}
    assert variables.pop("datasource")["type"] == "datasource"
    assert {each: one["query"]["query"] for each, one in variables.items()} == VARIABLES[name]
    panels = DASHBOARDS[name]["panels"]
    sources = [one["datasource"] for panel in panels for one in (panel, *panel["targets"])]
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in sources)


@each_dashboard
def test_every_panel_has_a_title_and_units_of_its_own(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels)


def test_two_dashboards_can_be_imported_side_by_side() -> None:
    assert len({(one["uid"], one["title"]) for one in DASHBOARDS.values()}) == len(NAMES)
