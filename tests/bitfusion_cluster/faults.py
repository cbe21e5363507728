"""Faults of the fake API server: error statuses, raw and garbled streams, resets, silence."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bitfusion_cluster.fake_api import Handler

Object = dict[str, Any]
Fault = Callable[["Handler"], None]


def status(code: int, reason: str = "", message: str = "", **headers: str) -> Fault:
    """Answer with an error."""
    return lambda handler: handler.answer(code, status_object(code, reason, message), headers)


def status_object(code: int, reason: str = "", message: str = "") -> Object:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


def answered(body: Object) -> Fault:
    """Answer with an object of the test's own, where the store has none."""
    return lambda handler: handler.answer(200, body)


def raw(*lines: bytes, then: Fault | None = None) -> Fault:
    """A watch that sends exactly this, then ends (or does `then`)."""

    def send(handler: Handler) -> None:
        handler.begin_stream()
        for line in lines:
            handler.send_piece(line)
        if then is None:
            handler.end_stream()
        else:
            then(handler)

    return send


def reset(handler: Handler) -> None:
    """End the connection with an RST."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()


def stall(handler: Handler) -> None:
    """Say nothing more, and keep the connection open, until the server ends."""
    handler.server.api.ending.wait(60)
    handler.close_connection = True


def after(happened: threading.Event, then: Callable[[], None] = lambda: None) -> Fault:
    """Serve the request as if nothing were wrong, but only once something has happened; then do something.

    Until then nobody is told anything; `then` is called before the answer is sent.
    """

    def serve_late(handler: Handler) -> None:
        happened.wait(60)
        api = handler.server.api
        answer = handler.answer

        def told(code: int, body: object, headers: dict[str, str] | None = None) -> None:
            then()
            answer(code, body, headers)

        handler.answer = told  # type: ignore[method-assign]  # of this one request
        try:
            api.serve(
                handler, handler.command, handler.path.partition("?")[0], {}, handler.body, arrived=False
            )
        finally:
            handler.answer = answer  # type: ignore[method-assign]  # its own again

    return serve_late


def bookmark(version: int) -> bytes:
    return (
        json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}) + "\n"
    ).encode()
