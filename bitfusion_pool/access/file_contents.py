"""What stands in a servers.conf and a client.yaml. Pure.

Imported only where there are such files.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import shown_value
from bitfusion_client.request.durations import parse_duration
from bitfusion_pool.access.addresses import Address, parse_address
from bitfusion_pool.access.plain_yaml import Node, WrongYaml, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SERVERS = 64
MAX_ADDRESSES = 16  # of one server
DEFAULT_TIMEOUT_S = 3.0  # `timeout: 3s` of a real client.yaml: for one answer
TIMEOUTS_S = (0.1, 60.0)
LONGEST_TOKEN = 4096
DEFAULT_AUTHORITY = "/etc/bitfusion/tls/ca.crt"  # as the real client.yaml names it

_REACHABLE = "reachable:"


class Secret:
    """A text that no log and no traceback shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text; only for what sends or compares it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclass(frozen=True, slots=True)
class NetworkServer:
    """One service. All addresses lead to it; they are tried in this order."""

    addresses: tuple[Address, ...]


def parse_servers(text: str) -> tuple[NetworkServer, ...]:
    """The servers in the text of a servers.conf.

    Client 3.5 wants ``reachable:ADDRESS`` in every entry, as its documents print it without a blank, which is
    no YAML; both spellings are read, and this address is tried first.

    Raises:
        ValueError: The text is wrong; the error names the line.
    """
    lines = text.split("\n")
    for position, line in enumerate(lines):
        begin, found, rest = line.partition(_REACHABLE)
        if found and not begin.strip(" -") and rest[:1] not in ("", " ", "\r"):
            lines[position] = f"{begin}{_REACHABLE} {rest}"
    entries = _mapping(parse_yaml("\n".join(lines)), "servers:").get("servers")
    if entries is None or not isinstance(entries.value, list) or not entries.value:
        raise WrongYaml(
            entries.line if entries else 1,
            "there must be a list below 'servers:', with '- addresses:' for each server",
        )
    if len(entries.value) > MAX_SERVERS:
        raise WrongYaml(entries.line, f"there are more than {MAX_SERVERS} servers")
    return tuple(_server(entry) for entry in entries.value)


def _server(entry: Node) -> NetworkServer:
    fields = _mapping(entry, "- addresses:")
    texts = []
    if reachable := fields.get("reachable"):
        texts.append(reachable)
    if addresses := fields.get("addresses"):
        if not isinstance(addresses.value, list):
            raise WrongYaml(addresses.line, "addresses must be a list, a line '- HOST:PORT' for each")
        texts += addresses.value
    if not texts:
        raise WrongYaml(entry.line, "this server has no addresses")
    if len(texts) > MAX_ADDRESSES:
        raise WrongYaml(entry.line, f"this server has more than {MAX_ADDRESSES} addresses")
    found: dict[Address, None] = {}
    for node in texts:
        try:
            found[parse_address(_text(node, "an address"))] = None
        except WrongYaml:
            raise
        except ValueError as error:
            raise WrongYaml(node.line, str(error)) from None
    return NetworkServer(tuple(found))


def parse_client(text: str) -> tuple[Secret, str, float]:
    """Token, path of ca.crt and time limit of one answer, in seconds, in the text of a client.yaml.

    All else in it is passed over.

    Raises:
        ValueError: The text is wrong; the error names the line.
    """
    try:
        top = parse_yaml(text)
    except WrongYaml as error:
        raise WrongYaml(error.line, error.why) from None  # the line may hold the token
    fields = _mapping(top, "authconfig:")
    if (ssl := fields.get("ssl")) and _text(ssl, "ssl") not in ("true", "True", "yes", "on"):
        raise WrongYaml(ssl.line, "ssl must be true: the token never goes over an open connection")
    auth = fields.get("authconfig")
    token = _mapping(auth, "token:").get("token") if auth else None
    if token is None or not _text(token, "token"):
        line = token or auth or top
        raise WrongYaml(line.line, "there is no token below 'authconfig:'")
    secret = _text(token, "token")
    if len(secret) > LONGEST_TOKEN or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise WrongYaml(
            token.line, "this is not a token: tokens have ASCII letters, digits and signs, without spaces"
        )
    path = fields.get("cacertpath")
    authority = _text(path, "cacertpath") if path else ""
    seconds = DEFAULT_TIMEOUT_S
    if (timeout := fields.get("timeout")) and _text(timeout, "timeout"):
        seconds = _timeout(timeout)
    return Secret(secret), authority or DEFAULT_AUTHORITY, seconds


def _timeout(node: Node) -> float:
    text = _text(node, "timeout")
    try:
        seconds = parse_duration(text)
    except InvalidRequest:
        seconds = -1.0
    least, most = TIMEOUTS_S
    if not least <= seconds <= most:
        allowed = f"must be a duration from {least:g}s to {most:g}s, such as 3s"
        raise WrongYaml(node.line, f'wrong timeout "{shown_value(text)}": {allowed}')
    return seconds


def _mapping(node: Node, expected: str) -> Mapping[str, Node]:
    if not isinstance(node.value, dict):
        raise WrongYaml(node.line, f"'{expected}' is expected here")
    return node.value


def _text(node: Node, what: str) -> str:
    if not isinstance(node.value, str):
        raise WrongYaml(node.line, f"{what} must be a text on one line")
    return node.value
