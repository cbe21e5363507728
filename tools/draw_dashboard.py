"""Draws the panels of a Grafana dashboard from a Prometheus: the picture in docs/how-to/monitoring.md.

Grafana's own picture of the same queries looks better; this one needs nothing but Prometheus and matplotlib::

    python3 tools/draw_dashboard.py manifests/samples/monitoring/dashboard.json http://127.0.0.1:9090 out.png

Each query is evaluated by Prometheus, with the variables that Grafana would fill in. Of a panel it draws what
this project's dashboard has: time series (stacked or not), figures, bars and tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

LIMIT_S = 30
POINTS = 200
GRID_COLUMNS = 24  # of Grafana
CELL_INCHES = 0.62, 0.36
COLORS = {"green": "#56a64b", "orange": "#ff9830", "red": "#e02f44"}
UNITS = {"bytes": (2**30, "GiB"), "percentunit": (0.01, "%"), "s": (1, "s"), "h": (1, "h")}

Series = tuple[str, list[float], list[float]]  # label, times, values


class Prometheus:
    """Evaluates queries over the last `minutes`."""

    def __init__(self, url: str, minutes: float) -> None:
        self._url = url
        self._end = time.time()
        self.minutes = minutes

    def _ask(self, path: str, **parameters: object) -> list[dict[str, Any]]:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=LIMIT_S) as answer:
            found = json.load(answer)["data"]["result"]
        return list(found)

    def _filled(self, query: str) -> str:
        seconds = int(self.minutes * 60)
        rate = f"{max(10, seconds // 20)}s"
        given = {"$__rate_interval": rate, "$__range": f"{seconds}s", "$namespace": ".*"}
        for name, value in given.items():
            query = query.replace(name, value)
        return query

    def series(self, target: Mapping[str, Any]) -> list[Series]:
        """A range query; times in minutes before now."""
        span = self.minutes * 60
        rows = self._ask(
            "query_range",
            query=self._filled(target["expr"]),
            start=self._end - span,
            end=self._end,
            step=span / POINTS,
        )
        return [
            (
                legend(target["legendFormat"], row["metric"]),
                [(float(at) - self._end) / 60 for at, _ in row["values"]],
                [float(value) for _, value in row["values"]],
            )
            for row in rows
        ]

    def now(self, target: Mapping[str, Any]) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value."""
        rows = self._ask("query", query=self._filled(target["expr"]), time=self._end)
        return [(row["metric"], float(row["value"][1])) for row in rows]


def legend(text: str, labels: Mapping[str, str]) -> str:
    """``{{namespace}}/{{notebook}}`` filled in."""
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def draw(dashboard: Mapping[str, Any], prometheus: Prometheus, out: Path) -> None:
    """Write the picture."""
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(GRID_COLUMNS * CELL_INCHES[0], rows * CELL_INCHES[1]), facecolor="#f4f5f5")
    for panel in panels:
        place = panel["gridPos"]
        left, width = place["x"] / GRID_COLUMNS, place["w"] / GRID_COLUMNS
        top, height = 1 - place["y"] / rows, place["h"] / rows
        axes = figure.add_axes((left + 0.035, top - height + 0.022, width - 0.05, height - 0.045))
        axes.set_title(panel["title"], loc="left", fontsize=9, weight="bold")
        axes.tick_params(labelsize=7)
        DRAW[panel["type"]](axes, panel, prometheus)
    figure.savefig(out, dpi=80)


def _unit(panel: Mapping[str, Any]) -> tuple[float, str]:
    return UNITS.get(panel["fieldConfig"]["defaults"]["unit"], (1, ""))


def _draw_series(axes: Axes, panel: Mapping[str, Any], prometheus: Prometheus) -> None:
    scale, unit = _unit(panel)
    found = [series for target in panel["targets"] for series in prometheus.series(target)]
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    if custom.get("stacking", {}).get("mode") == "normal" and found:
        times = sorted({at for _, own, _ in found for at in own})
        by_time = [dict(zip(own, values, strict=True)) for _, own, values in found]
        stacked = [[one.get(at, 0.0) for at in times] for one in by_time]
        axes.stackplot(times, stacked, labels=[label for label, _, _ in found], alpha=0.7, step="post")
    else:
        for label, times, values in found:
            axes.plot(times, [value / scale for value in values], label=label, linewidth=1.2)
    axes.set_ylim(0, 1.35 * max(axes.get_ylim()[1], 0.1))  # room for the legend
    axes.set_xlim(-prometheus.minutes, 0)
    axes.set_xlabel("minutes", fontsize=6, labelpad=1)
    axes.grid(alpha=0.3)
    if unit:
        axes.set_ylabel(unit, fontsize=7)
    if found:
        axes.legend(fontsize=6, loc="upper left", ncols=2)


def _draw_stat(axes: Axes, panel: Mapping[str, Any], prometheus: Prometheus) -> None:
    scale, unit = _unit(panel)
    defaults = panel["fieldConfig"]["defaults"]
    values = [prometheus.now(target) for target in panel["targets"]]
    numbers = [rows[0][1] for rows in values if rows]
    words = {int(value): one["text"] for value, one in _mappings(defaults).items()}
    shown = [words.get(int(one), f"{round(one / scale, 2):g} {unit}".strip()) for one in numbers]
    steps = [one for one in defaults["thresholds"]["steps"] if numbers and numbers[0] >= (one["value"] or 0)]
    axes.set_facecolor(COLORS[steps[-1]["color"]] if steps else "#bbbbbb")
    text = " of ".join(shown) or "no data"
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=15, color="white", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def _mappings(defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for mapping in defaults.get("mappings", []) for key, one in mapping["options"].items()}


def _draw_bars(axes: Axes, panel: Mapping[str, Any], prometheus: Prometheus) -> None:
    (target,) = panel["targets"]
    rows = [(legend(target["legendFormat"], labels), value) for labels, value in prometheus.now(target)]
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left + 0.03, bottom, width - 0.06, height))  # room for names and figures
    bars = axes.barh([label for label, _ in rows], [value for _, value in rows], color="#3274d9")
    axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.invert_yaxis()


def _draw_table(axes: Axes, panel: Mapping[str, Any], prometheus: Prometheus) -> None:
    axes.axis("off")
    columns: list[dict[tuple[str, ...], float]] = []
    names: Sequence[str] = ("holder", "namespace", "notebook")
    for target in panel["targets"]:
        rows = prometheus.now(target)
        columns.append({tuple(labels.get(name, "") for name in names): value for labels, value in rows})
    keys = sorted({key for column in columns for key in column})
    cells = [[*key, *(f"{column[key]:g}" if key in column else "" for column in columns)] for key in keys]
    renamed = panel["transformations"][-1]["options"]["renameByName"]
    if cells:
        table = axes.table(cells, colLabels=[*names, *renamed.values()], loc="upper center", cellLoc="left")
        table.auto_set_font_size(False)
        table.set_fontsize(7)


DRAW = {"timeseries": _draw_series, "stat": _draw_stat, "bargauge": _draw_bars, "table": _draw_table}


def main() -> None:
    """Read the arguments, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("prometheus", metavar="URL")
    parser.add_argument("out", type=Path, metavar="PNG")
    parser.add_argument("--minutes", type=float, default=60.0, help="how far back (60)")
    options = parser.parse_args()
    prometheus = Prometheus(options.prometheus, options.minutes)
    draw(json.loads(options.dashboard.read_text()), prometheus, options.out)


if __name__ == "__main__":
    main()
