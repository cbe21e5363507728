"""How often a test repeats what it does at random: few times in `make test-long`, all in `make rounds`."""

from __future__ import annotations

import os

_ALL = os.environ.get("ALL_ROUNDS") == "1"


def rounds(few: int, all_: int) -> int:
    """The number for this run."""
    return all_ if _ALL else few
