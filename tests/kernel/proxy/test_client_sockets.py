"""The sockets that Jupyter's clients connect to, and a channel's messages and replies."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from bitfusion_kernel.protocol.connection_file import CHANNELS, ConnectionInfo
from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel, ClientSockets
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from tests.kernel.proxy.parts import WIRE, RecordingSocket, message
from tests.kernel.proxy_harness import ENTRY
from tests.support.machine import scaled
from tests.support.ports import free_ports

Context = zmq.Context[zmq.Socket[bytes]]

LIMIT_MS = int(scaled(5) * 1000)


class Bound:
    """Client sockets, and clients of them."""

    def __init__(self, **more: Any) -> None:
        self.context: Context = zmq.Context()
        self.heartbeat_context: Context = zmq.Context()
        ports = dict(zip([f"{name}_port" for name in CHANNELS], free_ports(len(CHANNELS)), strict=True))
        self.info = ConnectionInfo({"transport": "tcp", "ip": "127.0.0.1", "key": "secret", **ports, **more})
        self._clients: list[zmq.Socket[bytes]] = []
        self.sockets = ClientSockets(self.context, self.heartbeat_context, self.info)

    def client(self, kind: int, channel: str, **options: bytes) -> zmq.Socket[bytes]:
        """One more client."""
        socket = self.context.socket(kind)
        socket.linger = 0
        for name, value in options.items():
            setattr(socket, name, value)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(self.info.address(channel))
        self._clients.append(socket)
        return socket

    def close(self) -> None:
        """End the heartbeat's thread, too."""
        self.context.destroy(linger=0)
        self.heartbeat_context.term()


@pytest.fixture
def bind() -> Iterator[Callable[..., Bound]]:
    made: list[Bound] = []

    def start(**more: Any) -> Bound:
        made.append(Bound(**more))
        return made[-1]

    yield start
    for bound in made:
        bound.close()


def test_an_address_that_becomes_free_is_taken(
    bind: Callable[..., Bound], monkeypatch: pytest.MonkeyPatch
) -> None:
    """jupyter_client looks for free ports and closes them; a connection of others may get one meanwhile."""
    (port,) = free_ports(1)
    other = socket.create_server(("127.0.0.1", port))
    between_two_tries = "bitfusion_kernel.proxy.jupyter.client_sockets.time.sleep"
    monkeypatch.setattr(between_two_tries, lambda _: other.close())
    bound = bind(shell_port=port)
    assert other.fileno() == -1
    client = bound.client(zmq.DEALER, "shell")
    client.send(b"request")
    assert bound.sockets.shell.poll(LIMIT_MS)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {},
            "port {port} of 127.0.0.1, the kernel's stdin channel, is taken by another program; shut the "
            "kernel down and start it anew: Jupyter then chooses other ports (a restart may keep them)",
        ),
        (
            {"ip": "192.0.2.1"},
            "cannot listen on tcp://192.0.2.1:{shell}, the kernel's shell channel: "
            "Cannot assign requested address",
        ),
        (
            {"transport": "ipc", "ip": "/no/such/folder/kernel"},
            "cannot listen on ipc:///no/such/folder/kernel-{shell}, the kernel's shell channel: "
            "No such file or directory",
        ),
    ],
    ids=["port", "address", "folder"],
)
def test_a_proxy_that_cannot_listen_says_where_and_leaves_nothing(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    ports = free_ports(len(CHANNELS))
    numbers = dict(zip(CHANNELS, ports, strict=True))
    file = tmp_path / "connection.json"
    content = {"transport": "tcp", "ip": "127.0.0.1", "key": "secret", **fields}
    file.write_text(json.dumps(content | {f"{name}_port": port for name, port in numbers.items()}))
    argv = [sys.executable, "-I", "-S", str(ENTRY), "-f", str(file), "--bitfusion-acquire=start"]
    with socket.create_server(("127.0.0.1", numbers["stdin"])):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=scaled(20), check=False)
    told = words.format(port=numbers["stdin"], shell=numbers["shell"])
    assert done.stderr == f"bitfusion_kernel: {told}\n"
    assert done.returncode == 1


def test_a_proxy_that_cannot_even_say_why_it_ends_ends(tmp_path: Path) -> None:
    """Jupyter's log is on a full disk."""
    ports = free_ports(len(CHANNELS))
    file = tmp_path / "connection.json"
    fields = {f"{name}_port": port for name, port in zip(CHANNELS, ports, strict=True)}
    file.write_text(json.dumps({"ip": "192.0.2.1", **fields}))
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-I", "-S", str(ENTRY), "-f", str(file)]
        done = subprocess.run(argv, stdout=full, stderr=full, timeout=scaled(20), check=False)
    assert done.returncode == 1


def test_the_heartbeat_echoes_while_nobody_serves_the_loop(bind: Callable[..., Bound]) -> None:
    heartbeat = bind().client(zmq.REQ, "hb")
    heartbeat.send(b"ping")
    assert heartbeat.poll(LIMIT_MS)
    assert heartbeat.recv() == b"ping"


def test_each_subscriber_is_reported(bind: Callable[..., Bound]) -> None:
    bound = bind()
    for _ in range(2):
        bound.client(zmq.SUB, "iopub")
    for _ in range(2):
        assert bound.sockets.iopub.poll(LIMIT_MS)
        assert bound.sockets.iopub.recv() == b"\x01"


def test_a_client_that_reconnects_under_its_identity_gets_its_replies(bind: Callable[..., Bound]) -> None:
    bound = bind()
    shell = bound.sockets.shell
    for text in (b"before", b"after"):
        client = bound.client(zmq.DEALER, "shell", identity=b"me")
        client.send(text)
        assert shell.poll(LIMIT_MS)
        assert shell.recv_multipart() == [b"me", text]
    shell.send_multipart([b"me", b"reply"])
    assert client.poll(LIMIT_MS)
    assert client.recv() == b"reply"


def test_with_keys_only_clients_that_know_them_are_heard(bind: Callable[..., Bound]) -> None:
    public, secret = zmq.curve_keypair()
    bound = bind(curve_publickey=public.decode(), curve_secretkey=secret.decode())
    own_public, own_secret = zmq.curve_keypair()
    stranger = bound.client(zmq.DEALER, "shell")
    keys = {"curve_publickey": own_public, "curve_secretkey": own_secret, "curve_serverkey": public}
    client = bound.client(zmq.DEALER, "shell", **keys)
    stranger.send(b"stranger")
    client.send(b"client")
    assert bound.sockets.shell.poll(LIMIT_MS)
    assert bound.sockets.shell.recv_multipart()[1] == b"client"
    assert not bound.sockets.shell.poll(100)


# -- a channel -----------------------------------------------------------------------------------------


def _channel() -> tuple[ClientChannel, Any, RecordingSocket]:
    socket, iopub = RecordingSocket(), RecordingSocket()
    return ClientChannel(socket, WIRE, Publisher(WIRE, iopub)), socket, iopub  # type: ignore[arg-type]  # a fake


def test_messages_with_a_wrong_signature_are_passed_over() -> None:
    channel, socket, _ = _channel()
    good = WIRE.build("kernel_info_request", {})
    socket.incoming += [Wire(b"guessed").build("kernel_info_request", {}), [b"noise"], good]
    assert [received.frames for received in channel.receive()] == [good]


def test_a_reply_goes_to_its_client_with_its_parent() -> None:
    channel, socket, _ = _channel()
    request = message("kernel_info_request")
    channel.reply(request, {"status": "ok"}, {"more": 1})
    (reply,) = socket.messages()
    assert (reply.type, reply.content, reply.metadata) == ("kernel_info_reply", {"status": "ok"}, {"more": 1})
    assert (reply.identities, reply.parent_header["msg_id"]) == ([b"client"], request.id)


@pytest.mark.parametrize("publish_reply", [False, True])
def test_an_answer_stands_between_busy_and_idle(publish_reply: bool) -> None:
    channel, socket, iopub = _channel()
    channel.answer(message("shutdown_request"), {"status": "ok"}, publish_reply=publish_reply)
    assert len(socket.sent) == 1
    published = [str(m.content.get("execution_state", m.type)) for m in iopub.messages()]
    assert published == ["busy", *(["shutdown_reply"] if publish_reply else []), "idle"]
