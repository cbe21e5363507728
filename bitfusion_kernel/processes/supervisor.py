"""The supervisor: parent of the wrapper. It owns the wrapper's output, its exit status and its end.

Forked by the proxy before the proxy imports zmq (so it shares those pages and imports nothing anew), in
a session of its own. The wrapper needs a living parent that reads its pipes: a Go program whose reader
died ends by SIGPIPE before it gives its GPUs back. The proxy may die at any moment; then the supervisor ends
kernel and wrapper in that order and itself last.

Orders from the proxy (JSON lines): `start` {number, argv, environment, socket}, `stop`.
Reports to the proxy: `started` {pid}, `output` {stream, text}, `launched` {launcher, kernel, environment},
`kernel_exited` {status}, `wrapper_exited` {number, status}, `stopped`.
Statuses are as `os.waitstatus_to_exitcode` gives them: negative = signal.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.processes.json_lines import JsonLines
from bitfusion_kernel.processes.process_watch import ProcessWatch

if TYPE_CHECKING:
    from typing import Any

QUEUED_WRAPPER_PATIENCE = 0.4
"""Seconds a wrapper that holds nothing yet gets after SIGTERM, before SIGKILL."""

RELEASING_WRAPPER_PATIENCE = 10.0
"""Seconds a wrapper whose kernel has ended gets to hand its GPUs back, before SIGTERM and SIGKILL."""

_LONGEST_LINE = 8192


class Outputs:
    """The read ends of the wrapper's stdout and stderr, cut into lines.

    The pipes are made before the fork and both proxy and supervisor hold the read ends, so the wrapper does
    not meet a broken pipe when either of them is killed. Only the supervisor reads.
    """

    def __init__(self, pipes: dict[str, int]) -> None:
        self.stream_of = {fd: stream for stream, fd in pipes.items()}
        self._partial = dict.fromkeys(self.stream_of, b"")
        for fd in self.stream_of:
            os.set_blocking(fd, False)

    def read(self, fd: int) -> list[str]:
        """The lines that have become complete on one pipe; an overlong one is cut."""
        try:
            chunk = os.read(fd, 65536)
        except (BlockingIOError, InterruptedError):
            return []
        *lines, rest = (self._partial[fd] + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        self._partial[fd] = rest
        return [line.decode("utf-8", "replace") for line in lines]

    def drain(self) -> list[tuple[str, str]]:
        """Everything left, unfinished lines included; called once the wrapper has ended."""
        found = []
        for fd, stream in self.stream_of.items():
            while lines := self.read(fd):
                found += [(stream, line) for line in lines]
            if self._partial[fd]:
                found.append((stream, self._partial[fd].decode("utf-8", "replace")))
                self._partial[fd] = b""
        return found


class Attempt:
    """One wrapper from start to end, with the launcher and the kernel under it once they exist."""

    def __init__(self, number: int, pid: int, listener: socket.socket, socket_path: str) -> None:
        self.number = number
        self.wrapper = ProcessWatch(pid)
        self.listener = listener
        self.socket_path = socket_path
        self.launcher: JsonLines | None = None
        self.kernel: ProcessWatch | None = None
        self.stopping = False
        self.next_signal: int | None = None
        self.next_signal_at = 0.0

    def stop(self) -> None:
        """End the kernel, then let the wrapper release; a wrapper that still queues is told to end now."""
        if self.stopping:
            return
        self.stopping = True
        if self.launcher is not None:
            self.launcher.send({"do": "stop"})
            self._give(RELEASING_WRAPPER_PATIENCE, signal.SIGTERM)
        else:
            self._signal_wrapper(signal.SIGTERM)
            self._give(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)

    def _give(self, seconds: float, then: int) -> None:
        self.next_signal = then
        self.next_signal_at = time.monotonic() + seconds

    def on_time(self) -> None:
        """Send the next signal when its time has come."""
        if self.next_signal is None or time.monotonic() < self.next_signal_at:
            return
        if self.next_signal == signal.SIGKILL:
            self.kill_kernel()
            self.wrapper.kill_group(signal.SIGKILL)
            self._give(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)
        else:
            self._signal_wrapper(self.next_signal)
            self._give(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)

    def _signal_wrapper(self, number: int) -> None:
        try:
            os.kill(self.wrapper.pid, number)  # our unreaped child: the number can't be someone else's
        except ProcessLookupError:
            pass

    def kill_kernel(self) -> None:
        """The launcher's work, done by the supervisor when the launcher is no more."""
        if self.kernel is not None:
            self.kernel.kill_group(signal.SIGKILL)

    def on_kernel_gone(self) -> None:
        """The wrapper's program is over: from now on it only has to release."""
        if self.next_signal is None:
            self._give(RELEASING_WRAPPER_PATIENCE, signal.SIGTERM)

    def close(self) -> None:
        """Give all descriptors back."""
        self.listener.close()
        try:
            os.unlink(self.socket_path)
        except OSError:
            pass
        if self.launcher is not None:
            self.launcher.close()
        self.wrapper.close()
        if self.kernel is not None:
            self.kernel.close()


class Supervisor:
    """The supervisor's loop."""

    def __init__(self, proxy: JsonLines, pipes: dict[str, tuple[int, int]], folder: str) -> None:
        self._proxy = proxy
        self._folder = folder
        self._write_ends = {stream: ends[1] for stream, ends in pipes.items()}
        self._outputs = Outputs({stream: ends[0] for stream, ends in pipes.items()})
        self._attempt: Attempt | None = None

    def run(self) -> None:
        """Serve the proxy until it is gone and nothing is left to end."""
        while self._attempt is not None or not self._proxy.closed:
            for fd in self._wait():
                self._on_ready(fd)
            self._reap()
            if self._attempt is not None:
                if self._proxy.closed:
                    self._attempt.stop()
                self._attempt.on_time()
        private_folder.remove(self._folder)

    def _wait(self) -> list[int]:
        poll = select.poll()
        if not self._proxy.closed:
            poll.register(self._proxy, select.POLLIN | (select.POLLOUT if self._proxy.wants_write else 0))
        for fd in self._outputs.stream_of:
            poll.register(fd, select.POLLIN)
        timeout = None
        attempt = self._attempt
        if attempt is not None:
            timeout = 1000.0
            if attempt.wrapper.fd is not None:
                poll.register(attempt.wrapper.fd, select.POLLIN)
            else:
                timeout = 20.0
            if attempt.next_signal is not None:
                timeout = min(timeout, max(0.0, attempt.next_signal_at - time.monotonic()) * 1000 + 1)
            if attempt.launcher is None:
                poll.register(attempt.listener, select.POLLIN)
            elif not attempt.launcher.closed:
                poll.register(attempt.launcher, select.POLLIN)
        return [fd for fd, _ in poll.poll(timeout)]

    def _on_ready(self, fd: int) -> None:
        attempt = self._attempt
        if fd in self._outputs.stream_of:
            stream = self._outputs.stream_of[fd]
            for line in self._outputs.read(fd):
                self._proxy.send({"event": "output", "stream": stream, "text": line}, droppable=True)
        elif not self._proxy.closed and fd == self._proxy.fileno():
            self._proxy.flush()
            for order in self._proxy.receive():
                self._obey(order)
        elif attempt is not None and fd == attempt.listener.fileno():
            self._on_launcher_connects(attempt)
        elif attempt is not None and attempt.launcher is not None and fd == attempt.launcher.fileno():
            self._on_launcher_speaks(attempt)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._attempt = self._start(order)
        elif order["do"] == "stop":
            if self._attempt is not None:
                self._attempt.stop()
            else:
                self._proxy.send({"event": "stopped"})

    def _start(self, order: dict[str, Any]) -> Attempt | None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(order["socket"])
        listener.listen(1)
        argv, number = order["argv"], order["number"]
        try:
            null = os.open(os.devnull, os.O_RDWR)
            pid = os.posix_spawn(
                argv[0],
                argv,
                order["environment"],
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, self._write_ends["stdout"], 1),
                    (os.POSIX_SPAWN_DUP2, self._write_ends["stderr"], 2),
                ],
                setpgroup=0,
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP],
                setsigmask=[],
            )
            os.close(null)
        except OSError as error:
            listener.close()
            text = f"Error: cannot start {argv[0]}: {error.strerror}"
            self._proxy.send({"event": "output", "stream": "stderr", "text": text})
            self._proxy.send({"event": "wrapper_exited", "number": number, "status": 127})
            return None
        self._proxy.send({"event": "started", "pid": pid})
        return Attempt(number, pid, listener, order["socket"])

    def _on_launcher_connects(self, attempt: Attempt) -> None:
        connection, _ = attempt.listener.accept()
        attempt.launcher = JsonLines(connection)
        if attempt.stopping:  # granted in the moment it was cancelled
            attempt.stopping = False
            attempt.stop()

    def _on_launcher_speaks(self, attempt: Attempt) -> None:
        assert attempt.launcher is not None
        for report in attempt.launcher.receive():
            if report["event"] == "launched":
                attempt.kernel = ProcessWatch(report["kernel"])
                self._proxy.send(report)
            elif report["event"] == "kernel_exited":
                attempt.on_kernel_gone()
                self._proxy.send(report)
        if attempt.launcher.closed:
            attempt.kill_kernel()
            attempt.on_kernel_gone()

    def _reap(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        pid, status = os.waitpid(attempt.wrapper.pid, os.WNOHANG)
        if not pid:
            return
        if attempt.launcher is not None and not attempt.launcher.closed:
            self._on_launcher_speaks(attempt)  # its last report may have arrived with the wrapper's end
        attempt.kill_kernel()
        if attempt.launcher is not None:
            attempt.launcher.send({"do": "stop"})
        for stream, text in self._outputs.drain():
            self._proxy.send({"event": "output", "stream": stream, "text": text})
        code = os.waitstatus_to_exitcode(status)
        self._proxy.send({"event": "wrapper_exited", "number": attempt.number, "status": code})
        attempt.close()
        self._attempt = None
        if attempt.stopping:
            self._proxy.send({"event": "stopped"})


def _detach_from_proxy(proxy_end: socket.socket) -> None:
    """In the forked child: an own session, no terminal, none of the proxy's descriptors or signals."""
    os.setsid()
    proxy_end.close()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # a client's stdout must reach its end when the client ends
    os.close(null)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class SupervisorLink:
    """The proxy's end: a running supervisor, and the pipes it shares with us."""

    def __init__(self, lines: JsonLines, pid: int, folder: str) -> None:
        self.lines = lines
        self.pid = pid
        self.folder = folder


def start_supervisor(folder: str) -> SupervisorLink:
    """Fork the supervisor. Called once by the proxy before it starts any thread or imports zmq."""
    proxy_end, supervisor_end = socket.socketpair()
    pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _detach_from_proxy(proxy_end)
            Supervisor(JsonLines(supervisor_end), pipes, folder).run()
            status = 0
        finally:
            os._exit(status)
    supervisor_end.close()
    for _, write_end in pipes.values():
        os.close(write_end)
    return SupervisorLink(JsonLines(proxy_end), pid, folder)
