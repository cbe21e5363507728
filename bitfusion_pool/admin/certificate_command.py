"""`bitfusion-pool certificate`: the certificate by which clients on other machines know the service."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from bitfusion_client.errors import ClientFailed, WrongSetting
from bitfusion_pool.access.addresses import is_host_name, is_ipv6
from bitfusion_pool.admin.service_folder import service_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from bitfusion_pool.access.certificate_files import Certificates

MAX_HOSTS = 64


def add_certificate_parser(commands: Any) -> None:
    """Add `certificate` to the subcommands of `bitfusion-pool`."""
    certificate = commands.add_parser("certificate", help="the certificate for clients on other machines")
    actions = certificate.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make one, and an authority that signs it")
    create.add_argument(
        "--host", action="append", required=True, help="DNS name or address of the service; repeatable"
    )
    renew = actions.add_parser("renew", help="renew it for the same hosts, when it is due")
    renew.add_argument("--force", action="store_true", help="even if it is not due")


def hosts_without_certificate(pool: str, hosts: list[str]) -> list[str]:
    """Those of the hosts that the certificate of this pool is not for. Raises PoolUnreadable."""
    _need_cryptography()
    from bitfusion_pool.access.certificate_files import hosts_of_server

    known = {_alike(host) for host in hosts_of_server(pool)}
    return [host for host in hosts if _alike(host) not in known]


def run_certificate(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Do what the command line says; returns what to print. Raises BitfusionError."""
    _need_cryptography()
    from bitfusion_pool.access.certificate_files import create_certificates, renew_certificates

    now = datetime.now(timezone.utc)
    if options.action == "create":
        return _told(create_certificates(service_folder(environ), _hosts(options.host), now))
    renewed = renew_certificates(service_folder(environ), now, options.force)
    return _told(renewed) if renewed else "the certificate is not due yet; --force renews it all the same\n"


def _hosts(texts: list[str]) -> list[str]:
    if len(texts) > MAX_HOSTS:
        raise ClientFailed("", f"at most {MAX_HOSTS} times --host")
    for text in texts:
        if not is_host_name(text) and not is_ipv6(text):
            raise WrongSetting("--host", text, "must be a DNS name or an address, without a port")
    return list(dict.fromkeys(texts))


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401  # late: the other commands go without it
    except ModuleNotFoundError:
        raise ClientFailed("", "this needs the package cryptography: pip install cryptography") from None


def _alike(host: str) -> str:
    """One spelling of every host: 2001:DB8::1 is 2001:db8:0::1."""
    import ipaddress

    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _told(made: Certificates) -> str:
    return (
        f"certificate for {', '.join(made.hosts)}, until {made.ends:%Y-%m-%d}\n"
        f"clients know it by {made.for_clients}, until {made.authority_ends:%Y-%m-%d}; "
        "`bitfusion-pool token create` gives it to them\n"
    )
