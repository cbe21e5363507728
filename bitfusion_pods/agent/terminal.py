"""A terminal in the pod for a program whose caller has one."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_pods.spawn import Terminal

_INPUT, _OUTPUT, _LOCAL, _CHARACTERS = 0, 1, 3, 6  # where `termios.tcgetattr` has what


def open_terminal(asked: Terminal) -> tuple[int, int]:
    """Its two ends: that of whoever shows it, and that of the program.

    Raises:
        OSError: This pod has none to give.
    """
    shown, programs = os.openpty()
    try:
        _set_modes(programs, asked)
        resize(shown, asked.rows, asked.columns)
    except OSError:
        pass  # it has the size and the modes of a new one
    return shown, programs


def resize(shown: int, rows: int, columns: int) -> None:
    """Its window is another now; Linux tells the programs in front. Raises OSError."""
    import fcntl
    import struct
    import termios

    fcntl.ioctl(shown, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _set_modes(programs: int, asked: Terminal) -> None:
    """Those of the caller's, which may be of another version, and say less."""
    import termios

    try:
        modes = termios.tcgetattr(programs)
        for place, flags in zip((_INPUT, _OUTPUT, _LOCAL), asked.modes, strict=False):
            modes[place] = flags
        characters = modes[_CHARACTERS]
        for place, number in enumerate(asked.characters[: len(characters)]):
            characters[place] = number if isinstance(characters[place], int) else bytes([number])
        termios.tcsetattr(programs, termios.TCSANOW, modes)
    except termios.error as error:
        raise OSError(*error.args) from None
