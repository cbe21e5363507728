"""Log output of the `bitfusion` command: the real client's log lines, on the stream the emulation names."""

from __future__ import annotations

import os
import time

VERSION = "4.0.0-00000000"  # the lines are those of client 4.0.0; no real build has this number


class LogOutput:
    """Writes the lines of one command.

    A reader that is gone is no reason to fail, because the GPUs must still be released.
    """

    __slots__ = ("_log_fd", "_plain_fd")

    def __init__(self, stream: str = "stderr") -> None:
        self._log_fd = 1 if stream == "stdout" else 2
        self._plain_fd = 2 if stream == "stderr" else 1

    def log(self, message: str, level: str = "INFO") -> None:
        """A line with level and time."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_text(self._log_fd, f"[{level}] {stamp} {message}\n")

    def plain(self, text: str) -> None:
        """Lines without level and time."""
        write_text(self._plain_fd, f"{text}\n")

    def error(self, text: object) -> None:
        """The line of an error that ends the command."""
        write_text(self._log_fd, f"Error: {text}\n")


def write_text(fd: int, text: str) -> None:
    """Write all of `text` without buffering; errors of the stream are ignored."""
    data = text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        pass
