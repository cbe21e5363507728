"""Free TCP ports of 127.0.0.1 for servers that cannot choose one themselves, and for kernels.

A server that can listen on port 0 and tell which port it got should do so instead.
"""

from __future__ import annotations

import os
import random
import socket

# Outside the range of outgoing connections, so that a port whose server is stopped can be used again: a
# client that tries a dead port of that range may connect to itself and keep it.
_RANGE = range(12000, 32000)

_reservations: dict[int, int] = {}
"""For each port handed out the descriptor of a bound abstract Unix socket: others do not get that port."""


def free_port() -> int:
    """A free port that no other test process on this machine is given until it is returned."""
    while True:
        port = random.choice(_RANGE)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0kubeflow-bitfusion-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reservations[port] = reservation.detach()
        return port


def free_ports(count: int) -> list[int]:
    """So many different free ports."""
    return [free_port() for _ in range(count)]


def return_port(port: int) -> None:
    """Give one back; needed only where many are taken. Those of a test process end with it."""
    if port in _reservations:
        os.close(_reservations.pop(port))
