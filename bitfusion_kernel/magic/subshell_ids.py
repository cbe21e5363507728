"""In the kernel: a subshell that a client created before the kernel existed gets the id the client knows.

ipykernel gives each subshell a new uuid. The proxy's own `create_subshell_request` names the id that it has
given out already, and here ipykernel is made to take it. So requests, replies, output and comms of the
subshell bear one id everywhere. An ipykernel in which this is not possible takes an id of its own, and the
proxy translates (`offline.early_subshells`).
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

SUBSHELL_ID = "bitfusion_subshell_id"
"""In the content of the proxy's request: the id to take. Clients' requests have none."""


def take_from_proxy(kernel: Any) -> None:
    """Called by the IPython extension, with its kernel or None; does nothing to one without subshells."""
    handlers: Any = getattr(kernel, "control_handlers", None)
    create = handlers.get("create_subshell_request") if isinstance(handlers, dict) else None
    if create is None or not hasattr(sys.modules.get("ipykernel.subshell_manager"), "uuid"):
        return

    async def create_subshell_request(stream: Any, ident: Any, parent: Any) -> None:
        # The control thread serves one request at a time, and waits for the thread that makes the id.
        manager: Any = sys.modules["ipykernel.subshell_manager"]
        given = _given(parent)
        if given is not None:
            manager.uuid = given
        try:
            created = create(stream, ident, parent)
            if hasattr(created, "__await__"):
                await created
        finally:
            manager.uuid = uuid

    handlers["create_subshell_request"] = create_subshell_request


class _Given:
    """The module `uuid` with one chosen id."""

    def __init__(self, chosen: uuid.UUID) -> None:
        self._chosen = chosen

    def uuid4(self) -> uuid.UUID:
        return self._chosen

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)


def _given(request: Any) -> _Given | None:
    try:
        return _Given(uuid.UUID(request["content"][SUBSHELL_ID]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
