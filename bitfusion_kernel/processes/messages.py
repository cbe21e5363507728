"""The messages between proxy, supervisor and launcher: commands, events, their parsing and formatting. Pure.

    proxy -> supervisor      StartCommand, StopCommand
    supervisor -> launcher   StopCommand
    launcher -> supervisor   LaunchedEvent, KernelExitedEvent
    supervisor -> proxy      StartedEvent, OutputEvent, LaunchedEvent, KernelExitedEvent,
                             WrapperExitedEvent, StoppedEvent

Each message is one JSON object: `type` and the fields of its class. `MessageConnection` sends and receives
them as lines over a stream socket; nothing in a message says that both ends share a machine, besides pids
and the path of a socket.

Both ends belong to one release, so there are no versions: `parse` passes over a type it doesn't know and
refuses a message that is damaged.

The classes are plain, because the processes that use them start without `dataclasses` (15 ms) and `typing`
(3 ms).
"""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")


class InvalidMessage(ValueError):
    """A line that is no message, or a message whose fields are missing or of another type."""


class Message:
    """What commands and events have in common: `TYPE` on the wire, and the fields named in `__slots__`."""

    __slots__: tuple[str, ...] = ()
    TYPE = ""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._fields() == self._fields()

    __hash__ = None  # type: ignore[assignment]  # mutable, as dicts and lists among the fields are

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({fields})"

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def format(self) -> bytes:
        """The message as one line, with its line end."""
        return json.dumps({"type": self.TYPE, **self._fields()}).encode() + b"\n"

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Message:
        """The message with these fields; called by `parse`. Raises InvalidMessage."""
        return cls()


# -- commands ----------------------------------------------------------------------------------------


class Command(Message):
    """What proxy or supervisor want done."""

    __slots__ = ()


class StartCommand(Command):
    """Start one wrapper. The answer is StartedEvent, or WrapperExitedEvent if it can't be executed.

    `argv` is the whole command line: the wrapper, the launcher, the kernel. The launcher connects to
    `socket_path`, on which the supervisor listens from now on. `number` counts the wrappers of one proxy;
    the wrapper's end is reported with it.
    """

    __slots__ = ("argv", "environment", "number", "socket_path")
    TYPE = "start"

    def __init__(self, number: int, argv: list[str], environment: dict[str, str], socket_path: str) -> None:
        self.number = number
        self.argv = argv
        self.environment = environment
        self.socket_path = socket_path

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> StartCommand:
        """Raises InvalidMessage."""
        argv = _field(fields, "argv", list)
        if not argv or not _all_text(argv):
            raise InvalidMessage(f"argv is no list of words: {argv!r}")
        return cls(
            _field(fields, "number", int), argv, _environment(fields), _field(fields, "socket_path", str)
        )


class StopCommand(Command):
    """End what runs: the kernel first, then the wrapper, which gives its GPUs back. Told by StoppedEvent."""

    __slots__ = ()
    TYPE = "stop"


# -- events ------------------------------------------------------------------------------------------


class Event(Message):
    """What has happened, told by supervisor or launcher."""

    __slots__ = ()


class StartedEvent(Event):
    """The wrapper runs, with this pid, and asks the pool for its GPUs."""

    __slots__ = ("pid",)
    TYPE = "started"

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> StartedEvent:
        """Raises InvalidMessage."""
        return cls(_field(fields, "pid", int))


class OutputEvent(Event):
    """One line that wrapper, launcher or kernel wrote to the wrapper's stdout or stderr (`stream`)."""

    __slots__ = ("stream", "text")
    TYPE = "output"

    def __init__(self, stream: str, text: str) -> None:
        self.stream = stream
        self.text = text

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> OutputEvent:
        """Raises InvalidMessage."""
        return cls(_field(fields, "stream", str), _field(fields, "text", str))


class LaunchedEvent(Event):
    """The GPUs are granted and the kernel is starting.

    `environment` is what the wrapper has set there about the lease.
    """

    __slots__ = ("environment", "kernel_pid", "launcher_pid")
    TYPE = "launched"

    def __init__(self, launcher_pid: int, kernel_pid: int, environment: dict[str, str]) -> None:
        self.launcher_pid = launcher_pid
        self.kernel_pid = kernel_pid
        self.environment = environment

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> LaunchedEvent:
        """Raises InvalidMessage."""
        return cls(
            _field(fields, "launcher_pid", int), _field(fields, "kernel_pid", int), _environment(fields)
        )


class KernelExitedEvent(Event):
    """The kernel has ended.

    `status` is its exit code, or the negative number of the signal that killed it.
    """

    __slots__ = ("status",)
    TYPE = "kernel_exited"

    def __init__(self, status: int) -> None:
        self.status = status

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> KernelExitedEvent:
        """Raises InvalidMessage."""
        return cls(_field(fields, "status", int))


class WrapperExitedEvent(Event):
    """The wrapper started as `number` has ended; all its output has been sent. `status` as for the kernel."""

    __slots__ = ("number", "status")
    TYPE = "wrapper_exited"

    def __init__(self, number: int, status: int) -> None:
        self.number = number
        self.status = status

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> WrapperExitedEvent:
        """Raises InvalidMessage."""
        return cls(_field(fields, "number", int), _field(fields, "status", int))


class StoppedEvent(Event):
    """The answer to StopCommand: nothing runs any more."""

    __slots__ = ()
    TYPE = "stopped"


# -- reading -----------------------------------------------------------------------------------------

MESSAGES: tuple[type[Message], ...] = (
    *(StartCommand, StopCommand),
    *(StartedEvent, OutputEvent, LaunchedEvent, KernelExitedEvent, WrapperExitedEvent, StoppedEvent),
)
_BY_TYPE = {message.TYPE: message for message in MESSAGES}


def parse(line: bytes) -> Message | None:
    """The message in one line; None if its type is not known here.

    Raises:
        InvalidMessage: the line is no JSON object with a `type`, or a field is missing or of a wrong type.
    """
    try:
        fields = json.loads(line)
    except ValueError:
        raise InvalidMessage(f"not JSON: {line[:80]!r}") from None
    if not isinstance(fields, dict):
        raise InvalidMessage(f"not an object: {line[:80]!r}")
    message = _BY_TYPE.get(_field(fields, "type", str))
    return None if message is None else message.from_fields(fields)


def _field(fields: dict[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidMessage(f"{fields.get('type', 'a message')}: {name} is {value!r}")
    return value


def _environment(fields: dict[str, Any]) -> dict[str, str]:
    environment: dict[str, str] = _field(fields, "environment", dict)
    if not _all_text(environment.values()):
        raise InvalidMessage(f"environment holds something other than text: {environment!r}")
    return environment


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
