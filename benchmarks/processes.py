"""What ``/proc`` tells about the processes of a kernel (Linux only, as the kernel's chain is)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MARK = "BITFUSION_BENCHMARK_MARK"
"""Environment variable that marks every process started by one run, however it was forked."""

PROXY, SUPERVISOR, WRAPPER, LAUNCHER, KERNEL = "proxy", "supervisor", "wrapper", "launcher", "kernel"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process: ``rss`` counts shared pages whole, ``pss`` in proportion."""

    rss: int
    pss: int


def marked(mark: str) -> list[int]:
    """The living processes whose environment carries this mark, zombies excluded."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if wanted in _read(pid, "environ").split(b"\0")]


def command(pid: int) -> list[str]:
    """The process's argument list; empty when it is gone or a zombie."""
    text = _read(pid, "cmdline").decode(errors="replace")
    return text.rstrip("\0").split("\0") if text else []


def alive(pid: int) -> bool:
    """Whether the process exists and isn't a zombie."""
    state = _read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def parent(pid: int) -> int:
    """The parent's pid; 0 when the process is gone."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def memory(pid: int) -> Memory:
    """The memory of a living process; zeros when it is gone."""
    found = {}
    for line in _read(pid, "smaps_rollup").splitlines():
        name, _, rest = line.partition(b":")
        if name in (b"Rss", b"Pss"):
            found[name] = int(rest.split()[0]) * 1024
    return Memory(found.get(b"Rss", 0), found.get(b"Pss", 0))


def total(pids: Iterable[int]) -> Memory:
    """The summed memory of several processes."""
    each = [memory(pid) for pid in pids]
    return Memory(sum(one.rss for one in each), sum(one.pss for one in each))


def roles(mark: str, proxy: int) -> dict[int, str]:
    """Which process of a kernel's chain is which, by their command lines.

    The supervisor is forked by the proxy and executes no other program, so that the two share a command line.
    """
    found: dict[int, str] = {}
    proxy_command = command(proxy)
    for pid in marked(mark):
        words = command(pid)
        if pid == proxy:
            found[pid] = PROXY
        elif words == proxy_command:
            found[pid] = SUPERVISOR
        elif role := role_of(words):
            found[pid] = role
    return found


def role_of(words: list[str]) -> str | None:
    """The role of a process with this argument list: wrapper, launcher, kernel, or none of them."""
    if "--" in words and "run" in words[: words.index("--")]:
        return WRAPPER
    if any("launcher" in os.path.basename(word) and "ipykernel" not in word for word in words):
        return LAUNCHER
    if any("ipykernel_launcher" in word for word in words):
        return KERNEL
    return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
