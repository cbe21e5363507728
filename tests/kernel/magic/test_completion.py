"""What Tab offers on a `%bitfusion` line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.magic.commands import SUBCOMMANDS
from bitfusion_kernel.magic.completion import complete

OPTIONS = ["-n", "--num_gpus", "-p", "--partial", "-m", "--gpu_memory"]
OPTIONS += ["--filter", "--server_list", "--timeout", "--reset"]


@pytest.mark.parametrize(
    ("code", "matches", "start"),
    [
        ("%", ["%bitfusion"], 0),
        ("x = 1\n  %bit|\ny", ["%bitfusion"], 8),
        ("%bitfusion ", list(SUBCOMMANDS), 11),
        ("%bitfusion re", ["release", "request"], 11),
        ("%bitfusion h", ["health", "help"], 11),
        ("%bitfusion nothing", [], 11),
        ("%bitfusion request ", OPTIONS, 19),
        ("%bitfusion request -", OPTIONS, 19),
        ("%bitfusion request --f", ["--filter"], 19),
        ("%bitfusion request -n ", [], 22),
        ("%bitfusion request -n 2 --par", ["--partial"], 24),
        ("%bitfusion request --reset ", [each for each in OPTIONS if each != "--reset"], 27),
        ("%bitfusion request 2", [], 19),
        ("%bitfusion help pool", ["pool"], 16),
        ("%bitfusion status ", [], 18),
        ("é = '😀'\n%bitfusion ac| # x", ["acquire"], 19),
    ],
)
def test_subcommands_and_options(code: str, matches: list[str], start: int) -> None:
    before = code.partition("|")[0]
    assert complete(code.replace("|", ""), len(before)) == (matches, start)


@pytest.mark.parametrize(
    "code", ["", "x", "%time", "x % bitfusion", "%bitfusionx ", "!bitfusion ", "%bitfusion\n"]
)
def test_other_lines_are_not_ours(code: str) -> None:
    assert complete(code, len(code)) is None


@given(st.text(), st.integers(-5, 50))
def test_no_text_is_too_strange(text: str, cursor: int) -> None:
    complete(text, cursor)
    complete("%bitfusion request " + text, cursor)
