"""Jupyter's messages on the wire: splits, verifies, parses, builds and signs them. Pure, without zmq.

The proxy answers a few requests itself and relays all others, so it parses only what it must.
jupyter_client's `Session` does the same and more, but its import takes 150 ms.
Protocol: https://jupyter-client.readthedocs.io/en/stable/messaging.html#the-wire-protocol
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from typing import Any

DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.4"

Json = dict[str, Any]


class InvalidMessage(ValueError):
    """The frames are not a Jupyter message, or the signature is wrong. Such messages are ignored."""


class Message:
    """One received message.

    Attributes:
        frames: All that arrived, for relaying the message unchanged.
        identities: The frames before the delimiter: to whom a reply goes.
        buffers: The frames after the content, as widgets send them.
    """

    __slots__ = ("buffers", "content", "frames", "header", "identities", "metadata", "parent_header")

    def __init__(self, frames: list[bytes], split_at: int) -> None:
        self.frames = frames
        self.identities = frames[:split_at]
        try:
            self.header: Json = json.loads(frames[split_at + 2])
            self.parent_header: Json = _or_empty(json.loads(frames[split_at + 3]))
            self.metadata: Json = _or_empty(json.loads(frames[split_at + 4]))
            self.content: Json = _or_empty(json.loads(frames[split_at + 5]))
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"a part is not JSON: {error}") from None
        parts = (self.header, self.parent_header, self.metadata, self.content)
        if not all(isinstance(part, dict) for part in parts):
            raise InvalidMessage("a part is not a JSON object")
        if not isinstance(self.header.get("msg_type"), str) or not isinstance(self.header.get("msg_id"), str):
            raise InvalidMessage("the header names no msg_type and msg_id")
        self.buffers = frames[split_at + 6 :]

    @property
    def type(self) -> str:
        """As in the header: `execute_request`, `kernel_info_request` and so on."""
        return str(self.header["msg_type"])

    @property
    def id(self) -> str:
        """The sender's id of this message."""
        return str(self.header["msg_id"])


def _or_empty(part: Any) -> Any:
    """Null means what {} means, as for ipykernel."""
    return {} if part is None else part


class Wire:
    """Signs and verifies the messages of one connection. The proxy makes one.

    Args:
        key: From the connection file; empty if messages are not signed.
        scheme: `hmac-` and the name of a hash, from the connection file.
        username: For the headers of the proxy's own messages.

    Raises:
        ValueError: The scheme is not known. The text is for stderr.
    """

    def __init__(self, key: bytes, scheme: str = "hmac-sha256", username: str = "") -> None:
        if not scheme.startswith("hmac-") or scheme[5:] not in hashlib.algorithms_available:
            raise ValueError(
                f"signature scheme {scheme!r} is not known; allowed: hmac-sha256 and other hashes of hashlib"
            )
        self._key = key
        self._digest = scheme[5:]
        self._username = username or "username"
        self.session = os.urandom(16).hex()
        self._count = 0

    def sign(self, parts: list[bytes]) -> bytes:
        """The hexadecimal signature of the four JSON parts; empty if the connection has no key."""
        if not self._key:
            return b""
        return hmac.digest(self._key, b"".join(parts), self._digest).hex().encode()

    def read(self, frames: list[bytes]) -> Message:
        """Verify and parse one multipart message. Raises InvalidMessage."""
        split_at = delimiter_at(frames)
        signed = frames[split_at + 2 : split_at + 6]
        if not hmac.compare_digest(self.sign(signed), frames[split_at + 1] if self._key else b""):
            raise InvalidMessage("wrong signature")
        return Message(frames, split_at)

    def header(self, msg_type: str, subshell: str | None = None) -> Json:
        """A new header of this session; a request may be for a subshell."""
        self._count += 1
        now = time.time()
        date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        return {
            "msg_id": f"{self.session}_{os.getpid()}_{self._count}",
            "msg_type": msg_type,
            "username": self._username,
            "session": self.session,
            "date": date,
            "version": PROTOCOL_VERSION,
            **({} if subshell is None else {"subshell_id": subshell}),
        }

    def build(
        self,
        msg_type: str,
        content: Json,
        *,
        parent: Json | None = None,
        metadata: Json | None = None,
        identities: list[bytes] | None = None,
        subshell: str | None = None,
    ) -> list[bytes]:
        """The frames of a new message.

        Args:
            msg_type: As in the header.
            content: What the message says.
            parent: The header of the request that it answers.
            metadata: Most messages have none.
            identities: The frames before the delimiter: to whom it goes, or the topic on iopub.
            subshell: For which of the kernel's subshells a request is.
        """
        parts = [
            json.dumps(part, separators=(",", ":")).encode()
            for part in (self.header(msg_type, subshell), parent or {}, metadata or {}, content)
        ]
        return [*(identities or []), DELIMITER, self.sign(parts), *parts]


def is_type(frames: list[bytes], message_type: bytes) -> bool:
    """Whether relayed frames are of a type, without parsing them.

    True is also possible for another type, if a field of its header has the same text; False is always right.
    """
    try:
        header = frames[frames.index(DELIMITER) + 2]
    except (ValueError, IndexError):
        return False
    return b'"' + message_type + b'"' in header


def read_unchecked(frames: list[bytes]) -> Message:
    """Parse a message of the kernel, without verifying it: its sockets lie in the proxy's private folder.

    Raises:
        InvalidMessage: It is damaged. Threads that share a socket of the kernel do that, an interrupt in the
            middle of sending, a forked child.
    """
    return Message(frames, delimiter_at(frames))


def delimiter_at(frames: list[bytes]) -> int:
    """Where the delimiter is, before all parts of a message. Raises InvalidMessage."""
    try:
        split_at = frames.index(DELIMITER)
    except ValueError:
        raise InvalidMessage("no <IDS|MSG> delimiter") from None
    if len(frames) < split_at + 6:
        raise InvalidMessage("fewer than four parts")
    return split_at
