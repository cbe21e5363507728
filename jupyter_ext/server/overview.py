"""Puts together what the REST API tells: the pool, this server's kernels, the sizes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from bitfusion_client.errors import BitfusionError
from bitfusion_client.kernel_state import states
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_client.version import VERSION
from jupyter_ext.server.known_kernels import KnownKernels
from jupyter_ext.server.pool_look import PoolLook
from jupyter_ext.server.sizes import PodBudget, held_request, sizes_json
from jupyter_ext.server.sizes_file import SizesFile

Json = dict[str, Any]


class Document(NamedTuple):
    """What a kernel belongs to: its path in the server, None for a console; and what a person calls it."""

    path: str | None
    title: str


Documents = Mapping[str, Document]
"""By Jupyter's ids of kernels."""


class Overview:
    """What there is to be told. The server has one.

    Args:
        pool: The look at the pool.
        kernels: This server's kernels.
        sizes: The admin's sizes.
        documents: Looks up to which notebook each kernel belongs.
        pod: What its files say of this pod; None outside of pods.
    """

    def __init__(
        self,
        pool: PoolLook,
        kernels: KnownKernels,
        sizes: SizesFile,
        documents: Callable[[], Awaitable[Documents]],
        pod: ThisPod | None,
    ) -> None:
        self._pool = pool
        self._kernels = kernels
        self._sizes = sizes
        self._documents = documents
        self._budget = _budget(pod)

    async def state(self, can_change: bool) -> Json:
        """Everything; `can_change`: whether who asks may also change something."""
        pool = await self._pool.ask()
        kernels = await self._all_kernels()
        return {
            "version": VERSION,
            "now": round(time.time(), 3),
            "pool": pool,
            "kernels": kernels,
            "sizes": self._all_sizes(),
            "can_change": can_change,
        }

    async def pool(self) -> Json:
        """The pool."""
        return await self._pool.ask()

    async def kernels(self) -> Json:
        """All kernels of this server that are ours."""
        return {"kernels": await self._all_kernels()}

    async def sizes(self) -> Json:
        """What may be chosen."""
        await self._pool.ask()
        return {"sizes": self._all_sizes()}

    async def leases(self) -> Json:
        """The kernels that hold something."""
        return {"leases": [kernel for kernel in await self._all_kernels() if holds(kernel)]}

    async def queue(self) -> Json:
        """The kernels that wait."""
        waiting = [kernel for kernel in await self._all_kernels() if kernel["state"] == states.WAITING]
        return {"queue": waiting}

    async def _all_kernels(self) -> list[Json]:
        found = await self._kernels.look()
        documents = await self._documents() if found else {}
        return [kernel_json(name, state, documents) for name, state in found.items()]

    def _all_sizes(self) -> list[Json]:
        budget = self._budget
        if budget is not None:
            held = (held_request(state) for state in self._kernels.states.values())
            budget = PodBudget(budget.request, budget.units, tuple(each for each in held if each is not None))
        return sizes_json(self._sizes.sizes(), self._pool.report, budget)


def holds(state: Json) -> bool:
    """Whether a kernel in this state has GPUs, or is about to get or give them back."""
    return state.get("granted_at") is not None


def kernel_json(name: str, state: Json, documents: Documents) -> Json:
    """A kernel's published state with Jupyter's id `name`, and the notebook that it belongs to."""
    notebook = state.get("notebook")
    told = one_line(notebook, 200) if isinstance(notebook, str) and notebook else f"kernel {name[:8]}"
    document = documents.get(name, Document(None, ""))
    return {**state, "id": name, "path": document.path, "title": document.title or told}


def _budget(pod: ThisPod | None) -> PodBudget | None:
    if pod is None or not pod.request:
        return None
    from bitfusion_client.command.command_line import parse_request_text

    try:
        request = parse_request_text(pod.request)
    except BitfusionError:
        return None  # the kernel tells it, where it matters
    units = int(pod.units) if pod.units.isascii() and pod.units.isdigit() and len(pod.units) <= 9 else 0
    return PodBudget(request, units)
