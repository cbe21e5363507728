"""Signals of the `bitfusion` command: end the wait, forward to the program, or die, as the emulation says.

Uses the C module: the enums of `signal` cost 3 ms of every start.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
else:
    import _signal

SIGHUP, SIGINT, SIGTERM, SIGCHLD = 1, 2, 15, 17
SIGPIPE, SIGALRM, SIGXFSZ = 13, 14, 25
HANDLED = (SIGINT, SIGTERM, SIGHUP)
_FROM_KERNEL = 0x80  # si_code of what a terminal sends, to the whole foreground process group


class Interrupted(BaseException):
    """A signal ended the wait for GPUs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def reaction(number: int, sigint: str, sigterm: str) -> str:
    """``forward``, ``die`` or ``ignore``, from the emulation settings; SIGHUP is treated as SIGTERM."""
    return sigint if number == SIGINT else sigterm


def raise_on_signals(sigint: str = "forward", sigterm: str = "forward") -> None:
    """Let signals end the command as long as there is no program to forward them to.

    Args:
        sigint: The emulation setting: ``forward`` raises Interrupted here.
        sigterm: The same for SIGTERM and SIGHUP.
    """
    for number in HANDLED:
        if _signal.getsignal(number) == _signal.SIG_IGN:
            continue  # nohup, or a background job of a plain sh: our parent wants it ignored
        wanted = reaction(number, sigint, sigterm)
        if wanted == "forward":
            _signal.signal(number, _raise_interrupted)
        elif wanted == "die":
            _signal.signal(number, _signal.SIG_DFL)
        else:
            # an empty handler, because programs would inherit SIG_IGN
            _signal.signal(number, lambda *_: None)


def block() -> set[int]:
    """Keep the handled signals and SIGCHLD pending for `next_signal`; returns the mask from before."""
    # a parent may have set SIG_IGN, which would hide the child's status
    _signal.signal(SIGCHLD, _signal.SIG_DFL)
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (*HANDLED, SIGCHLD))
    return {int(number) for number in before}


def tick(seconds: float) -> None:
    """Have `next_signal` return SIGALRM so often; called after `block`.

    Not by `sigtimedwait`: after SIGSTOP and SIGCONT Python 3.11 returns from it what lay on the stack.
    """
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds, seconds)


def next_signal(ticks: bool = False) -> tuple[int, bool]:
    """Wait for one of the blocked signals.

    Args:
        ticks: Whether `tick` was called.

    Returns:
        Its number, and whether a terminal sent it to the whole foreground process group. A hang-up it sends
        to the leader of the session alone, which this command is under `ssh -t host bitfusion run …`
        (`tty_signal_session_leader` of Linux).
    """
    info = _signal.sigwaitinfo((*HANDLED, SIGCHLD, *((SIGALRM,) if ticks else ())))
    return info.si_signo, info.si_code == _FROM_KERNEL and info.si_signo != SIGHUP


def die_of(number: int) -> None:
    """End this process by the signal, as if it had no handler."""
    import os

    _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)


def _raise_interrupted(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
