"""The reference of the kernel agrees with the code: settings, `%bitfusion` subcommands, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitfusion_kernel.cli import main
from bitfusion_kernel.magic.commands import SUBCOMMANDS
from bitfusion_kernel.settings.table import SETTINGS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
SETTINGS_PAGE = (REFERENCE / "kernel-settings.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (REFERENCE / "kernel-commands.md").read_text(encoding="utf-8")


def settings_table() -> str:
    lines = ["| setting | environment | example | default | what it is |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        variable = "config file only" if setting.file_only else f"`{setting.variable}`"
        lines.append(
            f"| `{setting.name}` | {variable} | `{setting.example}` | {setting.default} | {setting.help} |"
        )
    return "\n".join(lines)


def test_the_table_of_settings_is_the_one_in_the_code() -> None:
    assert settings_table() in SETTINGS_PAGE, f"kernel-settings.md must hold:\n{settings_table()}"


def test_every_subcommand_of_the_magic_is_listed() -> None:
    told = set(re.findall(r"^\| `%bitfusion ?(\w*)", COMMANDS_PAGE, re.MULTILINE)) - {""}
    assert told == set(SUBCOMMANDS) - {"status"}


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    help_text = capsys.readouterr().out
    for command in ("install", "list", "remove", "doctor"):
        assert command in help_text
        assert f"bitfusion-kernel {command}" in COMMANDS_PAGE
