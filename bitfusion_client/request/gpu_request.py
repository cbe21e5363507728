"""`GpuRequest`: how many GPUs, what share or memory of each, from which servers, waiting how long."""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.decimals import plain_number, shift_point
from bitfusion_client.request.durations import format_duration_short
from bitfusion_client.request.request_rules import (
    ALLOWED_FILTER,
    ALLOWED_GPUS,
    ALLOWED_MEMORY,
    ALLOWED_ONE_SIZE,
    ALLOWED_PARTIAL,
    ALLOWED_SERVER,
    ALLOWED_TIMEOUT,
    LONGEST_TIMEOUT,
    MOST_GPUS,
    MOST_MEMORY_MIB,
    NO_OPTION,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_JSON_FIELDS = ("gpus", "partial", "memory_mib", "filters", "servers", "timeout")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A request for GPUs of one server. Immutable; the constructor raises InvalidRequest.

    With neither `partial` nor `memory_mib` whole GPUs are meant; both together are refused.

    Attributes:
        gpus: How many.
        partial: The share of each GPU's memory, above 0 and at most 1.
        memory_mib: The memory of each GPU in MiB.
        filters: Pairs of key and value that servers or devices must have; order and repeats are kept. Like
            those of servers they become words of a command, and none looks like an option.
        servers: Addresses as host:port; empty for all servers that the client knows.
        timeout: How long to wait at most, in seconds; None for the client's default.
    """

    gpus: int = 1
    partial: float | None = None
    memory_mib: int | None = None
    filters: tuple[tuple[str, str], ...] = ()
    servers: tuple[str, ...] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not _is_whole(self.gpus) or not 1 <= self.gpus <= MOST_GPUS:
            raise InvalidRequest("gpus", self.gpus, ALLOWED_GPUS)
        if self.partial is not None:
            # `not 0 < x` instead of `x <= 0` refuses nan too.
            if not _is_number(self.partial) or not 0 < self.partial <= 1:
                raise InvalidRequest("partial", self.partial, ALLOWED_PARTIAL)
            put(self, "partial", float(self.partial))
        if self.memory_mib is not None:
            if not _is_whole(self.memory_mib) or not 1 <= self.memory_mib <= MOST_MEMORY_MIB:
                raise InvalidRequest("memory_mib", self.memory_mib, ALLOWED_MEMORY)
            if self.partial is not None:
                raise InvalidRequest("memory_mib", self.memory_mib, ALLOWED_ONE_SIZE)
        put(self, "filters", tuple(map(_checked_filter, self.filters)))
        put(self, "servers", tuple(map(_checked_server, self.servers)))
        if self.timeout is not None:
            if not _is_number(self.timeout) or not 1e-9 <= self.timeout <= LONGEST_TIMEOUT:
                raise InvalidRequest("timeout", self.timeout, ALLOWED_TIMEOUT)
            # The client counts nanoseconds. Rounded here, every spelling reads back as the same number.
            put(self, "timeout", round(self.timeout * 1e9) / 1e9)

    def same_as(self, other: GpuRequest) -> bool:
        """Whether both ask for the same: a share of 1 is a whole GPU."""
        return self._whole() == other._whole()

    def _whole(self) -> GpuRequest:
        if self.partial != 1:
            return self
        return GpuRequest(self.gpus, None, self.memory_mib, self.filters, self.servers, self.timeout)

    def describe(self) -> str:
        """The text a person reads: ``2 GPUs × 50 %, model=V100, on 10.0.0.5:56001, waiting at most 30m``."""
        parts = ["1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"]
        if self.partial is not None:
            parts[0] += f" × {shift_point(plain_number(self.partial), 2)} %"
        if self.memory_mib is not None:
            parts[0] += f" × {self.memory_mib} MiB"
        parts += [f"{key}={value}" for key, value in self.filters]
        if self.servers:
            parts.append("on " + " or ".join(self.servers))
        if self.timeout is not None:
            parts.append("waiting at most " + format_duration_short(self.timeout))
        return ", ".join(parts)

    def to_json(self) -> dict[str, object]:
        """JSON values of the request; fields with their default are left out, except `gpus`."""
        answer: dict[str, object] = {"gpus": self.gpus}
        if self.partial is not None:
            answer["partial"] = self.partial
        if self.memory_mib is not None:
            answer["memory_mib"] = self.memory_mib
        if self.filters:
            answer["filters"] = [f"{key}={value}" for key, value in self.filters]
        if self.servers:
            answer["servers"] = list(self.servers)
        if self.timeout is not None:
            answer["timeout"] = self.timeout
        return answer

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> GpuRequest:
        """The request of JSON values. Filters may also be [key, value] pairs. Raises InvalidRequest."""
        for name in data:
            if name not in _JSON_FIELDS:
                allowed = "is not a field; the fields are " + ", ".join(_JSON_FIELDS)
                raise InvalidRequest(str(name), data[name], allowed)
        filters = data.get("filters")
        servers = data.get("servers")
        if filters is not None and not isinstance(filters, (list, tuple)):
            raise InvalidRequest("filters", filters, "must be a list of key=value")
        if servers is not None and not isinstance(servers, (list, tuple)):
            raise InvalidRequest("servers", servers, "must be a list of host:port")
        values: dict[str, object] = {name: data[name] for name in _JSON_FIELDS if data.get(name) is not None}
        values["filters"] = tuple(_filter_from_json(item) for item in filters or ())
        values["servers"] = tuple(servers or ())
        return cls(**values)  # type: ignore[arg-type]  # the types are what __post_init__ checks

    def memory_per_gpu(self, total_mib: int) -> int:
        """MiB that this request takes of a GPU with `total_mib`; shares are rounded down.

        The client's logs (16160 × 0.5 = 8080, 32510 × 0.8 = 26008) do not show how it rounds.
        """
        if self.memory_mib is not None:
            return self.memory_mib
        if self.partial is None:
            return total_mib
        # Rounds the binary error away first: 100 × 0.29 is 29, not 28.999….
        return int(round(total_mib * self.partial, 6))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _has_blank_or_control(text: str) -> bool:
    return any(letter.isspace() or not letter.isprintable() for letter in text)


def _checked_filter(pair: object) -> tuple[str, str]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidRequest("filters", pair, ALLOWED_FILTER)
    key, value = pair
    if not isinstance(key, str) or not isinstance(value, str):
        raise InvalidRequest("filters", pair, ALLOWED_FILTER)
    shown = f"{key}={value}"
    if not key or "=" in key or _has_blank_or_control(key):
        raise InvalidRequest("filters", shown, ALLOWED_FILTER)
    if key[0] == "-":
        raise InvalidRequest("filters", shown, NO_OPTION)
    if not value or not all(letter == " " or letter.isprintable() for letter in value):
        raise InvalidRequest("filters", shown, ALLOWED_FILTER)
    return key, value


def _filter_from_json(item: object) -> object:
    if not isinstance(item, str):
        return tuple(item) if isinstance(item, list) else item
    key, equals, value = item.partition("=")
    if not equals:
        raise InvalidRequest("filters", item, ALLOWED_FILTER)
    return key, value


def _checked_server(server: object) -> str:
    if not isinstance(server, str) or not server or _has_blank_or_control(server):
        raise InvalidRequest("servers", server, ALLOWED_SERVER)
    if any(letter in server for letter in ";,"):
        raise InvalidRequest("servers", server, ALLOWED_SERVER)
    if server[0] == "-":
        raise InvalidRequest("servers", server, NO_OPTION)
    host, colon, port = server.rpartition(":")
    if colon and (not host or not port.isascii() or not port.isdigit() or not 1 <= int(port[:9]) <= 65535):
        raise InvalidRequest("servers", server, ALLOWED_SERVER)
    return server
