"""The first words of each connection: which session it belongs to, and what of it has arrived. Pure."""

from __future__ import annotations

import struct

from bitfusion_client.fast_imports import dataclass
from bitfusion_pods.stream.frames import ProtocolError

MAGIC = b"bfrun\0\0\1"
"""The last byte is the protocol's version."""

_GREETING = struct.Struct("!8s16sQ")
LENGTH = _GREETING.size


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a side says.

    Attributes:
        session: 16 bytes that the client has drawn; the same on each of its connections.
        received: How many bytes of the other side's frames have arrived in this session.
    """

    session: bytes
    received: int

    def encode(self) -> bytes:
        """As bytes."""
        return _GREETING.pack(MAGIC, self.session, self.received)


def decode(data: bytes) -> Greeting:
    """The greeting in LENGTH bytes. Raises ProtocolError."""
    magic, session, received = _GREETING.unpack(data)
    if magic[:-1] != MAGIC[:-1]:
        raise ProtocolError("it does not speak this protocol")
    if magic != MAGIC:
        raise ProtocolError(f"it speaks version {magic[-1]} of this protocol, and this is {MAGIC[-1]}")
    return Greeting(session, received)
