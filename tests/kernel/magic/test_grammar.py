"""`%bitfusion` lines: which cells are the proxy's, and what is said of a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.magic.grammar import COMMANDS, Command, help_text, parse_cell, parse_line


@pytest.mark.parametrize(
    "code",
    [
        "",
        "1 + 1",
        "# %bitfusion",
        "x = 1\n%bitfusion",
        "%bitfusion\nx = 1",
        "%bitfusionx",
        "%%bitfusion",
        "print('%bitfusion')",
        "!bitfusion list_gpus",
    ],
)
def test_cells_with_anything_else_belong_to_the_kernel(code: str) -> None:
    assert parse_cell(code) is None


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        ("%bitfusion", [Command("status")]),
        ("  %bitfusion  status  # look", [Command("status")]),
        ("\n# first\n\n%bitfusion acquire\n%bitfusion log\n", [Command("acquire"), Command("log")]),
        ("%bitfusion request -n 2 -p 0.5", [Command("request", ("-n", "2", "-p", "0.5"))]),
        ("%bitfusion request --filter 'a=b c'", [Command("request", ("--filter", "a=b c"))]),
        ("%bitfusion\tstatus", [Command("status")]),
    ],
)
def test_cells_of_commands_only_are_the_fronts(code: str, commands: list[Command]) -> None:
    assert parse_cell(code) == commands


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "realease",
            "'realease' is no %bitfusion command; there are: " + ", ".join(COMMANDS),
        ),
        ("pool now", "%bitfusion pool takes no arguments, but was given: now"),
        ("request 'x", "can't read \"request 'x\": No closing quotation"),
    ],
)
def test_a_mistake_is_told_in_words(line: str, problem: str) -> None:
    assert parse_line(line).problem == problem


@given(st.text())
def test_no_text_is_too_strange_to_read(text: str) -> None:
    parse_line(text)
    parse_cell("%bitfusion " + text)


def test_help_lists_every_command_with_its_meaning() -> None:
    lines = help_text().splitlines()
    assert [line.split()[1] for line in lines] == list(COMMANDS)
    assert "%bitfusion acquire    take the GPU now instead of with the first cell" in lines
