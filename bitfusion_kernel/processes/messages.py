"""The messages between proxy, supervisor and launcher: commands and events. Pure.

    proxy -> supervisor      JoinCommand, StartCommand, TakeCommand, DropCommand, KernelCommand,
                             NextKernelCommand, SignalCommand, WorkedCommand, WatchCommand, ParkCommand,
                             StopCommand
    supervisor -> launcher   KernelCommand, SignalCommand, WatchCommand, ParkCommand, StopCommand
    launcher -> supervisor   LaunchedEvent, WorkingEvent, KernelExitedEvent
    supervisor -> proxy      JoinedEvent, RefusedEvent, StartedEvent, OutputEvent, GrantedEvent,
                             LaunchedEvent, WorkingEvent, KernelExitedEvent, WrapperExitedEvent, StoppedEvent

Each is one line (`bitfusion_client.typed_lines`), sent over a stream socket by `MessageConnection`. The
launcher may be elsewhere, in a pod of its own: nothing in a message says that both ends share a machine but
the path of a socket, and pids count where `pid_space` says. Where in the wrapper's output the kernel's
begins is told there, by a line of the launcher's (`launcher.KERNEL_SPEAKS`): no message comes between lines.

A launcher may be older, in a pod with another image, or newer, after an update: a new field has a default. A
proxy may be newer than the supervisor that it finds, after an update and a restart: `VERSION` is raised when
the two could misunderstand each other; what JoinCommand and RefusedEvent say never changes. A new message is
one class and its place in `MESSAGES`.
"""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import dataclass
from bitfusion_client.typed_lines import InvalidMessage, TypedLines, WrongValue

__all__ = ["InvalidMessage"]


VERSION = 1
"""Of what proxy and supervisor say to each other."""


@dataclass(frozen=True, slots=True)
class Message:
    """What commands and events have in common: `TYPE`, the name on the wire, and fields of JSON's types."""

    TYPE = ""

    def format(self) -> bytes:
        """The message as one line, with its line end."""
        return _LINES.format(self)


@dataclass(frozen=True, slots=True)
class Command(Message):
    """What the proxy, or the supervisor, wants done."""


@dataclass(frozen=True, slots=True)
class Event(Message):
    """What has happened, told by supervisor or launcher.

    A `status` is an exit code, or the negative number of the signal that killed the process.
    """


@dataclass(frozen=True, slots=True)
class StartCommand(Command):
    """Start one wrapper. The answer is StartedEvent, or WrapperExitedEvent if it can't be executed.

    `argv` is the whole command line: the wrapper, the launcher, the kernel. The launcher connects to
    `socket_path`, on which the supervisor listens from now on. `number` counts the wrappers of one proxy;
    the wrapper's end is reported with it. `held_file`, unless empty, is made and kept locked meanwhile.
    `folder`, unless empty, is where the wrapper runs. `note` is told to the next proxy that joins, as it is.

    `beside`, unless 0, says that another wrapper runs, and keeps what it has. This one has so many seconds to
    get GPUs: GrantedEvent tells that it has, and TakeCommand puts it in the other's place. Else it is ended.
    """

    TYPE = "start"
    number: int
    argv: list[str]
    environment: dict[str, str]
    socket_path: str
    held_file: str = ""
    folder: str = ""
    note: str = ""
    beside: float = 0.0


@dataclass(frozen=True, slots=True)
class TakeCommand(Command):
    """The wrapper beside takes the place of the one that has ended: what its launcher has told follows."""

    TYPE = "take"


@dataclass(frozen=True, slots=True)
class DropCommand(Command):
    """End the wrapper beside, whether it has GPUs or waits; WrapperExitedEvent follows."""

    TYPE = "drop"


@dataclass(frozen=True, slots=True)
class JoinCommand(Command):
    """The first message of a proxy that finds a supervisor. The answer is JoinedEvent or RefusedEvent.

    `restarter` is the process that would start the next proxy: Jupyter's, or whatever ends with it.
    """

    TYPE = "join"
    version: int
    restarter: int = 0


@dataclass(frozen=True, slots=True)
class KernelCommand(Command):
    """Run another kernel on the lease: the one before, if it still runs, is ended with all its processes.

    `number` counts the kernels of one supervisor; the launcher is told a larger one for what takes the place
    of a NextKernelCommand. `environment` is the next proxy's; the supervisor adds in `wrapped` with which one
    the wrapper was started: what that one has changed holds for each kernel.
    """

    TYPE = "kernel"
    number: int
    argv: list[str]
    environment: dict[str, str]
    wrapped: dict[str, str]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class NextKernelCommand(Command):
    """After ParkCommand: the kernel that the next proxy will want. It starts when the one before has ended.

    So it starts while Jupyter still starts that proxy. Its KernelCommand takes what runs if it says the same,
    with the same number; else another kernel is started, as without this.
    """

    TYPE = "next_kernel"
    number: int
    argv: list[str]
    environment: dict[str, str]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ParkCommand(Command):
    """Keep what there is, the lease or the place in the queue, without a kernel.

    To the supervisor: the next proxy comes within so many `seconds`. To the launcher: the kernel ends within
    these, or is killed.
    """

    TYPE = "park"
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkedCommand(Command):
    """A cell has finished: earlier deaths of this kernel count no longer."""

    TYPE = "worked"


@dataclass(frozen=True, slots=True)
class WatchCommand(Command):
    """Tell by WorkingEvent, at most once in so many `seconds`, that the kernel's processes work; 0: don't.

    Each proxy asks for itself. The supervisor passes it on to every launcher; an older one never tells.
    """

    TYPE = "watch"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StopCommand(Command):
    """End what runs: the kernel first, then the wrapper, which gives its GPUs back. StoppedEvent follows.

    `spares` leaves the wrapper beside it.
    """

    TYPE = "stop"
    spares: bool = False


@dataclass(frozen=True, slots=True)
class SignalCommand(Command):
    """Send the kernel's process group a signal, if there is a kernel.

    The launcher does, who is the kernel's parent: no pid is used where it may be another process's.
    """

    TYPE = "signal"
    number: int


@dataclass(frozen=True, slots=True)
class StartedEvent(Event):
    """The wrapper runs and asks the pool for its GPUs; `beside` is its number if it is the one beside."""

    TYPE = "started"
    pid: int
    beside: int = 0


@dataclass(frozen=True, slots=True)
class JoinedEvent(Event):
    """What the supervisor keeps for the proxy that has joined; `number` is 0 if it keeps nothing.

    `number` and `note` are those of the StartCommand. `asked_at` is `time.monotonic()` at the wrapper's
    start, `granted_at` when the pool granted it, 0 if it has not. `lines` are what it has said since, each
    after `o` or `e` for its stream, up to the kernel's first line. `stopping` tells whether the lease is just
    given back, `kernels` the largest number that a proxy has used. `supervisor` is its own pid.
    """

    TYPE = "joined"
    number: int = 0
    pid: int = 0
    note: str = ""
    asked_at: float = 0.0
    granted_at: float = 0.0
    stopping: bool = False
    kernels: int = 0
    lines: tuple[str, ...] = ()
    supervisor: int = 0


@dataclass(frozen=True, slots=True)
class RefusedEvent(Event):
    """The supervisor is not joined. `version` is its own; unless it is the proxy's, all is given back."""

    TYPE = "refused"
    version: int


@dataclass(frozen=True, slots=True)
class OutputEvent(Event):
    """One line that wrapper, launcher or kernel wrote to the wrapper's `stream`: `stdout` or `stderr`.

    `beside` is the number of the wrapper beside, if that has written it; else 0.
    """

    TYPE = "output"
    stream: str
    text: str
    beside: int = 0


@dataclass(frozen=True, slots=True)
class GrantedEvent(Event):
    """The wrapper beside has GPUs, and a kernel starts on them. It keeps them for a TakeCommand soon."""

    TYPE = "granted"
    number: int


@dataclass(frozen=True, slots=True)
class LaunchedEvent(Event):
    """The GPUs are granted and the kernel is starting.

    `environment` holds the variables with which the wrapper describes the lease. `pid_space` says where the
    pids are numbered (`process_watch.pid_space`). To the proxy the supervisor tells 0 for pids of elsewhere:
    here their numbers are other processes', or nobody's. `kernel` is the number of the KernelCommand that the
    launcher was sent; its first kernel has none.
    """

    TYPE = "launched"
    launcher_pid: int
    kernel_pid: int
    environment: dict[str, str]
    pid_space: str = ""
    kernel: int = 0


@dataclass(frozen=True, slots=True)
class WorkingEvent(Event):
    """The kernel, or what it has started, has used the CPU within the last `seconds` (`work_watch`).

    Told only if WatchCommand asks for it, and only of work: silence says that there was none.
    """

    TYPE = "working"
    seconds: float
    kernel: int = 0


@dataclass(frozen=True, slots=True)
class KernelExitedEvent(Event):
    """The kernel has ended; the wrapper has not. `last`: the lease is given back for it.

    `oom_kills`, told with a SIGKILL: how many processes Linux has killed for want of memory where the kernel
    is, since its start; -1: nobody counts.
    """

    TYPE = "kernel_exited"
    status: int
    kernel: int = 0
    last: bool = False
    oom_kills: int = -1


@dataclass(frozen=True, slots=True)
class WrapperExitedEvent(Event):
    """The wrapper that was started as `number` has ended, and all its output has been sent."""

    TYPE = "wrapper_exited"
    number: int
    status: int


@dataclass(frozen=True, slots=True)
class StoppedEvent(Event):
    """The answer to StopCommand: nothing runs any more."""

    TYPE = "stopped"


MESSAGES: tuple[type[Message], ...] = (
    *(JoinCommand, StartCommand, TakeCommand, DropCommand, KernelCommand, NextKernelCommand, SignalCommand),
    *(WorkedCommand, WatchCommand, ParkCommand, StopCommand, JoinedEvent, RefusedEvent, StartedEvent),
    *(OutputEvent, GrantedEvent, LaunchedEvent, WorkingEvent, KernelExitedEvent, WrapperExitedEvent),
    *(StoppedEvent,),
)


def parse(line: bytes) -> Message | None:
    """The message in one line; None if its type is not known here. Raises InvalidMessage."""
    message: Message | None = _LINES.parse(line)
    return message


def _number(value: object) -> int:
    if type(value) is not int:
        raise WrongValue("must be a whole number")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongValue("must be a number")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("must be true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue("must be text")
    return value


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise WrongValue("must be a list of text")
    return [_text(word) for word in value]


def _lines(value: object) -> tuple[str, ...]:
    return tuple(_words(value)) if value != [] else ()


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise WrongValue("must be texts by name")
    return {name: _text(text) for name, text in value.items()}


_LINES = TypedLines(
    {message.TYPE: message for message in MESSAGES},
    {},
    {
        "int": _number,
        "float": _seconds,
        "bool": _truth,
        "str": _text,
        "list[str]": _words,
        "tuple[str, ...]": _lines,
        "dict[str, str]": _texts,
    },
    json.dumps,
    json.loads,
)
