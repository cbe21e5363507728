"""The sockets Jupyter's clients connect to: bound by the proxy for its whole life.

As ipykernel binds them: ROUTER for shell, control and stdin, XPUB for iopub, an echo for the heartbeat.
"""

from __future__ import annotations

import threading

import zmq

from bitfusion_kernel.protocol.connection_file import ConnectionInfo


class ClientSockets:
    """Bound from the connection file. Raises zmq.ZMQError if an address is taken."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], info: ConnectionInfo) -> None:
        self._info = info
        self.shell = self._bind(context, zmq.ROUTER, "shell")
        self.control = self._bind(context, zmq.ROUTER, "control")
        self.stdin = self._bind(context, zmq.ROUTER, "stdin")
        self.iopub = self._bind(context, zmq.XPUB, "iopub")
        # A context of its own: it answers whatever the rest of the proxy is doing.
        heartbeat = self._bind(zmq.Context(), zmq.ROUTER, "hb")
        threading.Thread(target=_echo, args=(heartbeat,), name="heartbeat", daemon=True).start()

    def _bind(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, channel: str) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        socket.linger = 1000
        if self._info.curve_secretkey:
            socket.curve_secretkey = self._info.curve_secretkey
            socket.curve_publickey = self._info.curve_publickey
            socket.curve_server = True
        if kind == zmq.ROUTER:
            # A client that reconnects under its identity takes over its old connection.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        else:
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # each new subscriber is told of, and welcomed
        socket.bind(self._info.address(channel))
        return socket


def _echo(heartbeat: zmq.Socket[bytes]) -> None:
    try:
        zmq.proxy(heartbeat, heartbeat)
    except zmq.ZMQError:
        heartbeat.close()
