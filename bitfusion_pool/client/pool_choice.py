"""Which pool a `bitfusion` command uses: what a setting names, else the machine's, else the user's own."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.client.pool import Pool

VARIABLE = "BITFUSION_POOL"
OWN = "own"  # the value that names the user's own pool
MACHINE_SOCKET = "/run/bitfusion-pool/socket"


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool, and why it is this one.

    Attributes:
        socket: The service's socket; empty for the user's own pool.
        why: For people: goes on after the pool.
    """

    socket: str
    why: str

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own pool, which has no service."""
        return not self.socket

    @property
    def where(self) -> str:
        """The pool, for people."""
        return f"the service at {self.socket}" if self.socket else "your own"


def choose_pool(environ: Mapping[str, str], machine_socket: str = MACHINE_SOCKET) -> PoolChoice:
    """The pool for a command with this environment; no pool is opened or asked.

    Where the machine has a pool, its service may be away: that is an error then, not a reason to use another
    pool (docs/decisions/0052-which-pool.md).

    Args:
        environ: The environment.
        machine_socket: Where the machine's pool listens.

    Raises:
        WrongSetting: The setting names no pool.
    """
    named = environ.get(VARIABLE, "")
    if named == OWN:
        return PoolChoice("", f"{VARIABLE}={OWN}")
    if named.startswith("/"):
        return PoolChoice(os.path.normpath(named), f"{VARIABLE} names its socket")
    if named:
        from bitfusion_client.errors import WrongSetting

        allowed = f"must be {OWN}, or the path of the socket of a pool's service, such as {MACHINE_SOCKET}"
        raise WrongSetting(VARIABLE, named, allowed, "environment")
    for variable in ("BITFUSION_POOL_DIR", "BITFUSION_POOL_CONFIG"):
        if environ.get(variable):
            return PoolChoice("", f"{variable} is set")
    # the folder, because a service that ends takes its socket away
    folder = os.path.dirname(machine_socket)
    if os.path.lexists(folder):
        return PoolChoice(machine_socket, f"this machine has a pool, {folder}")
    return PoolChoice("", "this machine has no pool for all its users")


def open_pool(environ: Mapping[str, str]) -> Pool:
    """The pool that a command with this environment uses, open.

    Raises:
        WrongSetting: The setting names no pool.
        PoolOutOfReach: The pool cannot be used.
    """
    socket = choose_pool(environ).socket
    if socket:
        from bitfusion_pool.client.service_pool import ServicePool

        return ServicePool(socket, environ)
    from bitfusion_pool.client.own_pool import OwnPool

    return OwnPool(environ)
