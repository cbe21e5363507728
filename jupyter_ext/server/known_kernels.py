"""The kernels of this server as pages see them: what each publishes, and who waits for what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jupyter_ext.server.waited_for import with_waiters

Json = dict[str, Any]

Waiting = Callable[[], Sequence[Json] | None]
"""Who waits in the pool, as the last look has told; None: not known."""


class Kernels(Protocol):
    """What follows the published states."""

    @property
    def states(self) -> Mapping[str, Json]:
        """The state of each kernel, by Jupyter's ids."""

    async def look(self) -> Mapping[str, Json]:
        """The same, with those of kernels that have just come."""


class KnownKernels:
    """The server has one.

    Args:
        kernels: Has what they publish; tells `kernel_changed`.
        waiting: Has who waits; whoever looks at the pool tells `pool_changed`.
        on_change: Called with an id, what was known before and now, of which one may be None.
    """

    def __init__(
        self,
        kernels: Kernels,
        waiting: Waiting,
        on_change: Callable[[str, Json | None, Json | None], None],
    ) -> None:
        self._kernels = kernels
        self._waiting = waiting
        self._on_change = on_change
        self._told: dict[str, Json] = {}

    async def look(self) -> dict[str, Json]:
        """All of them now, for a page that asks."""
        return self._known(await self._kernels.look())

    @property
    def states(self) -> dict[str, Json]:
        """All of them, without looking for new ones."""
        return self._known(self._kernels.states)

    def kernel_changed(self, name: str, state: Json | None) -> None:
        """A kernel publishes another state; None: it is gone."""
        before = self._told.pop(name, None)
        after = None
        if state is not None:
            after = self._told[name] = with_waiters(state, self._waiting())
        if before != after:
            self._on_change(name, before, after)

    def pool_changed(self) -> None:
        """The pool has been looked at anew, and differs."""
        for name, state in self._kernels.states.items():
            self.kernel_changed(name, state)

    def _known(self, published: Mapping[str, Json]) -> dict[str, Json]:
        waiting = self._waiting()
        return {name: with_waiters(state, waiting) for name, state in published.items()}
