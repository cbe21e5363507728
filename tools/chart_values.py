"""The table of the chart's values, from its schema: docs/reference has it, and a test keeps it current.

python3 -m tools.chart_values > docs/reference/chart-values.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "kubeflow-bitfusion"
HEAD = """\
# Values of the chart

Every value of `charts/kubeflow-bitfusion`, with its default. An unknown value, or one of the wrong type, is
refused before anything is installed. `images` comes from the file that `make images` writes.

| value | default | what it is |
|---|---|---|
"""


def rows(schema: Mapping[str, Any], defaults: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each value."""
    for name, each in schema["properties"].items():
        if name not in defaults:  # helm's own
            continue
        default, full = defaults[name], f"{path}{name}"
        if "properties" in each and default:
            yield from rows(each, default, f"{full}.")
            continue
        words = ", ".join(f"`{word}`" for word in each.get("enum", ()))
        meaning = each["description"] + f" One of {words}." * bool(words)
        yield full, f"`{json.dumps(default, ensure_ascii=False)}`", meaning


def values_table() -> str:
    """The page."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    body = (
        f"| `{name}` | {default.replace('|', chr(92) + '|')} | {meaning} |"
        for name, default, meaning in rows(schema, defaults)
    )
    return HEAD + "\n".join(body) + "\n"


if __name__ == "__main__":
    print(values_table(), end="")
