"""`bitfusion-pool token`: create, list and revoke the tokens of clients on other machines."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any

from bitfusion_client.errors import ClientFailed, WrongSetting
from bitfusion_client.text_table import box
from bitfusion_pool.access.addresses import parse_address
from bitfusion_pool.access.client_files import (
    certificate_for_clients,
    prepare_folder,
    read_authority,
    write_client_files,
)
from bitfusion_pool.access.issued_tokens import issued_by
from bitfusion_pool.access.token_file import change_tokens, read_tokens
from bitfusion_pool.access.token_rules import (
    DEFAULT_ISSUED_LIFETIME_S,
    DEFAULT_ISSUED_NAMES,
    DEFAULT_LIFETIME_S,
    IssuerBounds,
    TokenLimits,
    parse_expiry,
    parse_issued_names,
    parse_lifetime,
    parse_name,
    utc_time,
)
from bitfusion_pool.admin.certificate_command import hosts_without_certificate
from bitfusion_pool.admin.issuer_command import LIMITS, add_issuer_files, read_limits, run_for_issuer
from bitfusion_pool.admin.service_folder import service_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.access.addresses import Address
    from bitfusion_pool.access.tokens import Tokens

MAX_SERVERS = 16


def add_token_parser(commands: Any) -> None:
    """Add `token` to the subcommands of `bitfusion-pool`."""
    token = commands.add_parser("token", help="tokens for clients on other machines")
    actions = token.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="issue a token; it is shown this once")
    create.add_argument(
        "name", metavar="NAME", help="whose token it is; others see this name beside the leases"
    )
    create.add_argument("--expires", metavar="WHEN", help="12h, 90d or 2027-03-31 (default: 365d)")
    create.add_argument("--gpus", metavar="N", help="GPUs of all its leases and waiting requests together")
    create.add_argument("--share", metavar="F", help="the most of each GPU, such as 0.5")
    create.add_argument("--leases", metavar="N", help="leases and waiting requests together")
    create.add_argument("--waiting", metavar="N", help="waiting requests")
    create.add_argument(
        "--units", metavar="N", help="hundredths of a GPU of all its leases and waiting requests together"
    )
    create.add_argument("--files", metavar="FOLDER", help="write servers.conf, client.yaml and ca.crt there")
    create.add_argument(
        "--server", metavar="HOST:PORT", action="append", help="where the service listens; repeatable"
    )
    create.add_argument("--ca", metavar="FILE", help="by which clients know the service (default: ours)")
    create.add_argument("--force", action="store_true", help="replace files that are there")
    create.add_argument("--replace", action="store_true", help="revoke the token of this name that is there")
    create.add_argument(
        "--issuer",
        action="store_true",
        help="one that issues tokens for names below its own, NAME/…, and may do nothing else",
    )
    bounds = create.add_argument_group("what an issuer may give to each of its names")
    for limit, text in (("gpus", "GPUs"), ("leases", "leases"), ("waiting", "waiting requests")):
        bounds.add_argument(f"--may-issue-{limit}", metavar="N", help=f"{text}, at most")
    bounds.add_argument("--may-issue-share", metavar="F", help="the most of each GPU, such as 0.5")
    bounds.add_argument("--may-issue-units", metavar="N", help="hundredths of a GPU, at most")
    bounds.add_argument("--may-issue-for", metavar="TIME", help="a token's longest life (default: 30d)")
    bounds.add_argument(
        "--may-issue-names", metavar="N", help=f"names with a token (default: {DEFAULT_ISSUED_NAMES})"
    )
    add_issuer_files(create)
    create.add_argument(
        "--json", action="store_true", help="with --issuer-files: the new files, for programs"
    )
    renew = actions.add_parser("renew", help="issue another token of a name; the one before stays good")
    renew.add_argument("name", metavar="NAME", help="below the issuer's")
    renew.add_argument("--keep", metavar="ID", help="the token that is in use: it is not ended to make room")
    renew.add_argument(
        "--expires", metavar="TIME", help="12h or 30d (default: as long as the issuer may say)"
    )
    for limit in LIMITS:
        renew.add_argument(f"--{limit}", metavar="N", help="as for `create`")
    renew.add_argument(
        "--lower", action="store_true", help="lower limits to the issuer's own, which are refused otherwise"
    )
    renew.add_argument("--files", metavar="FOLDER", help="write servers.conf, client.yaml and ca.crt there")
    renew.add_argument("--force", action="store_true", help="replace files that are there")
    renew.add_argument("--json", action="store_true", help="the new files, for programs")
    add_issuer_files(renew, required=True)
    show = actions.add_parser("list", help="show all tokens, without their secrets")
    show.add_argument("--json", action="store_true", help="the same for programs")
    add_issuer_files(show)
    revoke = actions.add_parser("revoke", help="refuse a token from now on")
    revoke.add_argument("token", metavar="NAME|ID", help="as `token list` shows it")
    revoke.add_argument("--issued", action="store_true", help="and all that this issuer has issued")
    add_issuer_files(revoke)


def run_token(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Do what the command line says; returns what to print. Raises BitfusionError."""
    now = time.time()
    if options.issuer_files:
        return run_for_issuer(options, now)
    if options.action == "create":
        return _create(options, environ, now)
    if options.action == "revoke":
        return _revoke(options.token, service_folder(environ), now, options.issued)
    tokens = read_tokens(service_folder(environ))
    return json.dumps(_as_json(tokens, now), indent=2) + "\n" if options.json else _as_table(tokens, now)


def _create(options: argparse.Namespace, environ: Mapping[str, str], now: float) -> str:
    name = parse_name(options.name)
    expires_at = parse_expiry(options.expires, now) if options.expires else now + DEFAULT_LIFETIME_S
    limits = read_limits(options)
    bounds = _read_bounds(options, limits)
    if options.json:
        raise ClientFailed("", "--json goes with --issuer-files")
    servers = [_server(text) for text in options.server or ()]
    if len(servers) > MAX_SERVERS:
        raise ClientFailed("", f"at most {MAX_SERVERS} times --server")
    if bool(options.files) != bool(servers) or (options.ca and not options.files):
        raise ClientFailed("", "--files and --server go together, and --ca with them")
    folder = service_folder(environ)
    authority = _authority(options.ca, folder, servers) if options.files else ""
    files = prepare_folder(options.files, options.force) if options.files else ""
    shown = ""

    def change(tokens: Tokens) -> Tokens:
        nonlocal shown
        old = tokens.good(name, now)
        if old and not options.replace:
            until = utc_time(old.expires_at)
            raise ClientFailed(
                "",
                f"{name} has a token, {old.token_id}, until {until}; --replace revokes it and issues another",
            )
        try:
            changed, shown = (tokens.without(old, now) if old else tokens).with_new(
                name, expires_at, limits, now, bounds
            )
        except ValueError as error:
            raise ClientFailed("", str(error)) from None
        if files:
            write_client_files(files, servers, shown, authority)
        return changed

    change_tokens(folder, change)
    told = f"token for {name}, until {utc_time(expires_at)}: {(bounds or limits).describe()}\n"
    if not files:
        return f"{told}{shown}\nIt is shown this once; the pool keeps a hash of it.\n"
    return (
        f"{told}wrote servers.conf, client.yaml (it holds the token) and ca.crt to {files}\n"
        "On the client's machine they go to ~/.bitfusion of one user, or to /etc/bitfusion for all.\n"
        "In Kubernetes a Secret of them, mounted at /etc/bitfusion:\n"
        f"  kubectl create secret generic bitfusion-client --namespace=NAMESPACE --from-file={quote(files)}\n"
    )


def _read_bounds(options: argparse.Namespace, limits: TokenLimits) -> IssuerBounds | None:
    """What an issuer's token allows, from its options."""
    named = (*LIMITS, "for", "names")
    given = [name for name in named if getattr(options, f"may_issue_{name}") is not None]
    if not options.issuer:
        if given:
            raise ClientFailed("", f"--may-issue-{given[0]} goes with --issuer")
        return None
    if limits != TokenLimits():
        raise ClientFailed("", "an issuer holds no GPUs; what its names get is said by --may-issue-…")
    lifetime, names = options.may_issue_for, options.may_issue_names
    return IssuerBounds(
        read_limits(options, "may-issue-"),
        DEFAULT_ISSUED_NAMES if names is None else parse_issued_names(names),
        DEFAULT_ISSUED_LIFETIME_S if lifetime is None else parse_lifetime("--may-issue-for", lifetime),
    )


def _authority(named: str | None, folder: str, servers: Sequence[Address]) -> str:
    if named:
        return read_authority(named)
    path = certificate_for_clients(folder)
    if not os.path.lexists(path):
        raise ClientFailed(
            "",
            "clients need to know the service: name its certificate with --ca, or make one with "
            "`bitfusion-pool certificate create --host HOST`",
        )
    other = hosts_without_certificate(folder, [server.host for server in servers])
    if other:
        raise ClientFailed(
            "",
            f"the certificate is not for {other[0]}, and clients would refuse it; make one for every host: "
            "`bitfusion-pool certificate create --host HOST --host …`, or name another authority with --ca",
        )
    return read_authority(path)


def _revoke(word: str, folder: str, now: float, issued: bool) -> str:
    told = ""

    def change(tokens: Tokens) -> Tokens:
        nonlocal told
        found = tokens.find(word, now)
        if found is None:
            raise ClientFailed("", f"there is no token {word}; `bitfusion-pool token list` shows them")
        ended = [found] if found.is_good(now) else []
        if word == found.name:  # a name below an issuer's has several during a renewal
            ended = [one for one in tokens.all if one.name == word and one.is_good(now)]
        below = issued_by(tokens, found.name, now) if found.may_issue else []
        if not ended and not (issued and below):
            raise ClientFailed("", f"token {found.token_id} of {found.name} is revoked already")
        for one in [*ended, *(below if issued else ())]:
            told += f"revoked token {one.token_id} of {one.name}\n"
            tokens = tokens.without(one, now)
        if below and not issued:
            told += (
                f"{len(below)} tokens that it has issued stay good until they end; "
                "with --issued they are revoked, too\n"
            )
        return tokens

    change_tokens(folder, change)
    return told


def _server(text: str) -> Any:
    try:
        return parse_address(text)
    except ValueError as error:
        raise WrongSetting("--server", text, str(error).partition(": ")[2]) from None


def _as_table(tokens: Tokens, now: float) -> str:
    if not tokens.all:
        return "There are no tokens; `bitfusion-pool token create NAME` issues one.\n"
    rows = [
        (
            one.name,
            one.token_id,
            one.state(now),
            utc_time(one.ends_at),
            (one.may_issue or one.limits).describe(),
        )
        for one in tokens.all
    ]
    return box(("Name", "Token", "State", "until", "Limits"), rows)


def _as_json(tokens: Tokens, now: float) -> list[dict[str, Any]]:
    """Times are in seconds since the epoch."""
    return [
        {
            "name": one.name,
            "id": one.token_id,
            "state": one.state(now),
            "created": one.created_at,
            "expires": one.expires_at,
            "revoked": one.revoked_at,
            "limits": asdict(one.limits),
            **({"may_issue": asdict(one.may_issue)} if one.may_issue else {}),
            **({"issuer": one.issuer} if one.issuer else {}),
        }
        for one in tokens.all
    ]
