"""What a keeper and its wrapper say to each other, one word a message; and the wrapper's log."""

from __future__ import annotations

import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import socket as _socket
else:
    import _socket

# to the wrapper, with what follows the word; and from it
BEAT, LOST, DONE, USED, AWAY = b"beat", b"lost", b"done", b"used", b"away"
PROGRAM, END = b"program", b"end"
LONGEST = 4096  # bytes of one of these
BEATS = 5  # in the time between two words to the service


class WrapperLink:
    """The keeper's end of a socket pair. Nothing here waits: a wrapper may be frozen."""

    def __init__(self, link: _socket.socket) -> None:
        self._link: _socket.socket | None = link

    def fileno(self) -> int:
        """For `poll`; -1 once the wrapper is gone."""
        return -1 if self._link is None else self._link.fileno()

    def tell(self, word: bytes, text: str = "") -> None:
        """Say one of these words."""
        if self._link is not None:
            try:
                self._link.send(word + b" " + text.encode()[: LONGEST - 8], _socket.MSG_DONTWAIT)
            except OSError:
                pass  # frozen, or gone, which is heard

    def hear(self) -> tuple[bytes, int] | None:
        """The next word and its descriptor (-1: none). Empty: the wrapper is gone. None: nothing yet."""
        if self._link is None:
            return None
        try:
            word, extra, _, _ = self._link.recvmsg(
                LONGEST, _socket.CMSG_SPACE(4), _socket.MSG_DONTWAIT | _socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        except OSError:
            word, extra = b"", []
        if not word:
            self._link.close()
            self._link = None
            _quiet_stderr()
        return word, memoryview(extra[0][2]).cast("i")[0] if extra else -1


def log(level: str, text: str) -> None:
    """Write a line to the stderr that is the wrapper's, unless its reader hangs."""
    from select import POLLOUT, poll

    stream = poll()
    stream.register(2, POLLOUT)
    if any(events & POLLOUT for _, events in stream.poll(0)):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            os.write(2, f"[{level}] {stamp} {text}\n".encode(errors="replace"))
        except OSError:
            pass


def _quiet_stderr() -> None:
    """Let go of the stream that was the wrapper's: whoever reads it waits for its end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
