"""Jupyter messages as they travel: split, check the signature, build, sign. Pure; no zmq.

The proxy answers a few requests itself and relays all others, so it parses only what it must.
jupyter_client's `Session` does the same and more, but costs 150 ms to import.
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
    """Frames that are no Jupyter message, or whose signature is wrong. Such messages are ignored."""


class Message:
    """One received message. `frames` is what arrived, for relaying it unchanged."""

    __slots__ = ("buffers", "content", "frames", "header", "identities", "metadata", "parent_header")

    def __init__(self, frames: list[bytes], split_at: int) -> None:
        self.frames = frames
        self.identities = frames[:split_at]
        try:
            self.header: Json = json.loads(frames[split_at + 2])
            self.parent_header: Json = json.loads(frames[split_at + 3])
            self.metadata: Json = json.loads(frames[split_at + 4])
            self.content: Json = json.loads(frames[split_at + 5])
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
        """`execute_request`, `kernel_info_request`, …"""
        return str(self.header["msg_type"])

    @property
    def id(self) -> str:
        """The sender's id of this message."""
        return str(self.header["msg_id"])


class Wire:
    """Signs and reads the messages of one connection. One per proxy; `key` from the connection file."""

    def __init__(self, key: bytes, scheme: str = "hmac-sha256", username: str = "") -> None:
        if not scheme.startswith("hmac-") or scheme[5:] not in hashlib.algorithms_available:
            raise ValueError(f"signature scheme {scheme!r} is not known; allowed: hmac-sha256 and its kin")
        self._key = key
        self._digest = scheme[5:]
        self._username = username or "username"
        self.session = os.urandom(16).hex()
        self._count = 0

    def sign(self, parts: list[bytes]) -> bytes:
        """The hexadecimal signature over the four JSON parts; empty if the connection has no key."""
        if not self._key:
            return b""
        return hmac.digest(self._key, b"".join(parts), self._digest).hex().encode()

    def read(self, frames: list[bytes]) -> Message:
        """Check and parse one multipart message. Raises InvalidMessage."""
        try:
            split_at = frames.index(DELIMITER)
        except ValueError:
            raise InvalidMessage("no <IDS|MSG> delimiter") from None
        if len(frames) < split_at + 6:
            raise InvalidMessage("fewer than four parts")
        signed = frames[split_at + 2 : split_at + 6]
        if not hmac.compare_digest(self.sign(signed), frames[split_at + 1] if self._key else b""):
            raise InvalidMessage("wrong signature")
        return Message(frames, split_at)

    def header(self, msg_type: str) -> Json:
        """A fresh header of this session."""
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
        }

    def build(
        self,
        msg_type: str,
        content: Json,
        *,
        parent: Json | None = None,
        metadata: Json | None = None,
        identities: list[bytes] | None = None,
    ) -> list[bytes]:
        """The frames of a new message. `parent` is the header of the request it answers."""
        parts = [
            json.dumps(part, separators=(",", ":")).encode()
            for part in (self.header(msg_type), parent or {}, metadata or {}, content)
        ]
        return [*(identities or []), DELIMITER, self.sign(parts), *parts]


def is_type(frames: list[bytes], message_type: bytes) -> bool:
    """Whether relayed frames are of a type, without parsing them; a false yes is
    possible (another field of the same text), a false no is not.
    """
    try:
        header = frames[frames.index(DELIMITER) + 2]
    except (ValueError, IndexError):
        return False
    return b'"' + message_type + b'"' in header


def read_unchecked(frames: list[bytes]) -> Message:
    """A message of the kernel's, which comes over sockets in our own folder: no signature to check."""
    return Message(frames, frames.index(DELIMITER))
