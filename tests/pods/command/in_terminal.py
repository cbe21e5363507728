"""A command in a terminal of its own: what is typed, what a person sees, and what is left of its modes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from typing import Any

from tests.pods.command.pods import ROOT, Pods
from tests.support.machine import scaled
from tests.support.waiting import wait_until

CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"
_IUTF8 = 0x4000  # asm-generic/termbits.h


class InTerminal:
    """One command.

    Args:
        argv: It.
        environment: Beside this process's.
        is_read: Whether anybody reads what it says.
        others: Of stdin, stdout and stderr those that are no terminal, by name.
    """

    def __init__(
        self,
        argv: list[str],
        environment: dict[str, str],
        *,
        is_read: bool = True,
        others: dict[str, int] | None = None,
    ) -> None:
        self._terminal, self._its_side = pty.openpty()
        self.resize(30, 100)
        modes = self.modes()
        modes[0] |= _IUTF8  # as all terminals of today have it
        termios.tcsetattr(self._its_side, termios.TCSANOW, modes)
        self.before = self.modes()
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), self._its_side) | (others or {})
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv] if not others else argv,
            cwd=ROOT,
            env=_without_a_size(os.environ) | environment | {"TERM": "xterm", "PS1": "$ "},
            stdin=ends["stdin"],
            stdout=ends["stdout"],
            stderr=ends["stderr"],
        )
        self._raw = b""
        self._at = 0
        self._is_over = False
        self._quiet = 0
        """Looks at which there was nothing to read, and nothing that was read is under way."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        if is_read:
            self._reader.start()

    def _read(self) -> None:
        while not self._is_over:
            try:
                if select.select([self._terminal], [], [], 0.02)[0]:  # whoever reads keeps it open
                    self._raw += os.read(self._terminal, 65536)
                else:
                    self._quiet += 1
            except OSError:
                return

    @property
    def text(self) -> str:
        return self._raw.decode(errors="replace").replace("\r\n", "\n")

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._its_side)

    @property
    def is_raw(self) -> bool:
        return not self.modes()[3] & termios.ISIG

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, words: str, limit_s: float = 15) -> str:
        """Until this is shown behind what the call before returned; what is shown up to its end."""
        wait_until(lambda: words in self.text[self._at :], lambda: f"{words!r} in {self.text!r}", limit_s)
        begin = self._at
        self._at = self.text.index(words, begin) + len(words)
        return self.text[begin : self._at]

    def end(self, limit_s: float = 15) -> int:
        """Its exit status, once it has ended."""
        status = self.process.wait(scaled(limit_s))
        looks = self._quiet + 2  # the second one has begun after the end
        wait_until(lambda: self._quiet >= looks or not self._reader.is_alive(), "the rest of the output")
        return status

    def hang_up(self) -> None:
        """The window is closed."""
        self._stop_reading()
        fd, self._terminal = self._terminal, -1
        os.close(fd)

    def _stop_reading(self) -> None:
        self._is_over = True
        if self._reader.is_alive():
            self._reader.join()

    def close(self) -> None:
        self._stop_reading()
        self.process.kill()
        self.process.wait()
        os.close(self._its_side)
        if self._terminal >= 0:
            os.close(self._terminal)


def run_in_terminal(
    pods: Pods, *program: str, is_read: bool = True, others: dict[str, int] | None = None
) -> InTerminal:
    """`bitfusion run … -- program`, typed there."""
    return InTerminal(pods.command(*program), pods.environment, is_read=is_read, others=others)


def _without_a_size(environ: Mapping[str, str]) -> dict[str, str]:
    """pytest-xdist gives its workers one, which programs believe before their terminal."""
    return {name: text for name, text in environ.items() if name not in ("COLUMNS", "LINES")}
