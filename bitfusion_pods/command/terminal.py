"""The terminal here while a program elsewhere has it: it passes on every key, and is restored at the end."""

from __future__ import annotations

import os
import signal
import termios

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods import spawn
from bitfusion_pods.command.stdio import is_in_front

if TYPE_CHECKING:
    from typing import Any

_INPUT, _OUTPUT, _LOCAL, _CHARACTERS = 0, 1, 3, 6
_NO_INPUT = (
    *(termios.ISTRIP, termios.INLCR, termios.IGNCR, termios.ICRNL, termios.IXON, termios.IXANY),
    *(termios.IXOFF, termios.BRKINT, termios.INPCK),
)
_NO_LOCAL = (
    *(termios.ISIG, termios.ICANON, termios.ECHO, termios.ECHOE, termios.ECHOK, termios.ECHONL),
    termios.IEXTEN,
)


class LocalTerminal:
    """That on stdin and stdout."""

    def __init__(self, modes: list[Any]) -> None:
        self._before = modes
        self.is_raw = False
        """Whether the program elsewhere has the keys now."""

    @classmethod
    def here(cls) -> LocalTerminal | None:
        """It; None where stdin and stdout are not both one, or this process is in the background."""
        try:
            if os.isatty(0) and os.isatty(1) and is_in_front(0):
                return cls(termios.tcgetattr(0))
        except termios.error:
            pass
        return None

    def asked(self) -> spawn.Terminal:
        """One like it, as a program elsewhere is to get it."""
        modes = tuple(self._before[place] for place in (_INPUT, _OUTPUT, _LOCAL))
        characters = tuple(each if isinstance(each, int) else ord(each) for each in self._before[_CHARACTERS])
        return spawn.Terminal(*self.size(), modes, characters, os.isatty(2))

    def size(self) -> tuple[int, int]:
        """Rows and columns; zeros where it is gone."""
        try:
            found = os.get_terminal_size(1)
        except OSError:
            return 0, 0
        return found.lines, found.columns

    def enter(self) -> None:
        """Every key goes on as it is, Ctrl-C too, and nothing is shown but what the program says."""
        modes = [*self._before[:_CHARACTERS], list(self._before[_CHARACTERS])]
        modes[_INPUT] = (modes[_INPUT] | termios.IGNPAR) & ~sum(_NO_INPUT)
        modes[_OUTPUT] &= ~termios.OPOST
        modes[_LOCAL] &= ~sum(_NO_LOCAL)
        modes[_CHARACTERS][termios.VMIN], modes[_CHARACTERS][termios.VTIME] = 1, 0
        self.is_raw = self._set(modes)

    def leave(self) -> None:
        """As it was before. Nothing happens where it is so."""
        if self.is_raw:
            self._set(self._before)
            self.is_raw = False

    def _set(self, modes: list[Any]) -> bool:
        """Whether it could be: one that others have in front is theirs, and one that is gone is nobody's."""
        if not is_in_front(0):
            return False
        held = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # what stops whoever has just lost it
        try:
            termios.tcsetattr(0, termios.TCSANOW, modes)
        except termios.error:
            return False
        finally:
            signal.signal(signal.SIGTTOU, held)
        return True
