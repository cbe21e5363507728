"""Signals, which end the command while it waits; then they are bytes in a pipe, which a loop reads."""

from __future__ import annotations

import os
import signal

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Those that end a command which has no program to pass them on to."""


class Interrupted(Exception):
    """A signal has ended the command: it had no program to pass it on to."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on(numbers: Iterable[int]) -> None:
    """From now on each of these raises Interrupted, wherever the main thread is. An ignored one stays so."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(number)

    _handle(numbers, interrupt)


def hold(numbers: Iterable[int]) -> None:
    """From now on each of these does nothing: something is brought to its end."""
    _handle(numbers, lambda *_: None)


def as_bytes(numbers: Iterable[int]) -> int:
    """From now on each of these signals is one byte in this pipe. Called once, by the main thread.

    Process 1 of a pod gets only signals for which it has a handler. One that the parent wants ignored, as
    `nohup` does, stays so.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    _handle(numbers, lambda *_: None)
    return read_end


def read(fd: int) -> bytes:
    """Those that have come."""
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


def _handle(numbers: Iterable[int], handler: Callable[[int, object], None]) -> None:
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
