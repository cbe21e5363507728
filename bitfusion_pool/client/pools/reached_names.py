"""What the servers of a pool on the network are called: by the name and port at which the client reaches it.

A pool describes its servers as its own machine sees them, where 127.0.0.1 is good enough. On another machine
that would name the reader's own. So each such address becomes the one that servers.conf has, in whatever the
service says, and is turned back in what the client asks for. Pure.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.messages.from_client import Acquire
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Waiting, Welcome

if TYPE_CHECKING:
    from typing import Any, TypeVar

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.access.addresses import Address
    from bitfusion_pool.inventory.placement import Share
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.messages.message import Message

    T = TypeVar("T")

_FILTER = "server.addr"


def is_loopback(host: str) -> bool:
    """Whether each machine means itself by this host."""
    return host.startswith("127.") or host.strip("[]") in ("localhost", "::1")


class ReachedNames:
    """For one service. Nothing is renamed for a client that reaches it on its own machine.

    Several servers get several ports, counted from the service's own.
    """

    def __init__(self, reached: Address) -> None:
        self._host, _, port = str(reached).rpartition(":")
        self._port = int(port)
        self._shown: dict[str, str] = {}  # key by key
        self._inner: dict[str, str] = {}
        self._renames = not is_loopback(reached.host)

    def from_service(self, message: Message) -> Message:
        """What the service has said, with the names for this client."""
        if not self._renames:
            return message
        if isinstance(message, (Welcome, PoolSnapshot)):
            for server in message.servers:
                self._learn(server)
            message = _replaced(message, servers=tuple(map(self._server, message.servers)))
        if isinstance(message, Granted):
            self._learn(message.server)
            return _replaced(message, server=self._server(message.server), entry=self._entry(message.entry))
        if isinstance(message, PoolSnapshot):
            return _replaced(
                message,
                entries=tuple(map(self._entry, message.entries)),
                free=tuple(map(self._share, message.free)),
                use=tuple((self._key(server), number, use) for server, number, use in message.use),
            )
        if isinstance(message, Waiting):
            return _replaced(message, text=self._text(message.text))
        if isinstance(message, Refused):
            return _replaced(message, message=self._text(message.message))
        return message

    def to_service(self, message: Message) -> Message:
        """What the client says, in the service's own names."""
        if isinstance(message, Acquire):
            return _replaced(message, request=self._request(message.request, self._inner))
        return message

    def _learn(self, server: Server) -> None:
        if server.key in self._shown or not is_loopback(server.address):
            return
        port = self._port
        while f"{self._host}:{port}" in self._inner:
            port += 1
        self._shown[server.key] = f"{self._host}:{port}"
        self._inner[f"{self._host}:{port}"] = server.key

    def _key(self, key: str) -> str:
        return self._shown.get(key, key)

    def _server(self, server: Server) -> Server:
        shown = self._shown.get(server.key)
        if shown is None:
            return server
        host, _, port = shown.rpartition(":")
        name = host if server.has_default_name else server.name
        return _replaced(server, name=name, address=host, port=int(port))

    def _share(self, share: Share) -> Share:
        return _replaced(share, server=self._key(share.server))

    def _entry(self, entry: Entry) -> Entry:
        return _replaced(
            entry,
            request=self._request(entry.request, self._shown),
            servers=tuple(map(self._key, entry.servers)),
            shares=tuple(map(self._share, entry.shares)),
        )

    def _request(self, request: GpuRequest, names: dict[str, str]) -> GpuRequest:
        hosts = {key.rpartition(":")[0]: name.rpartition(":")[0] for key, name in reversed(names.items())}
        servers = tuple(names.get(server, hosts.get(server, server)) for server in request.servers)
        filters = tuple(
            (key, hosts.get(value, value) if key == _FILTER else value) for key, value in request.filters
        )
        if (servers, filters) == (request.servers, request.filters):
            return request
        return _replaced(request, servers=servers, filters=filters)

    def _text(self, text: str) -> str:
        for key, shown in self._shown.items():
            text = text.replace(key, shown)
        return text


def _replaced(value: T, **changes: Any) -> T:
    names: tuple[str, ...] = value.__match_args__  # type: ignore[attr-defined]  # all here are dataclasses
    return type(value)(**{name: changes.get(name, getattr(value, name)) for name in names})
