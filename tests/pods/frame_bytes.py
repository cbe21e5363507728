"""Frames as bytes, for what a test sends or expects without a link."""

from __future__ import annotations

from bitfusion_pods.stream.frames import Kind, head


def encode(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    """One whole frame. Raises ValueError as `head` does."""
    return head(kind, channel, len(payload)) + payload
