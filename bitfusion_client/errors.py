"""The errors of this project, in one tree; each tells a person what happened and what to do next.

::

    BitfusionError
    ├── WrongInput                what a person wrote cannot be used
    │   ├── InvalidRequest        a value of a request for GPUs, wherever it was written
    │   │   └── WrongKey          its name, or its place, whatever the value
    │   ├── UsageError            a command line
    │   └── WrongSetting          a setting: option, environment variable, config file
    ├── NoGpuGiven                the pool was asked and no GPU came of it
    │   ├── NeverSatisfiable      no server could ever serve the request
    │   ├── NoGpusAvailable       none is free, and the client does not wait
    │   ├── OverLimit             this user has as much as one may have
    │   ├── PodRefused            the cluster cannot make or start a pod with a GPU
    │   ├── WaitTimedOut          none became free in time
    │   └── WaitCancelled         the person interrupted the waiting
    ├── PoolOutOfReach            the pool could not be asked
    │   ├── ClientNotFound        there is no `bitfusion` command
    │   ├── ServersUnreachable    no server answered
    │   ├── TokenExpired          the servers refuse this client's token
    │   ├── PoolUnreadable        the embedded pool's files or service cannot be used
    │   └── ClusterUnusable       the cluster's API cannot be asked for a pod
    ├── ProcessDied               a process that runs cells ended by itself
    │   ├── WrapperDied           `bitfusion run`, and with it the GPUs
    │   ├── PoolLost              the GPUs: their pool was out of reach for too long
    │   ├── PodLost               the pod in the cluster in which it ran
    │   └── KernelDied            the kernel
    └── ClientFailed              the `bitfusion` command failed in a way none of the above names

Packages derive errors of their own from these. The kernel shows `user_message` in cells, the commands on
stderr, admission in the error bar of the notebook form. A caller that treats several errors alike catches
their group; nothing raises a group itself.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line, shown_value

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_KEY = 100  # characters of a key that are shown


class BitfusionError(Exception):
    """Base of all errors of this project.

    The commands catch it to tell a person what happened::

        try:
            ...
        except BitfusionError as error:
            print(error.user_message, file=sys.stderr)

    Attributes:
        headline: What happened, the class's own sentence.
        asked: What was asked for, as text; may be empty.
        answered: The words of the pool or of the operating system; may be empty.
        next_step: What the person can do; may be empty.
    """

    headline = "The GPU pool could not do this."
    next_step = ""

    def __init__(self, asked: object = "", answered: str = "", next_step: str = "") -> None:
        """`asked` is a GpuRequest or text; `next_step` replaces that of the class."""
        super().__init__(asked, answered, next_step)
        describe = getattr(asked, "describe", None)
        self.asked = one_line(describe() if callable(describe) else asked or "")
        self.answered = one_line(answered)
        if next_step:
            self.next_step = next_step

    @property
    def user_message(self) -> str:
        """At most four lines of plain text: what happened, what was asked, the answer, what to do."""
        lines = [one_line(self.headline)]
        if self.asked:
            lines.append(f"Asked for: {self.asked}")
        if self.answered:
            lines.append(f"Answer: {self.answered}")
        if self.next_step:
            lines.append(f"What to do: {one_line(self.next_step)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.answered or one_line(self.headline)


class PrintedError(BitfusionError):
    """One that the `bitfusion` command prints after ``Error: `` with its next step, and that is read of that.

    Attributes:
        BEGINNING: With which it begins, to be known by.
    """

    BEGINNING = ""
    CURE = ". What to do: "

    def __str__(self) -> str:
        return f"{self.BEGINNING}{self.answered}{self.CURE}{self.next_step}"

    @classmethod
    def from_text(cls, asked: object, text: str) -> PrintedError:
        """The error that was printed as `text`."""
        answered, _, cure = text.partition(cls.CURE)
        return cls(asked, answered.removeprefix(cls.BEGINNING), cure)


class WrongInput(BitfusionError):
    """What a person wrote cannot be used as it stands. `headline` says what is wrong."""

    def __str__(self) -> str:
        return self.headline


class InvalidRequest(WrongInput):
    """A value of a request for GPUs is wrong.

    `str()` is what the `bitfusion` command prints after ``Error: ``.

    Attributes:
        field: The field of GpuRequest, or the key or annotation the value was read from.
        value: The value, of any type.
        allowed: What is allowed instead.
        spelled: How the person wrote the field (``-p``, ``bitfusion.io/gpu-percent``).
    """

    def __init__(self, field: str, value: object, allowed: str, spelled: str = "") -> None:
        super().__init__()
        self.args = (field, value, allowed, spelled)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.spelled = spelled or field
        self.headline = (
            f'invalid value "{shown_value(value)}" for {one_line(self.spelled)}: {one_line(allowed)}'
        )

    @property
    def user_message(self) -> str:
        """One line: the field, the value, what is allowed."""
        return self.headline[0].upper() + self.headline[1:]


class WrongKey(InvalidRequest):
    """A key of a request is unknown, in the wrong place or one too many, whatever its value.

    Attributes:
        next_step: What to write instead; may be empty.
    """

    def __init__(
        self, field: str, value: object, problem: str, next_step: str = "", spelled: str = ""
    ) -> None:
        """`problem` goes on where the key ends: ``is no size``."""
        super().__init__(field, value, problem, spelled or field)
        self.args = (field, value, problem, next_step, spelled)
        self.next_step = next_step
        self.headline = f"{one_line(self.spelled, LONGEST_KEY)} {one_line(problem)}"

    @property
    def user_message(self) -> str:
        """One line: the key, and what is wrong with it."""
        return self.headline


class UsageError(WrongInput):
    """A command line that cannot be understood: unknown option, option without value, nothing to run."""

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__("", "", next_step)
        self.args = (problem, next_step)
        self.headline = one_line(problem)


class WrongSetting(WrongInput):
    """A setting has a value that cannot be used.

    Attributes:
        name: The setting.
        value: Its value, of any type.
        allowed: What is allowed instead.
        source: Where it was read: ``BITFUSION_PARTIAL``, ``--bitfusion-partial``, a file's path, or "".
    """

    def __init__(self, name: str, value: object, allowed: str, source: str = "") -> None:
        super().__init__()
        self.args = (name, value, allowed, source)
        self.name = name
        self.value = value
        self.allowed = allowed
        self.source = source
        origin = f" (from {one_line(source)})" if source else ""
        self.headline = f'wrong setting {one_line(name)}="{shown_value(value)}"{origin}: {one_line(allowed)}'

    @property
    def user_message(self) -> str:
        """One line: the setting, its value, where it came from, what is allowed."""
        return self.headline[0].upper() + self.headline[1:]


class NoGpuGiven(BitfusionError):
    """The pool was asked for GPUs and gave none. The same request may succeed later, or a smaller one."""


class NeverSatisfiable(NoGpuGiven):
    """No server of the pool could serve this request, however long it waited."""

    headline = "No server in the pool can ever satisfy this request."
    next_step = (
        "request fewer GPUs or less memory (`%bitfusion request -n 1`); "
        "`%bitfusion list_gpus` shows the servers."
    )


class NoGpusAvailable(NoGpuGiven):
    """The pool has no free GPUs and the client gave up at once instead of waiting."""

    headline = "No GPU is free right now."
    next_step = "run the cell again later, or ask for less; `%bitfusion pool` shows who holds the GPUs."


class OverLimit(NoGpuGiven, PrintedError):
    """A pool's service lets one user have no more than this one has already."""

    headline = "You have reached your limit in this pool."
    next_step = "release something first; `%bitfusion pool` shows who holds what."
    BEGINNING = "limit of the pool: "


class PodRefused(NoGpuGiven, PrintedError):
    """The cluster cannot make or start a pod with a GPU for this request, however long it waited."""

    headline = "The cluster cannot run a pod with a GPU for this request."
    next_step = "ask your administrator; `%bitfusion log` shows everything that the cluster reported."
    BEGINNING = "GPU pod: "


class WaitTimedOut(NoGpuGiven):
    """The request waited as long as it was allowed to."""

    headline = "No GPU became free in time."
    next_step = (
        "run the cell again, ask for less, or wait longer (`%bitfusion request --timeout 2h`); "
        "`%bitfusion pool` shows who holds the GPUs."
    )


class WaitCancelled(NoGpuGiven):
    """The person interrupted the waiting."""

    headline = "Waiting for GPUs was cancelled."
    next_step = "run the cell again to wait again."


class PoolOutOfReach(BitfusionError):
    """The pool could not be asked: no command, no answer, no valid token, or files that cannot be used."""


class ClientNotFound(PoolOutOfReach):
    """There is no `bitfusion` command that can be executed, not even the embedded one."""

    headline = "There is no `bitfusion` command on this machine."
    next_step = (
        "install the client, put it on PATH, or set BITFUSION_CLIENT to its path; "
        "without one, reinstall kubeflow-bitfusion to get the embedded pool back."
    )

    def __init__(self, looked_at: Sequence[str], configured: bool = False) -> None:
        """`looked_at`: the places, in order. `configured`: a setting named the only one."""
        super().__init__("", "looked at " + ", ".join(looked_at) if looked_at else "")
        self.args = (looked_at, configured)
        if configured:
            self.headline = "The configured `bitfusion` command cannot be run."
            self.next_step = "correct the path in BITFUSION_CLIENT or in the setting `client`, or remove it."
        self.looked_at = list(looked_at)


class ServersUnreachable(PoolOutOfReach):
    """None of the GPU servers answered: network, a slow server, or a token they do not accept.

    `str()` is what the `bitfusion` command prints after ``Error: ``, with the next step if it knows a better
    one than the class.
    """

    headline = "None of the GPU servers answered."
    next_step = (
        "try again; `%bitfusion health` shows what is wrong. If that does not help, your administrator "
        "must check the network and this client's token."
    )
    CURE = " What to do: "  # the real client's sentence, which comes before, ends with a full stop

    def __str__(self) -> str:
        known = self.next_step != type(self).next_step
        return f"{self.answered}{self.CURE}{self.next_step}" if known else self.answered


class TokenExpired(PoolOutOfReach):
    """This client's token is past its date."""

    headline = "This client's access to the GPU pool has expired."
    next_step = "ask your administrator for a new token or a later expiry date for the client."


class PoolUnreadable(PoolOutOfReach, PrintedError):
    """The embedded pool's files or its service cannot be used; each cause has a `next_step` of its own."""

    headline = "The embedded GPU pool cannot be used."
    next_step = "`bitfusion health` checks the pool's files."


class ClusterUnusable(PoolOutOfReach, PrintedError):
    """The cluster's API cannot be asked for a pod, or not by this pod."""

    headline = "The cluster cannot be reached to request a GPU."
    next_step = "try again; `%bitfusion health` shows what is wrong."
    BEGINNING = "cluster: "


class ProcessDied(BitfusionError):
    """A process that runs cells ended by itself."""

    next_step = (
        "restart the kernel, unless Jupyter has done that already, "
        "and run the cells again from the first one."
    )


class WrapperDied(ProcessDied):
    """`bitfusion run` ended while the kernel still needed it; the GPUs are gone."""

    headline = "The `bitfusion run` process under this kernel has died; its GPUs are gone."


class PoolLost(ProcessDied):
    """`bitfusion run` has ended its program: its pool was out of reach, and may give the GPUs to others."""

    headline = "The GPU pool was out of reach for too long, so this kernel was ended."
    next_step = (
        "when the pool is back (`%bitfusion health`), restart the kernel, unless Jupyter has done that "
        "already, and run the cells again from the first one."
    )


class PodLost(ProcessDied, PrintedError):
    """The pod on a GPU node in which the kernel ran has ended: evicted, out of memory, with its node."""

    headline = "The pod in which this kernel ran has ended, and its GPUs are gone."
    BEGINNING = "GPU pod lost: "


class KernelDied(ProcessDied):
    """The kernel's process ended by itself."""

    headline = "The kernel has died."


class ClientFailed(BitfusionError):
    """The `bitfusion` command failed in a way none of the other classes names.

    Attributes:
        answered: The last lines it printed.
        exit_status: As a shell counts, 128 + signal, or negative for a signal; None if nobody saw it.
    """

    headline = "The `bitfusion` client failed."
    next_step = "`%bitfusion log` shows its whole output, `%bitfusion health` the state of the servers."

    def __init__(
        self, asked: object = "", answered: str = "", next_step: str = "", exit_status: int | None = None
    ) -> None:
        super().__init__(asked, answered, next_step)
        self.args = (asked, answered, next_step, exit_status)
        self.exit_status = exit_status
