"""The reply to `usage_request` without a kernel, in ipykernel's fields: what the processes in its place use.

jupyter-resource-usage polls the kernel that is looked at every 5 s, and shows the fields as they are.
For Jupyter the proxy is the kernel's process. Its numbers are true, and small.
"""

from __future__ import annotations

import os
import time
from typing import Any

_KIB = 1024
_MEMORY = {
    "total": "MemTotal",
    "available": "MemAvailable",
    "free": "MemFree",
    "active": "Active",
    "inactive": "Inactive",
    "buffers": "Buffers",
    "cached": "Cached",
    "shared": "Shmem",
    "slab": "Slab",
}
"""The names of psutil, and those of /proc/meminfo."""


class Usage:
    """CPU use is counted since the request before; the first is answered with 0, as psutil does."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def reply(self) -> dict[str, Any]:
        """The content of a `usage_reply`."""
        return {
            "hostname": os.uname().nodename,
            "pid": os.getpid(),
            "kernel_cpu": self._cpu_percent(),
            "kernel_memory": sum(_memory_of(pid) for pid in _with_descendants(os.getpid())),
            "cpu_count": os.cpu_count(),
            "host_virtual_memory": _host_memory(),
        }

    def _cpu_percent(self) -> float:
        now, used = time.monotonic(), time.process_time()
        before, self._before = self._before or (now, used), (now, used)
        return round(100 * (used - before[1]) / (now - before[0]), 1) if now > before[0] else 0.0


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += _with_descendants(int(child))
    except OSError:
        pass  # it has just ended, or this Linux does not tell
    return found


def _memory_of(pid: int) -> int:
    """Bytes of a process, of shared ones its part."""
    return _fields(f"/proc/{pid}/smaps_rollup").get("Pss") or _fields(f"/proc/{pid}/status").get("VmRSS", 0)


def _host_memory() -> dict[str, float]:
    machine = _fields("/proc/meminfo")
    found: dict[str, float] = {name: machine.get(key, 0) for name, key in _MEMORY.items()}
    used = found["used"] = found["total"] - found["available"]
    found["percent"] = round(100 * used / found["total"], 1) if found["total"] else 0.0
    return found


def _fields(path: str) -> dict[str, int]:
    """The lines `Name: 123 kB` of a file, in bytes; none where it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}
    return {
        words[0].rstrip(":"): int(words[1]) * _KIB
        for words in lines
        if words[-1:] == ["kB"] and words[1].isdigit()
    }
