"""The states in which others see a kernel, and the file that tells them. Standard library only.

A kernel's proxy answers the whole state on its socket (`proxy_socket`, `watch`) and leaves the short one in a
file in its private folder: for the `bitfusion run` that holds its GPUs, and for whoever asks while no proxy
is there. ``docs/kernel-state.schema.json`` says what stands in both.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSION = 1
"""Of answer and file. A field that is added does not raise it, one that goes or changes its meaning does."""

NONE = "none"
"""Nothing is asked for and nothing held."""
WAITING = "waiting"
"""It waits for GPUs."""
STARTING = "starting"
"""It has got GPUs, and its kernel does not answer yet."""
RUNNING = "running"
"""Code runs: a cell, or what a client runs for itself."""
IDLE = "idle"
"""It holds GPUs, and no code runs."""
PARKED = "parked"
"""What it holds, or its position in the queue, is kept over a restart."""
RELEASING = "releasing"
"""It gives back what it holds, or its position in the queue."""
STATES = (NONE, WAITING, STARTING, RUNNING, IDLE, PARKED, RELEASING)

MIME_TYPE = "application/vnd.bitfusion.kernel-state+json"
"""Of the whole state in a notebook's output."""

FILE_VARIABLE = "BITFUSION_KERNEL_STATE"
"""Where `bitfusion run` finds the path of the file of the kernel that has started it."""

FILE_NAME = "state.json"
_NEW_FILE_NAME = "state.new"
_LONGEST_FILE = 65536


def write(folder: str, told: Mapping[str, Any]) -> bool:
    """Replace the file in a kernel's folder, in one go; False if it can't be written, which harms nothing.

    Called by the proxy, and while none is there by the supervisor. A folder that is gone stays so.
    """
    import json

    new = os.path.join(folder, _NEW_FILE_NAME)
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(told).encode())
        finally:
            os.close(fd)
        os.rename(new, os.path.join(folder, FILE_NAME))
    except OSError:
        return False
    return True


def read(path: str) -> dict[str, Any] | None:
    """What the file tells; None if there is none, it is another user's, or of another version."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if os.fstat(fd).st_uid != os.geteuid():
                return None
            return parse(file.read(_LONGEST_FILE))
    except OSError:
        return None


def parse(line: bytes) -> dict[str, Any] | None:
    """A state as it was told, by file or socket; None if it is none of this version."""
    import json  # `bitfusion run` imports this module for its words

    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("version") != VERSION or told.get("state") not in STATES:
        return None
    return told


def change(folder: str, state: str, now: float) -> None:
    """Put another state into the file, since `now` (seconds since the epoch); the rest stays as it is."""
    told = read(os.path.join(folder, FILE_NAME)) or {"version": VERSION, "notebook": None}
    if told.get("state") != state:
        write(folder, {**told, "state": state, "since": now, "idle_since": None})
