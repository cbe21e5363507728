"""Follows the published state of each kernel of this server, over restarts. On the server's event loop.

A kernel that is none of ours has no proxy and so no state: it is looked for, ever more seldom, and nothing is
said of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any

from bitfusion_client.kernel_state import proxy_socket, states
from bitfusion_client.kernel_state.proxy_socket import NoKernel
from bitfusion_client.kernel_state.watch import RESTART_LIMIT, Watch

Json = dict[str, Any]

MOST_KERNELS = 100
"""Kernels that are followed; a server with more shows the first ones."""

ROUND = 1.0
"""Seconds between two looks at which kernels there are. Changes of state come by themselves."""

CONNECT_LIMIT = 0.5

_SHORTEST_RETRY, _LONGEST_RETRY = 0.5, 5.0
_REFUSED_RETRY = 60.0  # it has as many watchers as it takes


class _Kernel:
    """What is known of one kernel."""

    def __init__(self, connection_file: str) -> None:
        self.connection_file = connection_file
        self.watch: Watch | None = None
        self.state: Json | None = None
        self.lost_at = 0.0
        self.pause = _SHORTEST_RETRY
        self.due = 0.0


class KernelWatch:
    """The states of this server's kernels, by Jupyter's ids.

    Args:
        list_kernels: The ids of all kernels that run now, with their connection files.
        environ: `XDG_RUNTIME_DIR` as the kernels have it.
        on_change: Called with an id, the state before and the one now, of which one may be None.
        log: For faults of our own.
    """

    def __init__(
        self,
        list_kernels: Callable[[], Mapping[str, str]],
        environ: Mapping[str, str],
        on_change: Callable[[str, Json | None, Json | None], None],
        log: Logger,
    ) -> None:
        self._list_kernels = list_kernels
        self._environ = dict(environ)
        self._on_change = on_change
        self._log = log
        self._kernels: dict[str, _Kernel] = {}
        self._task: asyncio.Task[None] | None = None
        self._one_round = asyncio.Lock()

    def start(self) -> None:
        """Begin; called once the event loop runs."""
        self._task = asyncio.get_running_loop().create_task(self._rounds())

    async def stop(self) -> None:
        """The server ends."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for kernel in self._kernels.values():
            self._unwatch(kernel)
        self._kernels.clear()

    @property
    def states(self) -> dict[str, Json]:
        """The state of each kernel that is ours."""
        return {name: kernel.state for name, kernel in self._kernels.items() if kernel.state is not None}

    @property
    def somebody_waits(self) -> bool:
        """Whether one of them waits for a GPU."""
        return any(state.get("state") == states.WAITING for state in self.states.values())

    async def look(self) -> dict[str, Json]:
        """The states, with those of kernels that have just come; for a page that asks."""
        await self._round()
        return self.states

    # -- which kernels there are ---------------------------------------------------------------------

    async def _rounds(self) -> None:
        while True:
            try:
                await self._round()
            except Exception:  # it must not end for all kernels because of one
                self._log.exception("The states of Bitfusion kernels could not be read")
            await asyncio.sleep(ROUND)

    async def _round(self) -> None:
        async with self._one_round:
            there = dict(list(self._list_kernels().items())[:MOST_KERNELS])
            for name in [name for name in self._kernels if name not in there]:
                self._forget(name)
            for name, file in there.items():
                self._kernels.setdefault(name, _Kernel(file))
            now = time.monotonic()
            due = {name: each for name, each in self._kernels.items() if not each.watch and each.due <= now}
            if not due:
                return
            files = {name: kernel.connection_file for name, kernel in due.items()}
            # proxies that are stopped let connections wait, which the loop must not
            found = await asyncio.to_thread(_connect_all, files, self._environ)
            for name, (watch, told) in found.items():
                self._found(name, watch, told)

    def _found(self, name: str, watch: Watch | None, told: Json | None) -> None:
        kernel = self._kernels.get(name)
        if kernel is None:
            if watch is not None:
                watch.close()
            return
        now = time.monotonic()
        if watch is not None:
            kernel.watch, kernel.pause = watch, _SHORTEST_RETRY
            asyncio.get_running_loop().add_reader(watch.fileno(), self._hear, name, watch)
            if told is not None:
                self._set(name, kernel, told)
            self._hear(name, watch)
            return
        if kernel.state is not None and now < kernel.lost_at + RESTART_LIMIT:
            kernel.due = now + _SHORTEST_RETRY
            if told is not None and told["state"] != kernel.state["state"]:
                self._set(name, kernel, {**kernel.state, **told})
            return
        self._set(name, kernel, None)
        kernel.due = now + kernel.pause
        kernel.pause = min(2 * kernel.pause, _LONGEST_RETRY)

    def _forget(self, name: str) -> None:
        kernel = self._kernels.pop(name)
        self._unwatch(kernel)
        self._set(name, kernel, None)

    # -- what they tell ------------------------------------------------------------------------------

    def _hear(self, name: str, watch: Watch) -> None:
        kernel = self._kernels.get(name)
        if kernel is None or kernel.watch is not watch:
            return
        for told in watch.receive():
            self._set(name, kernel, told)
        if watch.closed:
            self._unwatch(kernel)
            kernel.lost_at = time.monotonic()
            kernel.due = kernel.lost_at + (_REFUSED_RETRY if watch.refused else 0.0)

    def _unwatch(self, kernel: _Kernel) -> None:
        if kernel.watch is not None:
            asyncio.get_running_loop().remove_reader(kernel.watch.fileno())
            kernel.watch.close()
            kernel.watch = None

    def _set(self, name: str, kernel: _Kernel, state: Json | None) -> None:
        before, kernel.state = kernel.state, state
        if before != state:
            self._on_change(name, before, state)


def _connect_all(
    files: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, tuple[Watch | None, Json | None]]:
    return {name: _connect(file, environ) for name, file in files.items()}


def _connect(connection_file: str, environ: Mapping[str, str]) -> tuple[Watch | None, Json | None]:
    """A connection to the proxy, and its state now.

    Without a proxy, as in a restart, what the file says that it has left.
    """
    try:
        folders = proxy_socket.folders(environ, proxy_socket.read_key(connection_file))
    except NoKernel:
        return None, None
    by_file = None
    for folder in folders:
        try:
            watch = Watch(folder, limit=CONNECT_LIMIT)
        except OSError:
            by_file = by_file or states.read(os.path.join(folder, states.FILE_NAME))
        else:
            told = watch.wait(CONNECT_LIMIT)
            return watch, told[-1] if told else None
    return None, by_file
