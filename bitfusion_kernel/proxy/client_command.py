"""One `bitfusion list_gpus` or `bitfusion health`, run beside the proxy's loop."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed
from bitfusion_kernel.proxy.event_loop import EventLoop

TIME_LIMIT = 60.0
"""Seconds; the real client asks servers one by one, and each may take its 3 s to fail."""

_REAP_PATIENCE = 0.2


class ClientCall:
    """Runs until the client closes its output or `end` is called.

    `on_output` gets text as it comes, `on_end` all of it and the exit code, None when it took too long.
    Raises ClientFailed if the client can't be started.
    """

    def __init__(
        self,
        loop: EventLoop,
        argv: list[str],
        environment: dict[str, str],
        on_output: Callable[[str], None],
        on_end: Callable[[str, int | None], None],
    ) -> None:
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
        loop.set_timer("client call", time.monotonic() + TIME_LIMIT, self._on_time_limit)

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if chunk:
            self._output += chunk
            self._on_output(chunk.decode("utf-8", "replace"))
            return
        status = self.end()
        self._on_end(self._output.decode("utf-8", "replace"), status)

    def _on_time_limit(self) -> None:
        self.end()
        self._on_end(self._output.decode("utf-8", "replace"), None)

    def end(self) -> int:
        """Reap the client, killing it if it still runs; its exit code."""
        self._loop.cancel_timer("client call")
        self._loop.off(self._pipe.fileno())
        self._pipe.close()
        try:
            return self._process.wait(_REAP_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
