"""The few signal functions the wrapper needs, without the enums of `signal` (3 ms of its start)."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
else:
    import _signal

SIGHUP, SIGINT, SIGTERM, SIGCHLD = 1, 2, 15, 17
SIGPIPE, SIGXFSZ = 13, 25
FROM_KERNEL = 0x80  # si_code of what a terminal sends; the whole foreground group has got it then

HANDLED = (SIGINT, SIGTERM, SIGHUP)


class Interrupted(BaseException):
    """A signal ended the wait for GPUs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)


def manner_of(number: int, sigint: str, sigterm: str) -> str:
    """forward, die or ignore; SIGHUP is treated as SIGTERM."""
    return sigint if number == SIGINT else sigterm


def raise_on_signals(sigint: str = "forward", sigterm: str = "forward") -> None:
    """While there is no program yet, these signals end the client (unless its manners say otherwise)."""
    for number in HANDLED:
        if _signal.getsignal(number) == _signal.SIG_IGN:
            continue  # nohup, or a background job of a plain sh: as the one who started us wants it
        manner = manner_of(number, sigint, sigterm)
        if manner == "forward":
            _signal.signal(number, _raise)
        elif manner == "die":
            _signal.signal(number, _signal.SIG_DFL)
        else:
            _signal.signal(number, lambda *_: None)  # a handler, since programs would inherit "ignore"


def block() -> set[int]:
    """Keep the handled signals and SIGCHLD pending for `next_signal`; returns the mask from before."""
    _signal.signal(SIGCHLD, _signal.SIG_DFL)  # ignored by some parents: then nobody would learn the status
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (*HANDLED, SIGCHLD))
    return {int(number) for number in before}


def next_signal() -> tuple[int, bool]:
    """Wait for one of the blocked signals: its number, and whether a terminal sent it to everybody."""
    info = _signal.sigwaitinfo((*HANDLED, SIGCHLD))
    return info.si_signo, info.si_code == FROM_KERNEL


def die_of(number: int) -> None:
    """End this process as if it had never heard of the signal."""
    import os

    _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
