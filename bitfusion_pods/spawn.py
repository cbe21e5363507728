"""What `bitfusion run` asks the agent to run, and what the agent says at the end: JSON and back. Pure.

Both sides may be of other versions: a field that is missing has a default, one that is not known is passed
over.
"""

from __future__ import annotations

import json
import struct

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pods.stream.frames import ProtocolError

if TYPE_CHECKING:
    from typing import Any


MOST_NAMES, LONGEST_NAME = 8, 200
"""Of packages that are told."""
LONGEST_WHY = 1000
MOST_SIDE = 0xFFFF
_SIZE = struct.Struct("!HH")
_FLAGS, _CHARACTERS = 3, 64
_MOST_CODE, _MOST_SIGNAL = 255, 127


@dataclass(frozen=True, slots=True)
class Terminal:
    """That of whoever runs the command, for a program that gets one like it.

    Attributes:
        rows: Its size; 0 where it is not known.
        columns: Likewise.
        modes: As `termios.tcgetattr` has them: those of input, of output, and local ones; empty: as new.
        characters: The control characters, such as the one that erases; numbers of bytes.
        has_stderr: Whether stderr is the terminal, too; else it is a pipe.
    """

    rows: int = 0
    columns: int = 0
    modes: tuple[int, ...] = ()
    characters: tuple[int, ...] = ()
    has_stderr: bool = True


@dataclass(frozen=True, slots=True)
class Spawn:
    """A program.

    Attributes:
        argv: Its name and arguments; the name is looked for on the PATH of `environment`.
        environment: Before the pod's own variables are added.
        cwd: Where it runs; in its home folder where the pod has no such folder.
        folder: The private folder, made by the agent, whose unix sockets appear on both sides; empty: none.
        files: What is in it from the start: texts by name.
        terminal: What its stdin and stdout are; pipes where there is none.
        closed: Of 0, 1 and 2 those that are closed where the command runs.
        pythons: The versions that Pythons in `argv` must have there, ``3.12``, by the words that name them.
        sockets: Those of the folder: they are there before the program starts, which may be fast.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str = ""
    folder: str = ""
    files: dict[str, str] | None = None
    terminal: Terminal | None = None
    closed: tuple[int, ...] = ()
    pythons: dict[str, str] | None = None
    sockets: tuple[str, ...] = ()

    def as_here(
        self, terminal: Terminal | None, closed: tuple[int, ...] = (), sockets: tuple[str, ...] = ()
    ) -> Spawn:
        """The same with this terminal, these of 0, 1 and 2 closed, and these sockets in its folder."""
        same = self.argv, self.environment, self.cwd, self.folder, self.files
        return Spawn(*same, terminal, closed, self.pythons, sockets)

    def to_json(self) -> bytes:
        """As the payload of SPAWN."""
        return json.dumps(_fields(self), default=_fields).encode()


def spawn_from_json(data: bytes) -> Spawn:
    """The program. Raises ProtocolError."""
    value = _object(data)
    argv, files = value.get("argv"), value.get("files") or {}
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise ProtocolError("it asks for a program without a name")
    sockets = value.get("sockets", [])
    if not isinstance(sockets, list) or not all(isinstance(name, str) for name in sockets):
        raise ProtocolError("it asks for sockets without names")
    texts = {name: value.get(name, "") for name in ("cwd", "folder")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ProtocolError("it asks for something that is not a folder")
    return Spawn(
        tuple(argv),
        _texts(value.get("environment", {})),
        texts["cwd"],
        texts["folder"],
        _texts(files),
        _terminal(value.get("terminal")),
        _numbers(value.get("closed", []), 3, 2),
        _texts(value.get("pythons") or {}) or None,
        tuple(sockets),
    )


def size_to_bytes(rows: int, columns: int) -> bytes:
    """As the payload of WINDOW_SIZE."""
    return _SIZE.pack(min(rows, MOST_SIDE), min(columns, MOST_SIDE))


def size_from_bytes(data: bytes) -> tuple[int, int]:
    """Rows and columns. Raises ProtocolError."""
    if len(data) != _SIZE.size:
        raise ProtocolError("it sends a terminal size that is not valid")
    rows, columns = _SIZE.unpack(data)
    return rows, columns


@dataclass(frozen=True, slots=True)
class Started:
    """What is known once the program runs.

    Attributes:
        has_terminal: Whether it has the terminal that was asked for; without it there are pipes.
        has_driver: Whether the library of the GPUs' driver is there, without which all programs compute on
            the CPU.
        for_cpus_only: Frameworks in the image that compute on the CPU whatever is there, ``torch 2.9.0+cpu``.
    """

    has_terminal: bool = False
    has_driver: bool = True
    for_cpus_only: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """As the payload of SPAWNED."""
        return json.dumps(_fields(self)).encode()


def started_from_json(data: bytes) -> Started:
    """What is known. Raises ProtocolError."""
    value = _object(data)
    named = value.get("for_cpus_only", [])
    if not isinstance(named, list) or not all(isinstance(text, str) for text in named):
        raise ProtocolError("it sends something else where a list of names is expected")
    names = tuple(text[:LONGEST_NAME] for text in named[:MOST_NAMES])
    return Started(value.get("has_terminal") is True, value.get("has_driver") is not False, names)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program has ended.

    Attributes:
        status: Its exit code, or the negative number of the signal that killed it.
        memory_ran_out: Whether Linux has killed a process of the pod for want of memory.
        told_to: Whether the pod was told to end, as when it is evicted or deleted.
    """

    status: int
    memory_ran_out: bool = False
    told_to: bool = False

    def as_shell(self) -> int:
        """Its status as a shell counts it: 128 + signal."""
        return self.status if self.status >= 0 else 128 - self.status

    def to_json(self) -> bytes:
        """As the payload of EXIT."""
        return json.dumps(_fields(self)).encode()


def ended_from_json(data: bytes) -> Ended:
    """How it has ended. Raises ProtocolError."""
    value = _object(data)
    status = value.get("status")
    if type(status) is not int or not -_MOST_SIGNAL <= status <= _MOST_CODE:
        raise ProtocolError("it reports an end without a status")
    return Ended(status, value.get("memory_ran_out") is True, value.get("told_to") is True)


@dataclass(frozen=True, slots=True)
class Failed:
    """The program could not be started: why, and the status that a shell would give, 126 or 127.

    `cure` says what to do where the reason is the pod and not the program; else it is empty.
    """

    why: str
    status: int
    cure: str = ""

    def to_json(self) -> bytes:
        """As the payload of FAILED."""
        texts = {"why": self.why[:LONGEST_WHY], "cure": self.cure[:LONGEST_WHY]}
        return json.dumps({**texts, "status": self.status}).encode()


def failed_from_json(data: bytes) -> Failed:
    """Why. Raises ProtocolError."""
    value = _object(data)
    why, status, cure = value.get("why"), value.get("status"), value.get("cure")
    if not isinstance(why, str) or type(status) is not int or not 0 <= status <= _MOST_CODE:
        raise ProtocolError("it reports a failure without a reason")
    return Failed(why, status, cure if isinstance(cure, str) else "")


def _fields(value: Any) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__match_args__}


def _terminal(value: object) -> Terminal | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ProtocolError("it asks for something that is not a terminal")
    rows, columns = _numbers([value.get("rows", 0), value.get("columns", 0)], 2, MOST_SIDE)
    modes = _numbers(value.get("modes", []), _FLAGS, 0xFFFFFFFF)
    characters = _numbers(value.get("characters", []), _CHARACTERS, 255)
    return Terminal(rows, columns, modes, characters, value.get("has_stderr") is not False)


def _numbers(value: object, most: int, largest: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise ProtocolError("it sends something else where a few numbers are expected")
    if not all(type(number) is int and 0 <= number <= largest for number in value):
        raise ProtocolError(f"it sends something else where numbers up to {largest} are expected")
    return tuple(value)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError("it sends something that is not a JSON object")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ProtocolError("it sends something else where named texts are expected")
    return value
