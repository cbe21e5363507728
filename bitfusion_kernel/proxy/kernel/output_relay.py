"""Relays the kernel's output (iopub), most of the traffic, to the clients in C (`zmq.proxy`)."""

from __future__ import annotations

import threading

import zmq

INLET_ADDRESS = "inproc://proxy-iopub"


class OutputRelay:
    """Relays between the clients' XPUB and the kernel's XSUB, with an inlet for the proxy's own messages.

    The XSUB is also connected to the inlet, an inproc XPUB. Subscriptions of clients travel to both, so the
    proxy still sees each new subscriber (to welcome it), and what the proxy publishes on the inlet leaves by
    the same socket as the kernel's output. Both sockets belong to the relay from now on.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        clients: zmq.Socket[bytes],
        kernel: zmq.Socket[bytes],
    ) -> None:
        self.inlet = context.socket(zmq.XPUB)
        self.inlet.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.inlet.linger = 1000
        self.inlet.bind(INLET_ADDRESS)
        kernel.connect(INLET_ADDRESS)
        while self.inlet.poll(1000):  # until our own subscription has arrived, or messages would be lost
            if self.inlet.recv() == b"\x01":
                break
        self._sockets = (clients, kernel)
        threading.Thread(target=self._run, name="iopub", daemon=True).start()

    def _run(self) -> None:
        clients, kernel = self._sockets
        try:
            zmq.proxy(clients, kernel)
        except zmq.ZMQError:
            pass  # the context is being closed
        clients.close(linger=1000)
        kernel.close(linger=0)
