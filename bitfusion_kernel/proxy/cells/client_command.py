"""One `bitfusion list_gpus` or `bitfusion health`: the client as a child process, read by the event loop."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed
from bitfusion_kernel.proxy.event_loop import EventLoop

TIME_LIMIT = 60.0
"""Seconds; the real client asks servers one by one, and each may take its 3 s to fail."""

ASK_LIMIT = 5.0
"""The same for an answer that is better with what the client says, but can be given without."""

_REAP_LIMIT = 0.2
"""Seconds a client that has closed its output gets to end by itself."""


class ClientCommand:
    """Runs until the client closes its output, the time limit, or `end`.

    `on_output` gets text as it comes; `on_end` gets the exit code, None when it took too long, and is not
    called after `end`. Raises ClientFailed if the client can't be started.
    """

    def __init__(
        self,
        loop: EventLoop,
        argv: list[str],
        environment: dict[str, str],
        on_output: OnOutput,
        on_end: OnEnd,
        time_limit: float,
    ) -> None:
        self.argv = argv
        self._loop = loop
        self._on_output = on_output
        self._on_end = on_end
        self._output = b""
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ClientFailed(argv[0], error.strerror or "can't be started") from None
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        loop.on(self._pipe.fileno(), self._on_readable)
        self._timer = f"client command {self._process.pid}"  # several may run at a time
        loop.set_timer(self._timer, time.monotonic() + time_limit, self._on_time_limit)

    @property
    def output(self) -> str:
        """All that has come."""
        return self._output.decode("utf-8", "replace")

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if chunk:
            self._output += chunk
            self._on_output(chunk.decode("utf-8", "replace"))
        else:
            self._on_end(self, self.end())

    def _on_time_limit(self) -> None:
        self.end()
        self._on_end(self, None)

    def end(self) -> int:
        """Reap the client, killing it if it still runs; its exit code."""
        self._loop.cancel_timer(self._timer)
        self._loop.off(self._pipe.fileno())
        self._pipe.close()
        try:
            return self._process.wait(_REAP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


OnOutput = Callable[[str], None]
OnEnd = Callable[[ClientCommand, "int | None"], None]
RunClientCommand = Callable[[str, OnOutput, OnEnd, float], ClientCommand]
"""Starts the client with one subcommand, for so many seconds at most; raises BitfusionError."""
