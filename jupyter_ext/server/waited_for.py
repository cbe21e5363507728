"""Who waits for what a kernel holds, as far as the pool tells it. Pure.

No kernel is told: whoever waits asks the pool, not the holder. A look at the pool shows everybody who waits
in it, and not for which of its GPUs; so all of them wait for each kernel that holds some. Clients that tell
of nobody's wait, as VMware's, make it look as if nobody waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

FIELD = "waited_for_by"


def with_waiters(state: Json, waiting: Sequence[Json] | None) -> Json:
    """A kernel's published state, and in `FIELD` who waits for what it holds.

    Null where it holds nothing, or the pool is not known. Another size that the kernel itself waits for
    doesn't count.

    Args:
        state: As the kernel publishes it.
        waiting: Of the last look at the pool, as `pool_report` has it; None: not known.
    """
    told = None
    if waiting is not None and state.get("lease") is not None:
        told = [entry["text"] for entry in waiting if not _is_own(entry, state.get("notebook"))]
    return {**state, FIELD: told}


def _is_own(entry: Json, notebook: object) -> bool:
    return bool(entry["mine"]) and isinstance(notebook, str) and f": {notebook} (" in entry["text"]
