"""What this process's stdin, stdout and stderr are, and how a loop uses them that others use, too."""

from __future__ import annotations

import errno
import os
import stat

NUMBERS = (0, 1, 2)
_NOTHING = "/dev/null"


def hold_closed() -> None:
    """Called first of all: so that nothing else becomes number 0, 1 or 2 where one of them is closed.

    What is put there can neither be read nor written, as what is closed.
    """
    for _ in NUMBERS:
        fd = os.open(_NOTHING, os.O_PATH)
        if fd not in NUMBERS:
            os.close(fd)
            return


def closed() -> tuple[int, ...]:
    """Those that are closed."""
    return tuple(number for number in NUMBERS if _is_closed(number))


def _is_closed(number: int) -> bool:
    import fcntl

    try:
        return bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_PATH)
    except OSError:
        return True


def source(number: int) -> int:
    """Where to read from it."""
    return _copy(number)


def sink(number: int) -> int:
    """Where to write to it, without blocking where that can be had without changing it for others.

    A pipe or terminal is opened anew for that. A file is not: it would lose its place; and never blocks.
    """
    try:
        kind = os.fstat(number).st_mode
        if stat.S_ISFIFO(kind) or os.isatty(number):
            path = f"/proc/self/fd/{number}"
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # of another user's, or with a reader that is gone
        pass
    return _copy(number)


def _copy(number: int) -> int:
    try:
        return os.dup(number)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return os.open(_NOTHING, os.O_PATH)


def let_go(number: int) -> None:
    """The program has closed its own: whoever is at the other end sees that, though this process lives."""
    fd = os.open(_NOTHING, os.O_RDWR)
    os.dup2(fd, number)
    os.close(fd)


def is_in_front(number: int) -> bool:
    """Whether this process may read it: it is no terminal, or one that has this process in front."""
    try:
        return os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return True
