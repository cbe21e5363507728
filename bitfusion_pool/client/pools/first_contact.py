"""The first contact with the servers: claiming a client id, asking for free GPUs, and how both can fail."""

from __future__ import annotations

import os
import time

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import ServersUnreachable, TokenExpired
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.inventory.filters import is_listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.client.pools.pool import Pool
    from bitfusion_pool.inventory.emulation import Emulation
    from bitfusion_pool.inventory.servers import Server

_EXPIRY = "2021-11-20T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Contact:
    """What one command knows once the servers have accepted it; it outlives the connection to the pool."""

    client_id: str
    log: LogOutput
    emulation: Emulation


def claim_client_id(pool: Pool) -> Contact:
    """Claim the user's client id, as the first step of every command that talks to the servers.

    Raises:
        TokenExpired: The emulation says so.
        ServersUnreachable: No server answers, or none accepts the token.
    """
    emulation = pool.emulation
    log = LogOutput(emulation.stream)
    client_id = pool.client_id()
    if emulation.token == "expired":
        raise TokenExpired("", f"Token expired at: {_EXPIRY}")
    reason = ""
    if emulation.servers == "unreachable":
        reason = "dial tcp {0}: i/o timeout"
    elif emulation.token == "refused":
        reason = "context deadline exceeded"
    for server in pool.servers:
        log.log(f"Query server {server.key} to claim client id: {client_id}")
        time.sleep(emulation.slow)
        if not reason:
            break  # one answer is enough
        why = f"Get https://{server.key}/claim_id: {reason.format(server.key)}"
        log.log(f"Error contacting server {server.key} to verify client id: {why}", "WARN")
    if reason:
        raise ServersUnreachable("", "none of the servers responded correctly to client id claim requests.")
    if emulation.backup_warning == "on":
        file = f"{os.environ.get('HOME', '/root')}/.bitfusion/client.yaml"
        copy = f"{file}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        why = f"rename {file} {copy}: device or resource busy"
        log.log(f"Unable to backup old client config file: {why}", "WARN")
    return Contact(client_id, log, emulation)


def query_servers(servers: Sequence[Server], contact: Contact, request: GpuRequest) -> Sequence[Server]:
    """Ask those of the servers that the request accepts for free GPUs; returns these."""
    listed = [server for server in servers if is_listed(request, server)]
    for server in listed:
        contact.log.log(f"Query server {server.key} gpu availability")
        time.sleep(contact.emulation.slow)
    return listed
