"""The processes of a kernel by their roles, found by the pool folder in their environment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tests.support.processes import Process, processes_with
from tests.support.waiting import Deadline, wait_until

WHOLE = {"proxy", "supervisor", "wrapper", "launcher", "kernel"}
WAITING = {"proxy", "supervisor", "wrapper"}
"""No launcher and no kernel run without a GPU."""


class Marked(Protocol):
    """A pool of the test's own, or whatever else is named in the environment of all its processes."""

    @property
    def mark(self) -> str:
        """The variable with its value."""


def chain(pool: Marked, parent: int, holder: int | None = None) -> dict[str, Process]:
    """The processes of the only kernel on this pool, by role.

    Args:
        pool: Of the test's own.
        parent: The process that started the kernel: the proxy is its child, the supervisor looks the same but
            is the proxy's.
        holder: The session of somebody else who uses the pool; see `Pool.held`.
    """
    roles: dict[str, Process] = {}
    for process in sorted(chain_processes(pool, parent, holder)):
        role = role_of(process.command)
        if role == "proxy" and process.parent != parent:
            role = "supervisor"
        roles.setdefault(role, process)
    return roles


def chain_processes(pool: Marked, parent: int, holder: int | None = None) -> list[Process]:
    """All processes that use this pool, but for the kernel's parent and somebody else's session."""
    return [
        process
        for process in processes_with(pool.mark)
        if process.pid != parent and process.session != holder
    ]


def wrappers(pool: Marked, holder: int | None = None) -> set[int]:
    """Those of all kernels on this pool, also one that asks for another size beside the first."""
    found = chain_processes(pool, 0, holder)
    return {process.pid for process in found if role_of(process.command) == "wrapper"}


def wait_for_no_process(
    pool: Marked,
    limit_s: float | Deadline,
    parent: int = 0,
    holder: int | None = None,
    among: Collection[int] = (),
) -> None:
    """Until no process of the kernel is left.

    Args:
        pool: As for `chain`.
        limit_s: Seconds on a calm machine, or a deadline.
        parent: As for `chain`.
        holder: As for `chain`.
        among: Look for these processes only: an orphan stays the same process under its new parent.
    """

    def left() -> list[Process]:
        found = chain_processes(pool, parent, holder)
        return [process for process in found if not among or process.pid in among]

    wait_until(
        lambda: not left(),
        lambda: "the end of " + ", ".join(f"{role_of(each.command)} {each}" for each in left()),
        limit_s,
    )


def role_of(command: str) -> str:
    """`proxy` (the supervisor, its fork, looks the same), `wrapper`, `launcher`, `kernel`, or `other`."""
    before, kernel, _ = command.partition("ipykernel_launcher")
    if kernel and "/launcher.py" not in command:
        return "wrapper" if "bitfusion" in before and " run " in command else "kernel"
    if "/bitfusion run " in command or " bitfusion run " in command:
        return "wrapper"
    if "/launcher.py" in command:
        return "launcher"
    if "bitfusion_kernel/__main__.py" in command:
        return "proxy"
    return "other"
