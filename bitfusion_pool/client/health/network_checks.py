"""What `bitfusion health` finds out about a service on the network, step by step up to what fails."""

from __future__ import annotations

import time

from bitfusion_client.command.client_reports import OVERDUE_WORDS
from bitfusion_client.command.health_report import Report
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_client.version import VERSION
from bitfusion_pool.client.connections.connection import greet, software_of
from bitfusion_pool.client.connections.network_connection import NetworkConnection, connect_tcp, resolve
from bitfusion_pool.client.connections.network_service import contact_problem
from bitfusion_pool.messages.from_service import DIRECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pool.client.connections.network_service import NetworkService
    from bitfusion_pool.messages.from_service import Welcome

SOON_S = 30 * 86400  # a certificate or token that ends within that time should be renewed
OVERDUE = 0.75  # of a token's life: a cluster renews those of its namespaces when two thirds are over
_STEPS = ("server name", "server port", "certificate", "token", "messages", "software", "route")


def network_report(service: NetworkService, now: float) -> Report:
    """The report about one service. Every check is really made, on connections of its own.

    `now` is in seconds since the epoch.
    """
    report = Report(f"Health report for server: {service.place}")
    report.group("System Resources")
    checks = _Checks(service, now)
    for position, (step, check) in enumerate(zip(_STEPS, checks.in_order(), strict=True)):
        try:
            tag, found = check()
        except BitfusionError as error:
            report.add("FATAL", f"Check pool {step}: {contact_problem(error)}")
            for skipped in _STEPS[position + 1 :]:
                report.add("SKIPPED", f"Check pool {skipped}: the check before failed")
            break
        report.add(tag, f"Check pool {step}: {found}")
    checks.close()
    return report


class _Checks:
    """The checks, which share a connection from the handshake on."""

    def __init__(self, service: NetworkService, now: float) -> None:
        self._service = service
        self._now = now
        self._connection: NetworkConnection | None = None
        self._messages = self._software = self._route = ""

    def in_order(self) -> tuple[Callable[[], tuple[str, str]], ...]:
        """One for each of the steps; each returns a tag and what was found."""
        told = (
            lambda: ("PASS", self._messages),
            lambda: ("PASS", self._software),
            lambda: ("PASS", self._route),
        )
        return self._name, self._port, self._certificate, self._token, *told

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()

    def _until(self) -> float:
        return time.monotonic() + self._service.timeout_s

    def _name(self) -> tuple[str, str]:
        address = self._service.address
        found = {str(target[0]) for _, target in resolve(address, self._until())}
        return "PASS", f"{address.host} is {', '.join(sorted(found))}"

    def _port(self) -> tuple[str, str]:
        begun = time.monotonic()
        connect_tcp(self._service.address, self._until())[0].close()
        return "PASS", f"{self._service.address.port} answered in {_milliseconds(begun)} ms"

    def _certificate(self) -> tuple[str, str]:
        service = self._service
        self._connection = NetworkConnection(
            service.address, service.context, self._until(), service.timeout_s
        )
        version, ends_at = self._connection.tls_version, self._connection.certificate_ends_at()
        return _ends("its certificate", ends_at, self._now, f"for {service.address.host}, {version}")

    def _token(self) -> tuple[str, str]:
        assert self._connection is not None
        begun = time.monotonic()
        welcome = greet(self._connection, self._service.token)
        self._messages = (
            f"{one_line(welcome.pool)} answered in {_milliseconds(begun)} ms, version {welcome.protocol}"
        )
        self._software = software_of(welcome)
        self._route = _route_of(welcome)
        tag, found = _ends("it", welcome.token_expires_at, self._now, "accepted")
        created_at = welcome.token_created_at
        life_s = welcome.token_expires_at - created_at
        if tag == "MARGINAL" and created_at and self._now >= created_at + OVERDUE * life_s:
            found += OVERDUE_WORDS
        return tag, found


def _route_of(welcome: Welcome) -> str:
    if not welcome.route:
        return f"not told, so a version before {VERSION}"
    if welcome.route == DIRECT:
        way, free_s = "direct", welcome.closed_s
    else:
        way, free_s = "through a proxy or load balancer", welcome.silent_s
    return f"{way}; GPUs of a client that was killed are free after {free_s:g} s"


def _ends(what: str, at: float, now: float, found: str) -> tuple[str, str]:
    if not at:
        return "PASS", found
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    soon = at < now + SOON_S
    return "MARGINAL" if soon else "PASS", f"{found}, {what} ends on {day}{', renew it' if soon else ''}"


def _milliseconds(begun: float) -> float:
    return round((time.monotonic() - begun) * 1000, 1)
