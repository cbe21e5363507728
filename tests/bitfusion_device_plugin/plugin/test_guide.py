"""What docs/reference/device-plugin.md says of the device plugin's options is what there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from bitfusion_device_plugin.plugin.settings import TABLE, Settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "device-plugin.md"


def _rows(head: str) -> dict[str, str]:
    """By their first cell; those of the table with this head."""
    table = PAGE.read_text().partition(f"\n| {head} |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| `")]
    return {row[0]: row[1] for row in rows}


def test_every_option_is_in_the_guide_with_its_default() -> None:
    rows = _rows("option")
    named = [option for first in rows for option in re.findall(r"`(--[\w-]+)`", first)]
    assert sorted(named) == sorted(setting.option for setting in TABLE.rows)
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for first, text in rows.items():
        for setting in TABLE.rows:
            default = defaults[setting.name]
            if f"`{setting.option}`" in first and isinstance(default, (int, float)):
                assert f"{default:g}" in text.partition("Default: ")[2], setting.option
