"""Clients and peers that hold the key, or our user's rights, but send nonsense: the proxy lives on."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.proxy_harness import ProxyHarness, refuse
from tests.support.machine import scaled

TYPES = (
    "execute_request",
    "complete_request",
    "inspect_request",
    "history_request",
    "is_complete_request",
    "comm_info_request",
    "comm_open",
    "debug_request",
    "input_reply",
    "create_subshell_request",
    "odd",
    "",
)
CONTENTS: tuple[dict[str, Any], ...] = (
    {},
    {"code": None, "cursor_pos": "x", "silent": 1},
    {"code": ["%bitfusion"], "silent": []},
    {"code": 5, "stop_on_error": None, "command": 3, "seq": "x"},
    {"code": "%bitfusion request " + "9" * 5000},
    {"code": "%bitfusion \x00 \ud800 \\"},
    {"command": "debugInfo", "seq": None},
    {"hist_access_type": "range", "session": "x", "start": None, "stop": [], "n": "many", "raw": "x"},
    {"hist_access_type": "search", "pattern": 7, "n": -1, "unique": "x"},
    {"hist_access_type": 3},
)


@pytest.fixture
def proxy() -> Iterator[ProxyHarness]:
    harness = ProxyHarness(refuse("Error: no"), BITFUSION_SILENT_WAIT="0.05")
    yield harness
    harness.close()


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_signed_nonsense_on_a_channel_does_not_end_the_proxy(proxy: ProxyHarness, channel: str) -> None:
    for message_type, content in itertools.product(TYPES, CONTENTS):
        proxy.send(message_type, on=channel, **content)
    request = proxy.send("kernel_info_request", on=channel)
    assert proxy.reply(request, on=channel)["status"] == "ok"
    assert proxy.process.poll() is None
    assert "Traceback" not in proxy.stderr.read_text()


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"null",
        b'{"words": 3}',
        b'{"words": null}',
        b'{"other": "x"}',
        b"[" * 60_000,
    ],
)
def test_nonsense_on_the_magics_socket_does_not_end_the_proxy(proxy: ProxyHarness, question: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(scaled(5))
        peer.connect(proxy.await_socket())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may close unread
            peer.sendall(question)
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(100) == b""
    assert proxy.reply(proxy.send("kernel_info_request"))["status"] == "ok"
