"""How many descriptors a process may have: each connection is one. Without asyncio, for a quick start."""

from __future__ import annotations

import resource


def allow_many_files() -> None:
    """As many as the system lets this process have; it often begins with 1,024. Called before listening."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
