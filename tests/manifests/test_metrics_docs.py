"""docs/reference/metrics.md lists every metric of every program, with its labels, and no other."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(bitfusion_\w+)`(?: \(([\w, ]+)\))? \| (\S.*) \|$", re.MULTILINE)
PACKAGES = ("bitfusion_cluster", "bitfusion_device_plugin", "bitfusion_pool", "notebook_controller_patch")
KINDS = {
    **{"Gauge": "", "GaugeMetricFamily": "", "Histogram": "", "gauge": "", "histogram": ""},
    **{"Counter": "_total", "CounterMetricFamily": "_total", "counter": "_total"},
}
PREFIXES = {"bitfusion_device_plugin/plugin/metrics.py": "bitfusion_device_plugin_"}


def documented() -> dict[str, frozenset[str]]:
    """The labels by the name of a metric."""
    return {name: frozenset(labels.split(", ")) - {""} for name, labels, _ in ROW.findall(PAGE)}


@functools.cache
def in_code() -> dict[str, frozenset[str] | None]:
    """The same of the sources; None: the labels are no constant."""
    found: dict[str, frozenset[str] | None] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            prefix = PREFIXES.get(path.relative_to(ROOT).as_posix(), "")
            found.update(_calls(ast.parse(path.read_text(encoding="utf-8")), prefix))
    return {**found, **_of_the_pools_tables()}


def _calls(tree: ast.AST, prefix: str) -> Iterator[tuple[str, frozenset[str] | None]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for argument in node.args:  # a process names the metric that has its version
            name = _name(argument, "")
            if re.fullmatch(r"bitfusion_\w+_info", name):
                yield name, frozenset(("version",))
        if not isinstance(node.func, ast.Name):
            continue
        suffix = KINDS.get(node.func.id)
        name = _name(node.args[0], prefix) if suffix is not None and node.args else ""
        if suffix is not None and name.startswith("bitfusion_") and not name.endswith("_"):
            yield name.removesuffix("_total") + suffix, _labels(node, bool(prefix))


def _name(node: ast.expr, prefix: str) -> str:
    if isinstance(node, ast.JoinedStr):  # f"{PREFIX}allocation_seconds"
        return prefix + "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ""
    return node.value if node.value.startswith("bitfusion_") else prefix + node.value


def _labels(call: ast.Call, spread: bool) -> frozenset[str] | None:
    given = [word.value for word in call.keywords if word.arg in ("labels", "labelnames")] or call.args[2:]
    if spread:  # gauge(name, text, *labels)
        given = [ast.Tuple(given)] if given else []
    if not given:
        return frozenset()
    if isinstance(given[0], ast.Tuple | ast.List):
        return frozenset(str(one.value) for one in given[0].elts if isinstance(one, ast.Constant))
    return None


def _of_the_pools_tables() -> dict[str, frozenset[str] | None]:
    from bitfusion_pool.service.monitoring import metrics as pool

    found: dict[str, frozenset[str] | None] = {
        f"bitfusion_pool_holder_{name}{'_total' if kind == 'counter' else ''}": frozenset(pool.HOLDER_LABELS)
        for kind, name, _ in pool.HOLDER_FAMILIES
    }
    for name, *_ in pool.CAPACITY_GAUGES:
        found[f"bitfusion_pool_{name}"] = frozenset(("server",))
    return found


def test_every_metric_is_documented_and_no_other() -> None:
    named = documented()
    # a program that is documented before it is there has no package yet
    waited_for = () if (ROOT / "bitfusion_device_plugin/queue").exists() else ("bitfusion_queue_",)
    found = set(in_code())
    assert sorted(found - set(named)) == []
    assert sorted(name for name in set(named) - found if not name.startswith(waited_for)) == []
    assert len(found) > 50


@pytest.mark.parametrize("name", sorted(name for name, labels in in_code().items() if labels is not None))
def test_the_labels_are_those_of_the_code(name: str) -> None:
    assert documented().get(name) == in_code()[name]
