"""What the container of a pod runs: `bitfusion agent --keys FOLDER --port PORT`.

The folder has `tls.key` and `tls.crt`, this side's, and `client.crt`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TERMINATION_LOG = "/dev/termination-log"
DELETED_WITHIN = 2.0
"""Seconds for the API to delete this pod: its GPU is held meanwhile."""
USAGE = "usage: bitfusion agent --keys FOLDER --port PORT"


def main(argv: list[str]) -> int:
    """Run the agent to its end; 2 if it cannot begin."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from bitfusion_pods.agent.agent import Agent, write_line
    from bitfusion_pods.stream import tls

    given = dict(zip(argv[::2], argv[1::2], strict=False))
    keys, port = given.get("--keys"), given.get("--port", "")
    if not keys or not port.isdecimal():
        write_line(USAGE)
        return 2
    try:
        with open(os.path.join(keys, "client.crt"), encoding="ascii") as file:
            client = file.read()
        context = tls.context(*tls.own_files(keys), client, server=True)
        listener = listen(int(port))
    except (OSError, OverflowError, ValueError) as error:
        write_line(f"cannot start: {error}")
        return 2
    write_line(f"listens on port {listener.getsockname()[1]}")
    agent = Agent(listener, context, write_line)
    write_line(f"ends: {agent.run()}")
    status = 0
    if agent.told is not None:
        status = agent.told.as_shell()
        leave_words(agent.told.to_json())
    if os.getpid() == 1:
        try:
            os.kill(-1, signal.SIGKILL)  # what the program has left behind
        except ProcessLookupError:
            pass
    if agent.is_left:
        delete_own_pod(os.path.dirname(os.path.abspath(keys)), write_line)
    return status


def delete_own_pod(folder: str, log: Callable[[str], None]) -> None:
    """By a thread, for which nobody waits long."""
    import threading

    from bitfusion_pods.agent import own_pod  # no start pays for it

    asks = threading.Thread(target=own_pod.delete, args=(folder, os.environ, log), daemon=True)
    asks.start()
    asks.join(DELETED_WITHIN)


def listen(port: int) -> socket.socket:
    """At all addresses of the pod, which may be of IPv6, of IPv4 or both."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=16, dualstack_ipv6=True)
    except (OSError, ValueError):  # this Linux has no IPv6
        return socket.create_server(("", port), backlog=16)


def leave_words(words: bytes) -> None:
    """For the pod's status, which tells the end of a program whose connection was lost just before it."""
    try:
        with open(TERMINATION_LOG, "r+b") as file:  # the kubelet has made it
            file.write(words)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
