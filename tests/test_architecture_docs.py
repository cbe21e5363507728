"""docs/architecture.md names files: each of them exists, and the states it draws are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from bitfusion_kernel.proxy.lifecycle import KernelState

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_-]*(?:\.[a-z]+)?)`", GUIDE)
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_states_of_a_kernel_are_drawn() -> None:
    diagram = GUIDE.partition("stateDiagram-v2")[2].partition("```")[0]
    assert set(re.findall(r"[A-Z_]{4,}", diagram)) == {state.name for state in KernelState}
