"""Commands in Linux namespaces of their own: as process 1 without an init, or with mounts of their own.

Root may make them; others get a user namespace, too, where the machine allows it.
"""

from __future__ import annotations

import os


def as_process_1(argv: list[str]) -> list[str]:
    """The command line that runs `argv` as process 1, which sees no process but its own descendants.

    They end with it, and it ends with the command that starts it.
    """
    return [*_unshare(), "--pid", "--fork", "--kill-child", "--mount-proc", *argv]


def with_own_mounts(argv: list[str]) -> list[str]:
    """The command line that runs `argv` where what it mounts is seen by itself and its descendants only."""
    return [*_unshare(), "--mount", *argv]


def _unshare() -> list[str]:
    return ["unshare"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
