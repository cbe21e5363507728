"""Who waits for what a kernel holds: from the pool's last look into the kernel's state, and told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ext.server.known_kernels import KnownKernels
from jupyter_ext.server.waited_for import with_waiters

HELD = {"state": "idle", "notebook": "x.ipynb", "lease": {"devices": []}}
FREE = {"state": "none", "notebook": "x.ipynb", "lease": None}
BOB = {"text": "bob: x.ipynb (1 GPU, since 14:03)", "mine": False, "position": 1}
OTHER = {"text": "ada: y.ipynb (1 GPU, since 14:04)", "mine": True, "position": 2}
OWN = {"text": "ada: x.ipynb (2 GPUs, since 14:05)", "mine": True, "position": 3}


@pytest.mark.parametrize(
    ("state", "waiting", "told"),
    [
        (HELD, [BOB, OTHER, OWN], [BOB["text"], OTHER["text"]]),
        (HELD, [], []),
        (HELD, None, None),
        (FREE, [BOB], None),
        ({**HELD, "notebook": None}, [OWN], [OWN["text"]]),
    ],
    ids=["others and another notebook of mine", "nobody", "unknown", "nothing is held", "nameless"],
)
def test_everybody_in_the_queue_waits_for_who_holds(state: Any, waiting: Any, told: Any) -> None:
    assert with_waiters(state, waiting) == {**state, "waited_for_by": told}


class Published:
    """What kernels publish."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}

    async def look(self) -> dict[str, Any]:
        return self.states


def test_a_change_of_the_kernel_and_one_of_the_pool_are_told_and_nothing_twice() -> None:
    published, waiting, told = Published(), [BOB], []
    kernels = KnownKernels(published, lambda: waiting, lambda *change: told.append(change))
    published.states["k"] = FREE
    kernels.kernel_changed("k", FREE)
    kernels.pool_changed()
    free = {**FREE, "waited_for_by": None}
    assert told == [("k", None, free)]
    published.states["k"] = HELD
    kernels.kernel_changed("k", HELD)
    held = {**HELD, "waited_for_by": [BOB["text"]]}
    assert told[1:] == [("k", free, held)]
    assert kernels.states == asyncio.run(kernels.look()) == {"k": held}
    waiting.clear()
    kernels.pool_changed()
    kernels.pool_changed()
    left = {**HELD, "waited_for_by": []}
    assert told[2:] == [("k", held, left)]
    kernels.kernel_changed("k", None)
    assert told[3:] == [("k", left, None)]
