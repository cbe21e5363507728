"""Processes seen from outside, in /proc: who descends from whom, and who has computed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A living process and its command line."""

    pid: int
    parent: int
    words: list[str]

    @property
    def is_bitfusion_run(self) -> bool:
        """The wrapper: `bitfusion run …`, whichever interpreter stands before it."""
        return any(
            os.path.basename(word) == "bitfusion" and then == "run"
            for word, then in zip(self.words, self.words[1:], strict=False)
        )

    @property
    def is_kernel(self) -> bool:
        """A kernel of Python, or what starts one: its command line is part of the launcher's."""
        return "ipykernel_launcher" in self.words or "ipykernel" in self.words


def look(pid: int) -> Process | None:
    """The process of this pid; None where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    return None if stat[0] == "Z" else Process(pid, int(stat[1]), words)


def descendants(root: int) -> dict[int, Process]:
    """`root` and all below it, parents before their children."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        process = look(int(name)) if name.isdigit() else None
        if process:
            children.setdefault(process.parent, []).append(process)
    first = look(root)
    found = {root: first} if first else {}
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found[child.pid] = child
            todo.append(child.pid)
    return found


class Chain(NamedTuple):
    """The kernel that runs the cells and the `bitfusion run` above it."""

    kernel: Process
    wrapper: Process


def find_chain(proxy: int) -> Chain | None:
    """The chain below the proxy's pid; None while there is no kernel or nothing wraps it."""
    below = descendants(proxy)
    # The launcher's command line contains the kernel's, so the lowest process that matches is the kernel.
    named = [process for process in below.values() if process.is_kernel and process.pid != proxy]
    parents = {process.parent for process in named}
    for process in named:
        if process.pid in parents:
            continue
        above = below.get(process.parent)
        while above and not above.is_bitfusion_run:
            above = below.get(above.parent)
        if above:
            return Chain(process, above)
    return None


def computed_ns(pid: int) -> int:
    """How long the process's main thread, the one that runs cells, has been on a CPU."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        pass
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) * 10_000_000


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
