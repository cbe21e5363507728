"""manifests/samples/monitoring/dashboard.json: its queries are PromQL over metrics that there are."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from tests.manifests.test_metrics_docs import documented

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "manifests" / "samples" / "monitoring" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAFANAS = {"$__rate_interval": "5m", "$__range": "6h", "$namespace": ".*"}
"""The variables that Grafana fills in, with values as it would."""
OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
TARGETS = [
    pytest.param(panel, target, id=f"{panel['title']}-{target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]


def filled(query: str) -> str:
    for name, value in GRAFANAS.items():
        query = query.replace(name, value)
    return query


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_query_is_promql_over_metrics_and_labels_that_there_are(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    query = filled(target["expr"])
    assert "$" not in query
    promql_parser.parse(query)
    known = documented()
    named = set(re.findall(r"bitfusion_\w+", query))
    assert named
    labels: set[str] = set()
    for name in named:
        metric = name if name in known else OF_A_HISTOGRAM.sub("", name)
        assert metric in known, name
        labels |= known[metric]
    used = {one for group in re.findall(r"by \(([\w, ]+)\)", query) for one in group.split(", ")}
    used |= set(re.findall(r"(\w+)=~?\"", query)) | set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert used <= labels | {"le", "instance"}, panel["title"]


def test_the_parser_refuses_what_is_no_promql() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum by namespace (bitfusion_pool_gpus")


def test_no_two_panels_lie_on_each_other_and_all_are_on_the_grid() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 for one in places)
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_data_source_and_the_namespaces_are_chosen_in_the_dashboard() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["namespace"]["query"]["query"] == "label_values(bitfusion_pool_holder_gpus, namespace)"
    sources = [one["datasource"] for panel in PANELS for one in (panel, *panel["targets"])]
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in sources)


def test_every_panel_has_a_title_and_units_of_its_own() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)
