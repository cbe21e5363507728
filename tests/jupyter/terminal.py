"""`jupyter console` in a terminal of its own: what is typed, and what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

from tests.jupyter.live_kernel import without_pytest
from tests.support.machine import scaled
from tests.support.waiting import wait_until

JUPYTER_CONSOLE = (sys.executable, "-m", "jupyter_console")
CTRL_C, CTRL_D = "\x03", "\x04"

_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]")
_ROWS, _COLUMNS = 50, 140


class Console:
    """One `jupyter console`, with the prompt that a person has; its kernel ends with it.

    Args:
        kernel: Name of the kernelspec.
        folder: Where it runs.
    """

    def __init__(self, kernel: str, folder: Path) -> None:
        self._terminal, its_side = pty.openpty()
        fcntl.ioctl(its_side, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        # setsid: a fork by Python (`pty.fork`) warns where zmq has threads
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *JUPYTER_CONSOLE, "--no-confirm-exit", "--kernel", kernel],
            cwd=folder,
            env=without_pytest(os.environ | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}),
            stdin=its_side,
            stdout=its_side,
            stderr=its_side,
        )
        os.close(its_side)
        self._raw = b""
        self._read_up_to = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._raw += os.read(self._terminal, 65536)
            except OSError:  # the last process of the terminal has ended
                return

    @property
    def text(self) -> str:
        """Everything that was printed, without colours and movements of the cursor."""
        return _CONTROL_SEQUENCE.sub("", self._raw.decode(errors="replace")).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """As a person types."""
        os.write(self._terminal, keys.encode())

    def run(self, line: str) -> None:
        """Type a cell of one line at the prompt that stands last."""
        self.type(line + "\r")

    def wait_for(self, *words: str, limit_s: float = 20) -> str:
        """Until all these are printed, in any order, behind what the call before returned; what that is."""

        def found() -> bool:
            return all(each in self.text[self._read_up_to :] for each in words)

        wait_until(found, lambda: f"{words!r} in the console:\n{self.text}", limit_s)
        begin, text = self._read_up_to, self.text
        self._read_up_to = max(text.index(each, begin) + len(each) for each in words)
        return text[begin : self._read_up_to]

    def close(self) -> None:
        """End it as a person does at the prompt; by force if it does not end."""
        self.type(CTRL_D)
        try:
            self.process.wait(scaled(20))
        finally:
            self.process.kill()
            self.process.wait(scaled(5))
            self._reader.join(scaled(5))
            os.close(self._terminal)
