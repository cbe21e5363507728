"""The words of the client's first contact with its servers, and its failures, as the manners have them."""

from __future__ import annotations

import os
import time

from bitfusion_client.errors import ServersUnreachable, TokenExpired
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.entries import Holder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.client.log_output import Speaker
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.ledger import Ledger

EXPIRY = "2021-11-20T00:00:00Z"


def claim(ledger: Ledger, speaker: Speaker) -> str:
    """Say who we are to the servers; returns the client id. Raises ServersUnreachable, TokenExpired."""
    manners = ledger.manners
    client_id = ledger.client_id(os.getuid())
    if manners.token == "expired":
        raise TokenExpired("", f"Token expired at: {EXPIRY}")
    reason = ""
    if manners.servers == "unreachable":
        reason = "dial tcp {0}: i/o timeout"
    elif manners.token == "refused":
        reason = "context deadline exceeded"
    for server in ledger.servers:
        speaker.log(f"Query server {server.key} to claim client id: {client_id}")
        time.sleep(manners.slow)
        if not reason:
            break  # the first that answers will do
        address = f"https://{server.key}/claim_id"
        why = f"Get {address}: {reason.format(server.key)}"
        speaker.log(f"Error contacting server {server.key} to verify client id: {why}", "WARN")
    if reason:
        raise ServersUnreachable("", "none of the servers responded correctly to client id claim requests.")
    if manners.backup_warning == "on":
        file = f"{os.environ.get('HOME', '/root')}/.bitfusion/client.yaml"
        copy = f"{file}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        why = f"rename {file} {copy}: device or resource busy"
        speaker.log(f"Unable to backup old client config file: {why}", "WARN")
    return client_id


def query(ledger: Ledger, speaker: Speaker, request: GpuRequest) -> Sequence[Server]:
    """Ask the servers of the request what they have; returns them."""
    names = request.servers
    chosen = [one for one in ledger.servers if not names or {one.key, one.address, one.name} & set(names)]
    for server in chosen:
        speaker.log(f"Query server {server.key} gpu availability")
        time.sleep(ledger.manners.slow)
    return chosen


def holder_of(program: Sequence[str], environ: Mapping[str, str]) -> Holder:
    """How the others will see us: label, user, pid, host."""
    import pwd

    label = environ.get("BITFUSION_LABEL") or os.path.basename(environ.get("JPY_SESSION_NAME", ""))
    if not label:
        label = " ".join([os.path.basename(program[0]), *program[1:3]]) if program else "request_gpus"
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Holder(one_line(label), user, os.getpid(), os.uname().nodename, os.getuid())


def one_line(label: str) -> str:
    """At most 60 characters that cannot be mistaken for a separator or break a line."""
    printable = "".join(letter if letter.isprintable() else " " for letter in label)
    flat = " ".join(printable.replace(";", ",").split())
    return flat if len(flat) <= 60 else flat[:59] + "…"
