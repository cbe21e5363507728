"""Which cells hold only `%bitfusion` lines, so that the proxy answers them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.magic.cell import QUESTIONS, command_lines
from bitfusion_kernel.magic.commands import SUBCOMMANDS


@pytest.mark.parametrize(
    "code",
    [
        "",
        "1 + 1",
        "# %bitfusion",
        "x = 1\n%bitfusion",
        "%bitfusion\nx = 1",
        "%bitfusionx",
        "%bitfusion_extra?",
        "print('%bitfusion')",
        "!bitfusion list_gpus",
    ],
)
def test_cells_with_anything_else_belong_to_the_kernel(code: str) -> None:
    assert command_lines(code) is None


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("%bitfusion", [""]),
        ("  %bitfusion  status  # look", ["status  # look"]),
        ("\n# first\n\n%bitfusion acquire\n%bitfusion log\n", ["acquire", "log"]),
        ("%bitfusion request -n 2 -p 0.5", ["request -n 2 -p 0.5"]),
        ("%bitfusion\tstatus", ["status"]),
        ("%bitfusion?", ["help"]),
        ("%bitfusion??", ["help"]),
        ("?%bitfusion", ["help"]),
        ("%bitfusion request?", ["help request"]),
        ("%bitfusion -h", ["-h"]),
        ("%%bitfusion", ["help"]),
        ("%%bitfusion?\n", ["help"]),
        ("\n%%bitfusion  \n\n", ["help"]),
        ("%%bitfusion\nx = 1", ["%%bitfusion"]),
        ("%%bitfusion -n 2\nx = 1", ["%%bitfusion"]),
        ("%%bitfusion request -n 2", ["%%bitfusion"]),
    ],
)
def test_cells_of_commands_only_are_the_proxys(code: str, lines: list[str]) -> None:
    assert command_lines(code) == lines


def test_questions_are_commands() -> None:
    assert SUBCOMMANDS.keys() >= QUESTIONS
    assert not {"acquire", "request"} & QUESTIONS


@given(st.text())
def test_no_text_is_too_strange_to_read(text: str) -> None:
    command_lines(text)
    command_lines("%bitfusion " + text)
    command_lines("%%bitfusion" + text)
