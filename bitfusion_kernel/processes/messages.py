"""The messages between proxy, supervisor and launcher: commands and events. Pure.

    proxy -> supervisor      StartCommand, StopCommand
    supervisor -> launcher   StopCommand
    launcher -> supervisor   LaunchedEvent, KernelExitedEvent
    supervisor -> proxy      StartedEvent, OutputEvent, LaunchedEvent, KernelExitedEvent,
                             WrapperExitedEvent, StoppedEvent

Each is one line (`bitfusion_client.typed_lines`), sent over a stream socket by `MessageConnection`. The
launcher may be elsewhere, in a pod of its own: nothing in a message says that both ends share a machine but
the path of a socket, and pids count where `pid_space` says.

Proxy and supervisor are of one version; a launcher may be older, in a pod with another image, or newer, after
an update: a new field has a default. A new message is one class and its place in `MESSAGES`.
"""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import dataclass
from bitfusion_client.typed_lines import InvalidMessage, TypedLines, WrongValue

__all__ = ["InvalidMessage"]


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
    """

    TYPE = "start"
    number: int
    argv: list[str]
    environment: dict[str, str]
    socket_path: str
    held_file: str = ""


@dataclass(frozen=True, slots=True)
class StopCommand(Command):
    """End what runs: the kernel first, then the wrapper, which gives its GPUs back. StoppedEvent follows."""

    TYPE = "stop"


@dataclass(frozen=True, slots=True)
class StartedEvent(Event):
    """The wrapper runs and asks the pool for its GPUs."""

    TYPE = "started"
    pid: int


@dataclass(frozen=True, slots=True)
class OutputEvent(Event):
    """One line that wrapper, launcher or kernel wrote to the wrapper's `stream`: `stdout` or `stderr`."""

    TYPE = "output"
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class LaunchedEvent(Event):
    """The GPUs are granted and the kernel is starting.

    `environment` holds the variables with which the wrapper describes the lease. `pid_space` says where the
    pids are numbered (`process_watch.pid_space`). To the proxy the supervisor tells 0 for pids of elsewhere:
    here their numbers are other processes', or nobody's.
    """

    TYPE = "launched"
    launcher_pid: int
    kernel_pid: int
    environment: dict[str, str]
    pid_space: str = ""


@dataclass(frozen=True, slots=True)
class KernelExitedEvent(Event):
    """The kernel has ended; the wrapper has not yet."""

    TYPE = "kernel_exited"
    status: int


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
    *(StartCommand, StopCommand),
    *(StartedEvent, OutputEvent, LaunchedEvent, KernelExitedEvent, WrapperExitedEvent, StoppedEvent),
)


def parse(line: bytes) -> Message | None:
    """The message in one line; None if its type is not known here. Raises InvalidMessage."""
    message: Message | None = _LINES.parse(line)
    return message


def _number(value: object) -> int:
    if type(value) is not int:
        raise WrongValue("must be a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue("must be text")
    return value


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise WrongValue("must be a list of text")
    return [_text(word) for word in value]


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise WrongValue("must be texts by name")
    return {name: _text(text) for name, text in value.items()}


_LINES = TypedLines(
    {message.TYPE: message for message in MESSAGES},
    {},
    {"int": _number, "str": _text, "list[str]": _words, "dict[str, str]": _texts},
    json.dumps,
    json.loads,
)
