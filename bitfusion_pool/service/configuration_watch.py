"""Follows pool.toml while the service runs: once a second, and at once when it is told to (SIGHUP).

Leases stay, whatever becomes of their GPUs. A wrong file is logged once and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging

from bitfusion_client.errors import BitfusionError, PoolUnreadable
from bitfusion_pool.inventory.servers import Server
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, encoded_size
from bitfusion_pool.messages.pool_values import server_to_json
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.timed_event import wait_at_most

_log = logging.getLogger(__name__)
LOOK_S = 1.0


class ConfigurationWatch:
    """Replaces the inventory when the file has changed. A wrong file is logged once and changes nothing."""

    def __init__(self, operations: PoolOperations) -> None:
        self._operations = operations
        self._told = ""  # the version of the file that was found wrong
        self._due = asyncio.Event()
        self._is_asked = False

    def reload(self) -> None:
        """Look now, and log what was found, whatever that is."""
        self._is_asked = True
        self._due.set()

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await wait_at_most(self._due, LOOK_S)
            asked, self._is_asked = self._is_asked, False
            self.look(asked)

    def look(self, asked: bool = False) -> None:
        """Follow the file; `asked`: log also that nothing changed, or is still wrong."""
        ledger = self._operations.ledger
        version = ledger.configuration_file_version()
        try:
            changed = ledger.follow_configuration(check_size)
        except BitfusionError as error:
            if asked or version != self._told:
                self._told = version
                _log.error(
                    "pool.toml is not followed, the pool stays as it was", extra={"reason": str(error)}
                )
            return
        self._told = ""
        if changed:
            self._operations.has_changed()
        if changed or asked:
            _log.info(
                "pool.toml read again" if changed else "pool.toml has not changed",
                extra={
                    "servers": len(ledger.servers),
                    "gpus": sum(len(server.devices) for server in ledger.servers),
                },
            )


def check_size(servers: tuple[Server, ...]) -> None:
    """Refuse servers that do not fit into the messages that show them, with some room for leases.

    Raises:
        PoolUnreadable: They do not fit.
    """
    if encoded_size([server_to_json(server) for server in servers]) > LONGEST_FROM_SERVICE // 2:
        raise PoolUnreadable(
            "", "the pool has more servers and GPUs than fit in a message", "make it several pools"
        )
