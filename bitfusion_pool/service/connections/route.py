"""Whether a connection is the client's own, or that of a proxy which answers for it.

The end of a connection shows that a client has ended only if the client's own machine said it. What stands
in between and makes connections of its own, a proxy or a load balancer, ends them for reasons of its own.
So a client has its machine announce a maximum segment size that it has chosen at random, and names it in
its hello. Routers and NAT pass such a small one on as it is; whoever makes another connection announces
their own.
"""

from __future__ import annotations

import socket
import struct

from bitfusion_pool.messages.from_client import SEGMENTS
from bitfusion_pool.messages.from_service import DIRECT, INDIRECT

_INFO = struct.Struct("8B4I")  # linux/tcp.h: the beginning of tcp_info, up to tcpi_rcv_mss
_OPTIONS, _SEND_SEGMENT = 5, 10
_TIMESTAMPS = 1  # TCPI_OPT_TIMESTAMPS
_TIMESTAMPS_BYTES = 12  # of each segment


def announced_segment(connected: socket.socket) -> int:
    """The maximum segment size that the other end announced; 0 if it is not known.

    Args:
        connected: A TCP connection that was just accepted: later the path may have lowered the number.
    """
    try:
        info = _INFO.unpack(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
    except (OSError, struct.error):  # no TCP, or a system that does not tell
        return 0
    found: int = info[_SEND_SEGMENT]
    return found + _TIMESTAMPS_BYTES if info[_OPTIONS] & _TIMESTAMPS else found


def route(announced: int, told: int) -> str:
    """DIRECT if the client told in its hello what was announced, INDIRECT otherwise. Pure."""
    return DIRECT if told == announced and told in SEGMENTS else INDIRECT
