"""The user's guide tells what the code does: its table of settings and its list of commands."""

from __future__ import annotations

import re
from pathlib import Path

from bitfusion_kernel.cli import _parser
from bitfusion_kernel.magic.commands import SUBCOMMANDS
from bitfusion_kernel.settings.table import SETTINGS

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "kernel.md").read_text(encoding="utf-8")


def settings_table() -> str:
    lines = ["| setting | environment | example | default | what it is |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        variable = "config file only" if setting.file_only else f"`{setting.variable}`"
        lines.append(
            f"| `{setting.name}` | {variable} | `{setting.example}` | {setting.default} | {setting.help} |"
        )
    return "\n".join(lines)


def test_settings_table() -> None:
    assert settings_table() in GUIDE, f"docs/kernel.md must hold:\n{settings_table()}"


def test_commands() -> None:
    told = set(re.findall(r"^\| `%bitfusion ?(\w*)", GUIDE, re.MULTILINE)) - {""}
    assert told == set(SUBCOMMANDS) - {"status"}


def test_install_options() -> None:
    help_text = _parser().format_help()
    for command in ("install", "list", "remove", "doctor"):
        assert command in help_text
        assert f"bitfusion-kernel {command}" in GUIDE
