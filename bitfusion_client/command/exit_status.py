"""How a process ended, in words: "ended with exit code 3", "was killed by SIGKILL"."""

from __future__ import annotations


def describe_exit(status: int | None) -> str:
    """The end of a process as a predicate, for messages such as "the kernel process was killed by SIGKILL".

    Args:
        status: As `subprocess` and `os.waitstatus_to_exitcode` give it: negative numbers are signals. None
            if nobody saw the process end.
    """
    if status is None:
        return "ended in an unknown way"
    if status >= 0:
        return f"ended with exit code {status}"
    import signal  # brings enum; this module is imported by processes that must start fast

    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a signal without a name
        return f"was killed by signal {-status}"


def from_shell(status: int | None) -> int | None:
    """An exit status as a shell reports it, 128 + signal, as the negative number that `describe_exit` takes.

    `bitfusion run` answers so for its program. 64 is the highest signal of Linux.
    """
    return 128 - status if status is not None and 128 < status <= 128 + 64 else status
