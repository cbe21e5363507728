"""The first words of a command to a service, over whatever connection: hello, and its welcome."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_client.version import PACKAGE, VERSION
from bitfusion_pool.client.connections.service_errors import nonsense, refused
from bitfusion_pool.client.log_output import VERSION as CLIENT_VERSION
from bitfusion_pool.messages.from_client import Hello
from bitfusion_pool.messages.from_service import Refused, Welcome
from bitfusion_pool.messages.message import PROTOCOL

if TYPE_CHECKING:
    from bitfusion_pool.client.connections.connection import Connection

_LONGEST_VERSION = 40  # characters


def greet(connection: Connection, token: str = "") -> Welcome:
    """What the service says of itself.

    Args:
        connection: A new one.
        token: Who this is; a unix socket tells it without.

    Raises:
        ServiceAway: It says nothing.
        PoolUnreadable: It does not take this client, or is none.
        TokenExpired: It says so.
    """
    connection.send(Hello(PROTOCOL, f"bitfusion {CLIENT_VERSION}", token, connection.segment))
    answer = connection.receive()
    if isinstance(answer, Refused):
        raise refused(connection.place, answer)
    if not isinstance(answer, Welcome):
        raise nonsense(connection.place, f"it answered with {answer.TYPE}")
    if answer.protocol != PROTOCOL:
        raise nonsense(connection.place, f"it speaks version {answer.protocol}, this client {PROTOCOL}")
    return answer


def software_of(welcome: Welcome) -> str:
    """Which version of the package the service runs, for people; that of this command where it is another."""
    if not welcome.software:
        return f"not told, so a version before {VERSION}; this command is of {VERSION}"
    shown = f"{PACKAGE} {one_line(welcome.software, _LONGEST_VERSION)}"
    return shown if welcome.software == VERSION else f"{shown}; this command is of {VERSION}"
