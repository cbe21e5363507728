"""Relays the kernel's output (iopub), most of the traffic, to the clients in C (`zmq.proxy`)."""

from __future__ import annotations

import os
import threading
import time

import zmq

INLET_ADDRESS = "inproc://proxy-iopub"

LONGEST_DRAIN = 0.1
"""Seconds for the relay to pass on what kernel and proxy have published last."""

DRAIN = 0.03
"""The same where /proc does not tell whether there is anything left."""

_PAUSE = 0.001

_TOLD = (b"State", b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")


class OutputRelay:
    """Relays between the clients' XPUB and the kernel's XSUB, with an inlet for the proxy's own messages.

    The XSUB is also connected to the inlet, an inproc XPUB. Subscriptions of clients travel to both, so the
    proxy still sees each new subscriber (to welcome it), and what the proxy publishes on the inlet leaves by
    the same socket as the kernel's output. Both sockets belong to the relay until it is stopped.

    Args:
        context: Of the kernel's sockets alone: its end is the relay's.
        clients: In another context, so that the next kernel's relay can have it.
        kernel: The kernel's output.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        clients: zmq.Socket[bytes],
        kernel: zmq.Socket[bytes],
    ) -> None:
        self._context = context
        self.inlet = context.socket(zmq.XPUB)
        self.inlet.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.inlet.linger = 1000
        self.inlet.bind(INLET_ADDRESS)
        kernel.connect(INLET_ADDRESS)
        while self.inlet.poll(1000):  # until our own subscription has arrived, or messages would be lost
            if self.inlet.recv() == b"\x01":
                break
        self._sockets = (clients, kernel)
        self._thread = threading.Thread(target=self._run, name="iopub", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        clients, kernel = self._sockets
        try:
            zmq.proxy(clients, kernel)
        except zmq.ZMQError:
            pass  # the context is being closed
        kernel.close(linger=0)

    def stop(self) -> None:
        """End it, and the context, whose other sockets are closed. The clients' one is the proxy's again."""
        _await_rest()
        self.inlet.close(linger=0)
        self._context.term()
        self._thread.join()


def _await_rest() -> None:
    """Until all other threads sleep at once: those of zmq wake each other while anything is to be done."""
    began = time.monotonic()
    before = None
    while time.monotonic() - began < LONGEST_DRAIN:
        try:
            now = _other_threads()
        except (OSError, KeyError):
            time.sleep(DRAIN)
            return
        if now == before and all(state.split()[0] == b"S" for state, *_ in now.values()):
            return  # none has run since the look before
        before = now
        time.sleep(_PAUSE)


def _other_threads() -> dict[str, tuple[bytes, ...]]:
    """The state of each, and how often it was switched to.

    Raises OSError also where one is just ending, KeyError where this /proc does not tell.
    """
    found = {}
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            with open(f"/proc/self/task/{thread}/status", "rb") as file:
                told = dict(line.split(b":", 1) for line in file if b":" in line)
            found[thread] = tuple(told[name] for name in _TOLD)
    return found
