"""What the stand-in says: the client's log lines, on the stream its manners name."""

from __future__ import annotations

import os
import time

VERSION = "4.0.0-00000000"  # the words are those of client 4.0.0; no real build has this number


class Speaker:
    """Writes lines. A reader that is gone is no reason to fail: the GPUs must still be given back."""

    __slots__ = ("_log", "_plain")

    def __init__(self, stream: str = "stderr") -> None:
        self._log = 1 if stream == "stdout" else 2
        self._plain = 2 if stream == "stderr" else 1

    def log(self, message: str, level: str = "INFO") -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        say(self._log, f"[{level}] {stamp} {message}\n")

    def plain(self, text: str) -> None:
        """Lines without level and time."""
        say(self._plain, f"{text}\n")

    def error(self, text: object) -> None:
        say(self._log, f"Error: {text}\n")


def say(fd: int, text: str) -> None:
    """Write all of `text`; errors of the stream are dropped."""
    data = text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        pass
