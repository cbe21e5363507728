"""Asks a kernel's proxy for its state, once or at each change. For other processes of the same user.

    file = proxy_socket.connection_file(kernel_id, jupyter_runtime_dir())
    watch.look(file, os.environ, seconds=2)["state"]
    for state in watch.follow(file, os.environ, seconds=3600): ...

A program with an event loop of its own makes a `Watch` and waits until its `fileno()` can be read.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bitfusion_client.kernel_state import proxy_socket, states
from bitfusion_client.kernel_state.proxy_socket import NoKernel

NOW = b'{"state": "now"}\n'
CHANGES = b'{"state": "changes"}\n'

CONNECT_LIMIT = 2.0
"""Seconds that a proxy has to accept a connection."""

RESTART_LIMIT = 35.0
"""Seconds for which a kernel may be without a proxy: for 30 s what it holds is kept over a restart."""

PAUSE = 0.2
"""Seconds between two looks for the next proxy."""

LONGEST_LINE = 1 << 20


class Watch:
    """A connection on which a proxy tells its state at each change, beginning with the one now.

    The time limit counts for connecting; afterwards nothing blocks. Close it, or use it in a `with`.

    Raises:
        OSError: No proxy listens in this folder.
    """

    def __init__(self, folder: str, *, question: bytes = CHANGES, limit: float = CONNECT_LIMIT) -> None:
        self._connection = proxy_socket.connect(os.path.join(folder, proxy_socket.NAME), limit)
        self._incoming = b""
        self.closed = False
        """Whether nothing more comes: the proxy has ended, as in a restart, or takes no more watchers."""
        self.refused = ""
        """Why it answers nothing, in its words."""
        try:
            self._connection.sendall(question)
            self._connection.setblocking(False)
        except OSError:
            self._connection.close()
            raise

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For poll() and event loops."""
        return self._connection.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """What has been told since the last call, oldest first; look at `closed` afterwards."""
        while not self.closed:
            try:
                chunk = self._connection.recv(65536)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                chunk = b""
            self._incoming += chunk
            self.closed = not chunk or len(self._incoming) > LONGEST_LINE
        *lines, self._incoming = self._incoming.split(b"\n")
        return [told for told in map(self._parse, lines) if told is not None]

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        told = states.parse(line)
        if told is None:
            self.closed = True
            try:
                self.refused = str(json.loads(line)["error"])
            except (ValueError, TypeError, KeyError, RecursionError):
                self.refused = "it speaks another version"
        return told

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """The same, once there is something or so many seconds are over."""
        deadline = time.monotonic() + seconds
        while not self.closed and (left := deadline - time.monotonic()) > 0:
            select.select([self._connection], [], [], left)
            if told := self.receive():
                return told
        return []

    def close(self) -> None:
        """Hear no more."""
        self.closed = True
        self._connection.close()


def look(connection_file: str, environ: Mapping[str, str], *, seconds: float) -> dict[str, Any]:
    """The state of a kernel now; while no proxy is there, in a restart, what its file says.

    Args:
        connection_file: Jupyter's, of that kernel; see `proxy_socket.connection_file`.
        environ: `XDG_RUNTIME_DIR` as the kernel has it.
        seconds: The longest that this may take.

    Raises:
        NoKernel: There is none, or it does not answer in time.
    """
    deadline = time.monotonic() + seconds
    folders = proxy_socket.folders(environ, proxy_socket.read_key(connection_file))
    why = "no Bitfusion kernel of this user runs with it"
    for folder in folders:
        left = deadline - time.monotonic()
        try:
            with Watch(folder, question=NOW, limit=max(0.01, left)) as watch:
                if told := watch.wait(deadline - time.monotonic()):
                    return told[0]
                why = f"its kernel does not answer: {watch.refused or 'it says nothing'}"
        except TimeoutError:
            why = "its kernel does not answer in time"
        except OSError:
            told_by_file = states.read(os.path.join(folder, states.FILE_NAME))
            if told_by_file is not None:
                return told_by_file
    raise NoKernel(f"connection file {connection_file}: {why}")


def follow(connection_file: str, environ: Mapping[str, str], *, seconds: float) -> Iterator[dict[str, Any]]:
    """The state now and at each change, over restarts, for so many seconds; arguments as those of `look`.

    Ends early when no proxy has come for `RESTART_LIMIT` seconds. Raises NoKernel: there is none now.
    """
    deadline = time.monotonic() + seconds
    last = look(connection_file, environ, seconds=min(seconds, CONNECT_LIMIT))
    yield last
    folders = proxy_socket.folders(environ, proxy_socket.read_key(connection_file))
    seen_at = time.monotonic()
    while time.monotonic() < min(deadline, seen_at + RESTART_LIMIT):
        for folder in folders:
            try:
                watch = Watch(folder)
            except OSError:
                told = states.read(os.path.join(folder, states.FILE_NAME))
                if told is not None and told["state"] != last["state"]:
                    yield (last := told)
                continue
            with watch:
                while not watch.closed and (left := deadline - time.monotonic()) > 0:
                    for told in watch.wait(left):
                        seen_at = time.monotonic()
                        if told != last:
                            yield (last := told)
        time.sleep(max(0.0, min(PAUSE, deadline - time.monotonic())))
