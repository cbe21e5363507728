"""The extension as the Jupyter server loads, begins and ends it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from tornado.ioloop import IOLoop

from bitfusion_client.command.find_client import find_client
from bitfusion_client.pod.this_pod import this_pod
from jupyter_ext.server.client_run import run_client
from jupyter_ext.server.config import BitfusionServer
from jupyter_ext.server.events import Announcer
from jupyter_ext.server.handlers import routes
from jupyter_ext.server.jupyter_kernels import JupyterKernels
from jupyter_ext.server.kernel_actions import KernelActions
from jupyter_ext.server.kernel_watch import KernelWatch
from jupyter_ext.server.known_kernels import KnownKernels
from jupyter_ext.server.overview import Overview
from jupyter_ext.server.own_names import own_names
from jupyter_ext.server.pool_look import PoolLook
from jupyter_ext.server.sizes_file import SizesFile

Json = dict[str, Any]


class BitfusionExtension(ExtensionApp):
    """Makes all that there is of the extension when the server loads it, and ends it with the server."""

    # not "bitfusion": jupyter_bitfusion_config.py is the kernel's
    name = "kubeflow_bitfusion"
    load_other_extensions = True
    classes = [BitfusionServer]  # noqa: RUF012  # as its base class has it

    _stops: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What ends with the server: nothing yet where loading has failed, which must not keep the server."""

    def initialize_handlers(self) -> None:
        """Called by the server, once, before its event loop runs."""
        server = self.serverapp
        assert server is not None
        assert server.event_logger is not None
        self._settings = settings = BitfusionServer(parent=self)
        jupyter = JupyterKernels(server.kernel_manager, server.session_manager)
        self._announcer = Announcer(server.event_logger, jupyter.documents, self.log)
        self._kernels = KernelWatch(jupyter.connection_files, os.environ, self._kernel_changed, self.log)
        self._pool = PoolLook(
            self._list_gpus,
            own_names(),
            somebody_waits=lambda: self._kernels.somebody_waits,
            on_change=self._pool_changed,
            on_notice=self._announcer.notice,
            pace=settings.pace(),
        )
        self._known = KnownKernels(self._kernels, lambda: self._pool.waiting, self._announcer.kernel_changed)
        sizes = SizesFile(settings.sizes_file, self.log)
        overview = Overview(self._pool, self._known, sizes, jupyter.documents, this_pod())
        actions = KernelActions(jupyter.connection_files, os.environ, jupyter.documents, self._pool.hurry)
        self.handlers.extend(routes(overview, actions.act))
        self._stops = (self._pool.stop, self._kernels.stop, self._announcer.stop)
        IOLoop.current().add_callback(self._begin)

    async def stop_extension(self) -> None:
        """Called by the server when it ends."""
        await asyncio.gather(*(stop() for stop in self._stops))

    def _begin(self) -> None:
        self._announcer.start()
        self._kernels.start()

    def _kernel_changed(self, kernel_id: str, before: Json | None, after: Json | None) -> None:
        self._known.kernel_changed(kernel_id, after)
        if _name(before) != _name(after):
            self._pool.hurry()

    def _pool_changed(self) -> None:
        self._announcer.pool_changed()
        self._known.pool_changed()

    async def _list_gpus(self) -> str:
        client = find_client(self._settings.client or None, os.environ)
        return await run_client([client.path, "list_gpus"], os.environ, limit=self._settings.look_limit)


def _name(state: Json | None) -> object:
    return None if state is None else state.get("state")
