"""The services that the files of a network client name: connecting to one, and to the first that answers."""

from __future__ import annotations

import time

from bitfusion_client.errors import BitfusionError, PoolUnreadable, ServersUnreachable, TokenExpired
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.access.network_files import read_authority, read_token, wrong_file
from bitfusion_pool.access.tls import client_context
from bitfusion_pool.client.connections.connection import greet
from bitfusion_pool.client.connections.network_connection import NetworkConnection
from bitfusion_pool.client.connections.service_errors import OWN_INSTEAD, ServiceAway

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from bitfusion_pool.access.addresses import Address
    from bitfusion_pool.access.network_files import NetworkClient
    from bitfusion_pool.messages.from_service import Welcome

NONE_RESPONDED = "none of the servers responded correctly to client id claim requests."
_ASK = "ask your administrator for the ca.crt of this pool"


class NetworkService:
    """One service: where it is, by what it is known, and the token for it.

    Whoever keeps a lease comes back for days, so each connection but the first reads token and authority
    anew: in a pod, kubelet replaces the files whenever the Secret changes.
    """

    def __init__(self, address: Address, context: SSLContext, token: str, client: NetworkClient) -> None:
        self.address = address
        self.context = context
        self.token = token
        self.timeout_s = client.timeout_s
        self._client = client
        self._is_new = True

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return str(self.address)

    def connect(self) -> tuple[NetworkConnection, Welcome]:
        """A new connection that has been welcomed, at the latest after the time for one answer.

        Raises:
            ServiceAway: Nobody answers there, or another than the one wanted.
            PoolUnreadable: It does not take this client, or is no service.
            TokenExpired: It says so.
        """
        if not self._is_new:
            self._read_again()
        self._is_new = False
        until = time.monotonic() + self.timeout_s
        connection = NetworkConnection(self.address, self.context, until, self.timeout_s)
        try:
            connection.answer_s = max(0.1, until - time.monotonic())
            welcome = greet(connection, self.token)
            connection.answer_s = self.timeout_s
            return connection, welcome
        except BaseException:
            connection.close()
            raise

    def _read_again(self) -> None:
        try:
            token = read_token(self._client).reveal()
            self.context = client_context(read_authority(self._client))
            self.token = token
        except (BitfusionError, ValueError):
            pass  # what was good once is better than nothing; the service says what it thinks of it


def services_of(client: NetworkClient, only: str = "") -> list[NetworkService]:
    """The services in the order in which they are tried.

    Args:
        client: From `read_network_client`.
        only: HOST:PORT, if it must be this one.

    Raises:
        PoolUnreadable: ca.crt cannot be used, or `only` is not among the servers: no other gets the token.
    """
    addresses = [address for server in client.servers for address in server.addresses]
    if only:
        addresses = [address for address in addresses if str(address) == only]
        if not addresses:
            raise PoolUnreadable(
                "",
                f"pool configuration {client.servers_file} does not name the server {only}",
                "add it, or take a server that it names",
            )
    try:
        context = client_context(read_authority(client))
    except ValueError as error:
        raise wrong_file(client.authority, str(error), _ASK) from None
    token = client.token.reveal()
    return [NetworkService(address, context, token, client) for address in addresses]


def connect_to_first(
    services: Sequence[NetworkService], log: Callable[[str, str], None]
) -> tuple[NetworkService, NetworkConnection, Welcome]:
    """The first service that takes this client; those that do not cost no more than their time limit.

    Args:
        services: From `services_of`.
        log: Called with a line and its level for each that is passed over, in the real client's words.

    Raises:
        TokenExpired: None of them took this client, and one said so.
        ServersUnreachable: None of them took this client.
    """
    problems: list[BitfusionError] = []
    for service in services:
        try:
            return service, *service.connect()
        except (PoolUnreadable, TokenExpired) as error:
            problems.append(error)
            url = f"Get https://{service.place}/claim_id: {contact_problem(error)}"
            log(f"Error contacting server {service.place} to verify client id: {url}", "WARN")
    raise _none_responded(problems)


def contact_problem(error: BitfusionError) -> str:
    """Why a service could not be used, in few words; those of the real client where it has some."""
    if isinstance(error, ServiceAway):
        return "context deadline exceeded" if error.reason.startswith("no answer") else error.reason
    return error.answered


def _none_responded(problems: Sequence[BitfusionError]) -> BitfusionError:
    expired = next((error for error in problems if isinstance(error, TokenExpired)), None)
    if expired is not None:
        return expired
    refused = next((error for error in problems if not isinstance(error, ServiceAway)), None)
    if refused is not None:
        cure = refused.next_step
    else:
        cure = (
            "check the network and servers.conf, ask the pool's administrator whether it runs; "
            f"or {OWN_INSTEAD}"
        )
    return ServersUnreachable("", NONE_RESPONDED, cure)
