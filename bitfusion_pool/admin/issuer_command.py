"""`bitfusion-pool token … --issuer-files FOLDER`: tokens of a pool on the network, from an issuer.

For programs that give tokens to others, such as a Kubernetes controller: they call the command, read what
`--json` prints, and hold no secret in an argument.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from bitfusion_client.errors import ClientFailed
from bitfusion_client.request.shares import parse_share
from bitfusion_client.text_table import box
from bitfusion_pool.access.client_files import (
    FILES,
    client_text,
    prepare_folder,
    servers_text,
    write_client_files,
)
from bitfusion_pool.access.network_files import read_authority, read_client_folder
from bitfusion_pool.access.token_rules import (
    TokenLimits,
    parse_count,
    parse_lifetime,
    parse_units,
    utc_time,
)
from bitfusion_pool.client.connections.network_service import connect_to_first, services_of
from bitfusion_pool.client.connections.service_errors import nonsense, refused
from bitfusion_pool.messages.from_client import IssueToken, ListTokens, RevokeToken
from bitfusion_pool.messages.from_service import Refused, TokenIssued, TokenList, TokensRevoked
from bitfusion_pool.messages.pool_values import NO_UNITS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bitfusion_pool.access.network_files import NetworkClient
    from bitfusion_pool.messages.message import Message
    from bitfusion_pool.messages.pool_values import IssuedToken

M = TypeVar("M", bound="Message")
LIMITS = ("gpus", "share", "leases", "waiting", "units")
# in the order in which they are checked
_PARSERS: dict[str, Callable[[str, str], float]] = {
    **dict.fromkeys(("gpus", "leases", "waiting"), parse_count),
    "share": lambda _, text: parse_share(text, "--share"),
    "units": parse_units,
}
_MOST_PAGES = 20  # of a list


def add_issuer_files(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add the option by which a subcommand asks a pool on the network."""
    parser.add_argument(
        "--issuer-files",
        metavar="FOLDER",
        required=required,
        help="ask the pool on the network, with an issuer's servers.conf, client.yaml and ca.crt",
    )


def read_limits(options: argparse.Namespace, prefix: str = "") -> TokenLimits:
    """The limits that options name, all with the same prefix. Raises BitfusionError."""
    found: dict[str, Any] = {}
    for limit, parse in _PARSERS.items():
        text = getattr(options, f"{prefix}{limit}".replace("-", "_"))
        found[limit] = None if text is None else parse(f"--{prefix}{limit}", text)
    return TokenLimits(**found)


def run_for_issuer(options: argparse.Namespace, now: float) -> str:
    """Do what the command line says; returns what to print. Raises BitfusionError."""
    client = read_client_folder(os.path.abspath(options.issuer_files))
    if options.action == "list":
        return _list(client, options.json)
    if options.action == "revoke":
        with _Issuer(client) as issuer:
            revoked = issuer.ask(RevokeToken(options.token), TokensRevoked)
        return f"revoked {revoked.count} tokens of {revoked.name}\n"
    return _issue(client, options)


def _issue(client: NetworkClient, options: argparse.Namespace) -> str:
    for option in ("issuer", "replace", "server", "ca"):
        if getattr(options, option, None):
            raise ClientFailed("", f"--{option} does not go with --issuer-files")
    if bool(options.files) == options.json:
        raise ClientFailed("", "with --issuer-files say where the new token goes: --files FOLDER, or --json")
    limits = read_limits(options)
    life_s = parse_lifetime("--expires", options.expires) if options.expires else 0.0
    folder = prepare_folder(options.files, options.force) if options.files else ""
    authority = read_authority(client)
    asked = IssueToken(
        options.name,
        life_s,
        options.action == "renew",
        getattr(options, "keep", None) or "",
        limits.gpus or 0,
        limits.share or 0.0,
        limits.leases or 0,
        limits.waiting or 0,
        NO_UNITS if limits.units is None else limits.units,
        getattr(options, "lower", False),
    )
    with _Issuer(client) as issuer:
        issued = issuer.ask(asked, TokenIssued)
        if limits.units is not None and issued.row.units == NO_UNITS:
            if options.action == "create":
                issuer.ask(RevokeToken(options.name), TokensRevoked)
            raise ClientFailed(
                "",
                f"the service of pool {issuer.place} is older than limits in units, and passed over --units",
                "update the service first and ask again, or leave --units out",
            )
    servers = [address for server in client.servers for address in server.addresses]
    if not folder:
        texts = dict(zip(FILES, (servers_text(servers), client_text(issued.token), authority), strict=True))
        return json.dumps({**_as_json(issued.row), "files": texts}) + "\n"
    write_client_files(folder, servers, issued.token, authority)
    until = utc_time(issued.row.expires_at)
    return (
        f"token {issued.row.token_id} for {issued.row.name}, until {until}: "
        f"{_limits(issued.row).describe()}\n"
        f"wrote servers.conf, client.yaml (it holds the token) and ca.crt to {folder}\n"
    )


def _list(client: NetworkClient, as_json: bool) -> str:
    found: list[IssuedToken] = []
    with _Issuer(client) as issuer:
        for _ in range(_MOST_PAGES):
            page = issuer.ask(ListTokens(found[-1].token_id if found else ""), TokenList)
            found += page.tokens
            if not page.more or not page.tokens:
                break
    if as_json:
        return json.dumps([_as_json(one) for one in found], indent=2) + "\n"
    if not found:
        return "This issuer has issued no tokens that are good.\n"
    found.sort(key=lambda one: (one.name, one.expires_at))
    rows = [(one.name, one.token_id, utc_time(one.expires_at), _limits(one).describe()) for one in found]
    return box(("Name", "Token", "until", "Limits"), rows)


def _as_json(row: IssuedToken) -> dict[str, Any]:
    """For programs: times in seconds since the epoch, a limit that is none as null."""
    return {
        "name": row.name,
        "id": row.token_id,
        "created": row.created_at,
        "expires": row.expires_at,
        "limits": asdict(_limits(row)),
    }


def _limits(row: IssuedToken) -> TokenLimits:
    return TokenLimits(
        row.gpus or None,
        row.share or None,
        row.leases or None,
        row.waiting or None,
        None if row.units == NO_UNITS else row.units,
    )


class _Issuer:
    """A connection to the first service that takes this issuer, for `with`. Raises BitfusionError."""

    def __init__(self, client: NetworkClient) -> None:
        _, self._connection, _ = connect_to_first(services_of(client), _tell)
        self.place = self._connection.place

    def __enter__(self) -> _Issuer:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, message: Message, kind: type[M]) -> M:
        """The answer, which is of this kind."""
        self._connection.send(message)
        answer = self._connection.receive()
        if isinstance(answer, Refused):
            raise refused(self.place, answer)
        if not isinstance(answer, kind):
            raise nonsense(self.place, f"it answered with {answer.TYPE}")
        return answer


def _tell(line: str, level: str) -> None:
    print(f"[{level}] {line}", file=sys.stderr)
