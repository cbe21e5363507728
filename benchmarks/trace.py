"""What strace saw of a kernel's chain: which process did what, and when.

Only a few system calls are traced, with a filter in the kernel (``--seccomp-bpf``), so the chain is slowed by
a few milliseconds and not by a multiple.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.processes import KERNEL, PROXY, SUPERVISOR, role_of

COMMAND = (
    "strace",
    "-f",
    "--seccomp-bpf",
    "-ttt",
    "-s",
    "300",
    "-e",
    "trace=execve,clone,clone3,fork,vfork,bind,connect,exit_group",
    "-e",
    "signal=none",
    "-o",
)
"""The command without its last word, the file to write."""

_LINE = re.compile(r"^(\d+)\s+(\d+\.\d+) (.*)$")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FORKS = ("clone(", "clone3(", "fork(", "vfork(")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that was begun at ``time`` (seconds since the epoch)."""

    time: float
    pid: int
    text: str

    @property
    def succeeded(self) -> bool:
        """Whether the call returned no error."""
        return " = -1 " not in self.text


@dataclass(frozen=True, slots=True)
class Event:
    """A step of the start: what happened, and when (seconds since the epoch)."""

    time: float
    what: str


def calls(lines: Iterable[str]) -> list[Call]:
    """The calls of a trace, those that were cut in two put together again."""
    found: list[Call] = []
    begun: dict[int, Call] = {}
    for line in lines:
        match = _LINE.match(line.rstrip())
        if not match:
            continue
        pid, time, text = int(match[1]), float(match[2]), match[3]
        if text.endswith("<unfinished ...>"):
            begun[pid] = Call(time, pid, text.removesuffix("<unfinished ...>"))
        elif resumed := _RESUMED.match(text):
            if first := begun.pop(pid, None):
                found.append(Call(first.time, pid, first.text + resumed[1]))
        elif not text.startswith(("+++", "---")):
            found.append(Call(time, pid, text))
    return sorted(found, key=lambda call: call.time)


def events(found: Iterable[Call]) -> list[Event]:
    """The steps of a start in the order they happened, each named by the role of its process."""
    owner: dict[int, int] = {}
    role: dict[int, str] = {}
    steps: dict[str, float] = {}
    kernel_bound = False
    for call in found:
        pid = owner.get(call.pid, call.pid)
        name = role.get(pid, "?")
        if call.text.startswith(_FORKS):
            child = _child(call.text)
            if child is None:
                continue
            if "CLONE_THREAD" in call.text:
                owner[child] = pid
            else:
                # A plain fork of the proxy is the supervisor, until it executes something else.
                role[child] = (
                    SUPERVISOR if name == PROXY and SUPERVISOR not in role.values() else f"child of {name}"
                )
                steps.setdefault(f"{name} forks {role[child]}", call.time)
        elif call.text.startswith("execve(") and call.succeeded:
            words = _WORD.findall(call.text.partition("[")[2].partition("]")[0])
            role[pid] = role_of(words) or (_name(words) if role else PROXY)
            steps.setdefault(f"{role[pid]} is executed", call.time)
        elif call.text.startswith("bind(") and call.succeeded:
            kernel_bound = kernel_bound or name == KERNEL
            steps.setdefault(f"{name} binds its first socket", call.time)
            steps[f"{name} binds its last socket"] = call.time
        elif call.text.startswith("connect(") and call.succeeded and name == PROXY and kernel_bound:
            steps.setdefault("proxy reaches the kernel's first socket", call.time)
        elif call.text.startswith("exit_group("):
            steps[f"{name} ends"] = call.time
    return sorted((Event(time, what) for what, time in steps.items()), key=lambda event: event.time)


def _child(text: str) -> int | None:
    value = text.rpartition(" = ")[2].split()
    return int(value[0]) if value and value[0].isdigit() else None


def _name(words: list[str]) -> str:
    return words[0].rpartition("/")[2] if words else "?"
