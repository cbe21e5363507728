"""One tree of errors. Every one can tell a person what was asked, what was answered and what to do next.

Raised by all rooms; shown by the kernel in cells, by the commands on stderr, by admission in the form.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_PART = 400  # characters of one line of a user message


def _shown(value: object) -> str:
    if isinstance(value, str):
        return _one_line(value)
    try:
        return _one_line(repr(value))
    except ValueError:  # an int with more digits than Python is willing to print
        return "a number far too large"


def _one_line(text: object) -> str:
    flat = " ".join(str(text).split())
    if not flat.isprintable():  # an escape sequence would reach a terminal or a log
        flat = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in flat)
    return flat if len(flat) <= LONGEST_PART else flat[: LONGEST_PART - 1] + "…"


class BitfusionError(Exception):
    """Base of all errors of this project.

    `asked` is a GpuRequest or text, `answered` the words of the pool or the system, `next_step` what the
    person can do; each may be empty. `headline` is the class's own sentence of what happened.
    """

    headline = "The GPU pool could not do this."
    next_step = ""

    def __init__(self, asked: object = "", answered: str = "", next_step: str = "") -> None:
        super().__init__(asked, answered, next_step)
        describe = getattr(asked, "describe", None)
        self.asked = _one_line(describe() if callable(describe) else asked or "")
        self.answered = _one_line(answered)
        if next_step:
            self.next_step = next_step

    @property
    def user_message(self) -> str:
        """At most four lines of plain text: what happened, what was asked, the answer, what to do."""
        lines = [_one_line(self.headline)]
        if self.asked:
            lines.append(f"Asked for: {self.asked}")
        if self.answered:
            lines.append(f"Answer: {self.answered}")
        if self.next_step:
            lines.append(f"What to do: {_one_line(self.next_step)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.answered or _one_line(self.headline)


class InvalidRequest(BitfusionError):
    """A value of a request is wrong. `field` is the name in GpuRequest, or the key it was spelled with.

    `spelled` is how the person wrote the field (``-p``, ``bitfusion.io/gpu-percent``), if it differs.
    `str()` is the text after ``Error: `` of the command.
    """

    def __init__(self, field: str, value: object, allowed: str, spelled: str = "") -> None:
        super().__init__()
        self.args = (field, value, allowed, spelled)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.spelled = spelled or field
        self.headline = f'invalid value "{_shown(value)}" for {_one_line(self.spelled)}: {_one_line(allowed)}'

    @property
    def user_message(self) -> str:
        """One line: the field, the value, what is allowed."""
        return self.headline[0].upper() + self.headline[1:]

    def __str__(self) -> str:
        return self.headline


class UsageError(BitfusionError):
    """A command line that cannot be understood: unknown option, option without value, nothing to run."""

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__("", "", next_step)
        self.args = (problem, next_step)
        self.headline = _one_line(problem)


class ClientNotFound(BitfusionError):
    """There is no `bitfusion` command, not even the embedded one. `looked_at`: the places, in order.

    `configured`: the one place was named by the person, nothing else was tried.
    """

    headline = "There is no `bitfusion` command on this machine."
    next_step = (
        "install the client, put it on PATH, or set BITFUSION_CLIENT to its path; "
        "without one, reinstall kubeflow-bitfusion to get the embedded pool back."
    )

    def __init__(self, looked_at: Sequence[str], configured: bool = False) -> None:
        super().__init__("", "looked at " + ", ".join(looked_at) if looked_at else "")
        self.args = (looked_at, configured)
        if configured:
            self.headline = "The configured `bitfusion` command cannot be executed."
            self.next_step = "correct the path in BITFUSION_CLIENT or the setting `client`, or leave it out."
        self.looked_at = list(looked_at)


class NeverSatisfiable(BitfusionError):
    """No server of the pool could serve this request, however long it waited."""

    headline = "No server of the pool can ever give this."
    next_step = (
        "ask for fewer GPUs or less memory (`%bitfusion request -n 1`); "
        "`%bitfusion list_gpus` shows the servers."
    )


class NoGpusAvailable(BitfusionError):
    """The pool has no free GPUs and the client gave up at once instead of waiting."""

    headline = "No GPU is free just now."
    next_step = "run the cell again later, or ask for less; `%bitfusion pool` shows who holds the GPUs."


class WaitTimedOut(BitfusionError):
    """The request waited as long as it was allowed to."""

    headline = "No GPU became free in time."
    next_step = (
        "run the cell again, ask for less, or wait longer (`%bitfusion request --timeout 2h`); "
        "`%bitfusion pool` shows who holds the GPUs."
    )


class ServersUnreachable(BitfusionError):
    """None of the GPU servers answered: network, a slow server, or a token they do not accept."""

    headline = "None of the GPU servers answered."
    next_step = (
        "try again; `%bitfusion health` shows what is wrong. If it stays so, your administrator "
        "must check the network and this client's token."
    )


class TokenExpired(BitfusionError):
    """This client's token is past its date."""

    headline = "This client's access to the GPU pool has expired."
    next_step = "ask your administrator to extend the client's expiration or for a new token."


class PoolUnreadable(BitfusionError):
    """The embedded pool's ledger or configuration cannot be read or written."""

    headline = "The records of the GPU pool on this machine cannot be read."
    next_step = "`bitfusion-pool status` says why; `bitfusion-pool init` makes a new one once nothing runs."


class WrapperDied(BitfusionError):
    """`bitfusion run` ended while the kernel still needed it; the GPUs are gone."""

    headline = "The `bitfusion run` process under this kernel has died; its GPUs are gone."
    next_step = "restart the kernel; `%bitfusion log` shows the client's last words."


class KernelDied(BitfusionError):
    """The kernel's process ended by itself."""

    headline = "The kernel has died."
    next_step = "restart the kernel and run the cells again."


class WaitCancelled(BitfusionError):
    """The person interrupted the waiting."""

    headline = "Waiting for GPUs was cancelled."
    next_step = "run the cell again to wait again."


class WrongSetting(BitfusionError):
    """A setting (option, environment, config file) has a value that cannot be used.

    `source` is where it was read: ``BITFUSION_PARTIAL``, ``--bitfusion-partial``, a file's path.
    """

    def __init__(self, name: str, value: object, allowed: str, source: str = "") -> None:
        super().__init__()
        self.args = (name, value, allowed, source)
        self.name = name
        self.value = value
        self.allowed = allowed
        self.source = source
        origin = f" (from {_one_line(source)})" if source else ""
        self.headline = f'wrong setting {_one_line(name)}="{_shown(value)}"{origin}: {_one_line(allowed)}'

    @property
    def user_message(self) -> str:
        """One line: the setting, its value, where it came from, what is allowed."""
        return self.headline[0].upper() + self.headline[1:]

    def __str__(self) -> str:
        return self.headline


class ClientFailed(BitfusionError):
    """The client ended in a way none of the other classes names. `answered` carries its last words.

    `exit_status`: as the shell counts, 128 + signal if it was killed; None if nobody saw it.
    """

    headline = "The `bitfusion` client failed."
    next_step = "`%bitfusion log` shows everything it said, `%bitfusion health` the state of the servers."

    def __init__(
        self, asked: object = "", answered: str = "", next_step: str = "", exit_status: int | None = None
    ) -> None:
        super().__init__(asked, answered, next_step)
        self.args = (asked, answered, next_step, exit_status)
        self.exit_status = exit_status
