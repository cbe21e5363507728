"""A Jupyter server elsewhere, and a notebook executed on it as JupyterLab does: over HTTP and websockets."""

from __future__ import annotations

import asyncio
import copy
import json
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import ChannelQueue, GatewayKernelClient, GatewayKernelManager
from nbclient import NotebookClient

from tests.cluster.notebook_client import NotebookServer
from tests.support.machine import scaled

_LOOKS_S = 0.01


class WaitingQueue(ChannelQueue):
    """Jupyter's queue of messages, which looks for the next one without a pause and so takes a whole core."""

    async def _async_get(self, timeout: float | None = None) -> Any:
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.empty() and not self.response_router_finished and time.monotonic() < end:
            await asyncio.sleep(_LOOKS_S)
        return await cast(Any, super())._async_get(0)


class WaitingClient(GatewayKernelClient):
    """Jupyter's client of a kernel on a server elsewhere, with such queues."""

    @property
    def shell_channel(self) -> Any:
        return _waiting(super().shell_channel)

    @property
    def iopub_channel(self) -> Any:
        return _waiting(super().iopub_channel)


def _waiting(channel: Any) -> Any:
    channel.__class__ = WaitingQueue
    return channel


class JupyterServer(NotebookServer):
    """The REST interface of a Jupyter server that asks for no token, as Kubeflow starts them."""

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """The answer, None if it has no body. Raises OSError while nobody answers and for a refusal."""
        text = self.fetch(path, method, content)
        return json.loads(text) if text else None

    def upload(self, path: str, notebook: nbformat.NotebookNode) -> None:
        """Put a notebook where its user has it."""
        self.ask("PUT", f"/api/contents/{path}", {"type": "notebook", "format": "json", "content": notebook})

    def open(self, path: str, kernel_name: str) -> ServedKernel:
        """Open a notebook with a kernel, as JupyterLab does: a session."""
        name = Path(path).name
        asked = {"path": path, "name": name, "type": "notebook", "kernel": {"name": kernel_name}}
        session = self.ask("POST", "/api/sessions", asked)
        return ServedKernel(self, str(session["id"]), str(session["kernel"]["id"]))


class ServedKernel:
    """The kernel of an opened notebook."""

    def __init__(self, server: JupyterServer, session: str, kernel_id: str) -> None:
        self._server = server
        self._session = session
        self.id = kernel_id

    def execute(
        self,
        notebook: nbformat.NotebookNode,
        before: Callable[[int, str], None] = lambda number, title: None,
        after: Callable[[int], None] = lambda number: None,
        limit_s: float = 300,
    ) -> nbformat.NotebookNode:
        """Execute all cells; returns the notebook with its outputs. The kernel lives on.

        Jupyter's own client of a server elsewhere stands in nbclient for the manager of a local kernel.
        Raises nbclient's CellExecutionError.

        Args:
            notebook: Not changed.
            before: Gets the number of a code cell, from 1, and its first line.
            after: Gets its number.
            limit_s: For each cell.
        """
        executed = copy.deepcopy(notebook)
        numbers = {
            index: number
            for number, index in enumerate(
                (index for index, cell in enumerate(executed.cells) if cell.cell_type == "code"), 1
            )
        }

        def began(cell: nbformat.NotebookNode, cell_index: int) -> None:
            if cell_index in numbers:
                before(numbers[cell_index], cell.source.strip().partition("\n")[0].lstrip("# "))

        def ended(cell: nbformat.NotebookNode, cell_index: int, execute_reply: object) -> None:
            after(numbers[cell_index])

        GatewayClient.clear_instance()
        GatewayClient.instance(url=self._server.url, headers=json.dumps(self._server.headers()))
        manager = cast(Any, GatewayKernelManager)(client_class=f"{__name__}.{WaitingClient.__name__}")
        client = NotebookClient(
            executed,
            km=manager,  # nbclient ends a kernel only whose manager it made, and then its connection, too
            timeout=round(scaled(limit_s)),
            on_cell_execute=began,
            on_cell_executed=ended,
        )
        try:
            client.execute(kernel_id=self.id)
        finally:
            if client.kc is not None:
                client.kc.stop_channels()
            GatewayClient.clear_instance()
        return executed

    def end(self) -> None:
        """Shut the kernel down and close the session."""
        try:
            self._server.ask("DELETE", f"/api/sessions/{self._session}")
        except urllib.error.HTTPError as refused:
            if refused.code != 404:
                raise
