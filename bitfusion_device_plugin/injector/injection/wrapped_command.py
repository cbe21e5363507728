"""A container's command under ``bitfusion run``: put there once, and known again wherever it has been moved.

Webhooks that come after the injector put a program in front of a command, or make a shell's line of its
words, and then the pod comes again. A second wrapping would hold the GPUs twice. A line has lost where words
ended: our options, and a line that the container itself gave to a shell, would be read as other words.
"""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.command.command_line import format_options, run_command
from bitfusion_client.command.find_client import COMMAND
from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.names import ANNOTATION_MANAGEMENT, MANAGEMENT_INJECTION
from bitfusion_client.kubernetes.raw_objects import text
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, COMMAND_FILE
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_device_plugin.injector.injection.recorded_requests import escaped

CLIENT = f"{CLIENT_FOLDER}/{COMMAND_FILE}"
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
ALL_POSITIONAL = '"$0" "$@"'  # in a shell's line: the words behind it, each as it is
_MOST_OPTIONS = 8  # of a shell, before its line

SET_COMMAND = (
    f"Write the command into the pod, or use {ANNOTATION_MANAGEMENT}: {MANAGEMENT_INJECTION} and start "
    "bitfusion run inside."
)
IN_A_LINE = "which another webhook made part of a single line, whose words cannot be separated"
START_INSIDE = f"Use {ANNOTATION_MANAGEMENT}: {MANAGEMENT_INJECTION} and start bitfusion run in the command."

# Not a part of another word. The words of ``exec /usr/local/bin/bitfusion run -n 1 x``, too.
_runs_client = re.compile(rf"(?<![\w.-]){COMMAND}\s+run(?![\w-])").search
_is_line_option = re.compile("-[a-zA-Z]*c").fullmatch
_uses_parameters = re.compile(
    r"\$(?:\{?[0-9@*]|#)"
).search  # of a shell's line: those in which our words would be


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier pass has put in front of a command.

    Attributes:
        request: The one that it was wrapped with.
        line: `line_mark` of the line that the container itself gives to a shell; empty if it gives none.
    """

    request: GpuRequest
    line: str


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The outcome.

    Attributes:
        fields: The fields of the container that change, ``command`` and ``args``.
        line: To be remembered for `Earlier`; None where the command starts the client by itself.
    """

    fields: Mapping[str, list[Any]]
    line: str | None


def wrapped_command(
    container: Mapping[str, Any], request: GpuRequest, management: object, earlier: Earlier | None
) -> Wrapping:
    """How the container's program runs with the GPUs; its arguments stay where they are.

    A command that starts the client by itself stays as it is.

    Args:
        container: As it is now; another webhook may have moved its command since.
        request: What it gets.
        management: The value of the annotation that wants it, for messages.
        earlier: What an earlier pass has done to it; None if none has.

    Raises:
        WrongKey: There is no command, and nobody here knows the one of the image. Or ours is in a line from
            which it cannot be taken.
    """
    command, args = container.get("command"), container.get("args")
    if not isinstance(command, list) or not command:
        problem = "requires the command of {} to run with the GPUs, but the pod has only its image's command"
        raise _wrong(container, management, problem, SET_COMMAND)
    args = args if isinstance(args, list) else []
    words = command + args
    if not all(isinstance(word, str) for word in words) or not command[0]:
        return Wrapping({}, earlier.line if earlier else None)
    start = _start(request)
    if earlier is not None and any(CLIENT in word for word in words):
        try:
            moved = _in_order(words, _start(earlier.request), start, earlier.line)
        except ValueError:
            problem = f"requires the command of {{}} to run with the GPUs, {IN_A_LINE}"
            raise _wrong(container, management, problem, START_INSIDE) from None
        return Wrapping({} if moved is words else _fields(command, args, moved), earlier.line)
    if _starts_client(words):
        return Wrapping({}, None)
    place = _line_place(words)
    line = line_mark(words[place]) if place else ""
    if len(words) == 1:
        # the client splits a word that stands alone; `run_command` knows what to do
        return Wrapping({"command": start + run_command(CLIENT, request, words)[len(start) :]}, line)
    return Wrapping({"command": start + command}, line)


def line_mark(line: str) -> str:
    """By which a shell's line is found again in a longer one: its length and digest."""
    return f"{len(line)}:{hashlib.sha256(line.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _fields(command: list[str], args: list[str], words: list[str]) -> dict[str, list[Any]]:
    """The words as command and arguments again, of which one is as it was if it can be."""
    if args and words[: len(command)] == command:
        return {"args": words[len(command) :]}
    if args and words[-len(args) :] == args:
        return {"command": words[: -len(args)]}
    return {"command": words, **({"args": []} if args else {})}


def _start(request: GpuRequest) -> list[str]:
    return [CLIENT, "run", *map(escaped, format_options(request)), "--"]


def _starts_client(words: Sequence[str]) -> bool:
    """``bitfusion run …``, as words or within a shell's line."""
    if posixpath.basename(words[0]) == COMMAND:
        return True
    pairs = itertools.pairwise(words)
    if any(after == "run" and posixpath.basename(word) == COMMAND for word, after in pairs):
        return True
    return any(map(_runs_client, words))


def _line_place(words: Sequence[str]) -> int:
    """Where the line stands that words give to a shell, as in ``bash -o pipefail -c LINE``; 0: nowhere."""
    if posixpath.basename(words[0]) not in SHELLS:
        return 0
    for place, word in enumerate(words[1 : _MOST_OPTIONS + 1], 1):
        if _is_line_option(word):
            return place + 1 if place + 1 < len(words) else 0
        if word[:1] not in ("-", "+") and words[place - 1] not in ("-o", "+o", "-O", "+O"):
            break
    return 0


def _in_order(words: list[str], old: list[str], start: list[str], mark: str) -> list[str]:
    """The words, with `start` where `old` is, each word of it one; the same list if they are right.

    Raises ValueError: `old` is in a line in which it cannot be replaced.
    """
    size = len(old)
    for place, word in enumerate(words):
        if word == CLIENT and words[place : place + size] == old:
            return words if old == start else [*words[:place], *start, *words[place + size :]]
    joined = " ".join([*old, ""])
    for place, line in enumerate(words):
        if joined in line:
            return _line_in_order(words, place, joined, start, mark)
    return words


def _line_in_order(words: list[str], place: int, joined: str, start: list[str], mark: str) -> list[str]:
    """The same for words that were joined by blanks into the line at `place`.

    What belongs to us is taken out of the line and given to the shell behind it, word by word: nothing is
    pasted into a line, so nothing has to be quoted, and the kubelet's ``$(VARIABLE)`` mean what they did.
    """
    ahead, _, behind = words[place].partition(joined)
    own, rest = _own_line(behind, mark) if mark else ([], behind)
    if not own and joined == shlex.join(start) + " ":
        return words
    is_line = place > 1 and _is_line_option(words[place - 1])
    is_shells = any(posixpath.basename(word) in SHELLS for word in words[: place - 1])
    is_quoted = any(ahead.count(quote) % 2 for quote in "'\"")
    if not (is_line and is_shells) or is_quoted or place + 1 < len(words) or _uses_parameters(ahead + rest):
        raise ValueError
    line = f"{ahead}{ALL_POSITIONAL}{rest if own else f' {rest}'}"
    return [*words[:place], line, *start, *own]


def _own_line(behind: str, mark: str) -> tuple[list[str], str]:
    """The words ``sh -c LINE`` at the front of a joined line, and what follows; none where they are quoted.

    Raises ValueError: the line is not there as it was.
    """
    words = behind.split(" ", _MOST_OPTIONS + 1)
    place = _line_place(words)
    head = len(" ".join(words[:place])) + 1
    end = head + int(mark.partition(":")[0])
    if place and line_mark(behind[head:end]) == mark:
        return [*words[:place], behind[head:end]], behind[end:]
    reader = shlex.shlex(behind[head:], posix=True)
    reader.whitespace_split, reader.commenters = True, ""
    if place and line_mark(reader.get_token() or "") == mark:
        return [], behind
    raise ValueError


def _wrong(container: Mapping[str, Any], management: object, problem: str, advice: str) -> WrongKey:
    name = f'container "{text(container.get("name"))}"'
    return WrongKey(ANNOTATION_MANAGEMENT, management, problem.format(name), advice)
