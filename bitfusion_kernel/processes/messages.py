"""The messages between proxy, supervisor and launcher: commands, events, their parsing and formatting. Pure.

    proxy -> supervisor      StartCommand, StopCommand
    supervisor -> launcher   StopCommand
    launcher -> supervisor   LaunchedEvent, KernelExitedEvent
    supervisor -> proxy      StartedEvent, OutputEvent, LaunchedEvent, KernelExitedEvent,
                             WrapperExitedEvent, StoppedEvent

Each message is one JSON object: `type` and the fields of its class. `MessageConnection` sends and receives
them as lines over a stream socket. The launcher may be elsewhere, in a pod of its own: nothing in a message
says that both ends share a machine but the path of a socket, and pids count where `pid_space` says.

Proxy and supervisor are of one version; a launcher may be older, in a pod with another image, or newer, after
an update. So types and fields may be added, but none removed or renamed, and a new field has a default:
`parse` passes over what it doesn't know, takes the default of a field that is missing, and refuses a message
that is damaged. A new message is one class and its place in `MESSAGES`.
"""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


class InvalidMessage(ValueError):
    """A line that is no message, or a message whose fields are missing or of another type."""


@dataclass(frozen=True, slots=True)
class Message:
    """What commands and events have in common: `TYPE`, the name on the wire, and fields of JSON's types."""

    TYPE = ""

    def format(self) -> bytes:
        """The message as one line, with its line end."""
        fields = {name: getattr(self, name) for name in type(self).__annotations__}
        return json.dumps({"type": self.TYPE, **fields}).encode() + b"\n"


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
_BY_TYPE = {message.TYPE: message for message in MESSAGES}


def parse(line: bytes) -> Message | None:
    """The message in one line; None if its type is not known here.

    Raises:
        InvalidMessage: the line is no JSON object with a `type`, or a field is of a wrong type, or is missing
            and has no default.
    """
    try:
        fields = json.loads(line)
    except ValueError:
        raise InvalidMessage(f"not JSON: {line[:80]!r}") from None
    if not isinstance(fields, dict):
        raise InvalidMessage(f"not an object: {line[:80]!r}")
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage(f"type is {kind!r}")
    message = _BY_TYPE.get(kind)
    if message is None:
        return None
    defaults = getattr(message, "_defaults", {})
    values = {name: fields.get(name, defaults.get(name)) for name in message.__annotations__}
    for name, annotation in message.__annotations__.items():
        if not _IS_OF_TYPE[annotation](values[name]):
            raise InvalidMessage(f"{kind}: {name} is {values[name]!r}")
    return message(**values)


def _is_text_dict(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_word_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


# By the annotation of a field, which is text in this module.
_IS_OF_TYPE: dict[str, Callable[[object], bool]] = {
    "int": lambda value: type(value) is int,
    "str": lambda value: isinstance(value, str),
    "list[str]": _is_word_list,
    "dict[str, str]": _is_text_dict,
}
