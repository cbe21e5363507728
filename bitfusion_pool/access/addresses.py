"""Where a service listens: a host and a port, as servers.conf and the commands spell them."""

from __future__ import annotations

from bitfusion_client.fast_imports import dataclass
from bitfusion_client.one_line import shown_value

DEFAULT_PORT = 56001  # of the real servers' REST interface, and of our service
ALLOWED = "must be HOST:PORT with a DNS name, an IPv4 address or [IPv6 address]"
LONGEST_NAME = 253  # RFC 1035
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@dataclass(frozen=True, slots=True)
class Address:
    """A host, without brackets, and a port. `str()` is how servers.conf has it."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """``10.0.0.1:56001``, ``pool.example.org``, ``[2001:db8::1]:56001``; without a port it is 56001.

    Raises:
        ValueError: It is none; the error shows the text and says what is allowed.
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else ""
        if not bracket or (rest and not port) or not is_ipv6(host):
            raise _wrong(text)
    else:
        host, colon, port = text.partition(":")
        if (colon and not port) or "/" in port or ":" in port or not is_host_name(host):
            raise _wrong(text)
    if not port:
        return Address(host)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f'wrong port in "{shown_value(text)}": must be 1 to 65535')
    return Address(host, int(port))


def is_host_name(text: str) -> bool:
    """Whether this is a DNS name or an IPv4 address."""
    if len(text) > LONGEST_NAME:
        return False
    labels = text.split(".")
    return all(
        0 < len(label) <= 63 and _LETTERS.issuperset(label) and label[0] != "-" and label[-1] != "-"
        for label in labels
    ) and (not labels[-1].isdigit() or _is_ipv4(labels))


def _is_ipv4(labels: list[str]) -> bool:
    return len(labels) == 4 and all(
        label.isdigit() and len(label) <= 3 and int(label) <= 255 for label in labels
    )


def is_ipv6(text: str) -> bool:
    """Whether this is an IPv6 address, without brackets and without a zone."""
    import socket  # only where somebody has one

    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def _wrong(text: str) -> ValueError:
    return ValueError(f'wrong address "{shown_value(text)}": {ALLOWED}')
