"""Which pool a command uses: what a setting names, else one on the network, the machine's, the user's own."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER
from bitfusion_pool.access.network_files import (
    SYSTEM_FOLDER,
    missing_in_pod,
    read_network_client,
    wrong_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.errors import BitfusionError
    from bitfusion_pool.access.network_files import NetworkClient
    from bitfusion_pool.client.pools.pool import Pool

VARIABLE = "BITFUSION_POOL"
OWN = "own"  # the value that names the user's own pool
NETWORK = "tls://"  # before HOST:PORT of one of the servers in servers.conf
MACHINE_SOCKET = "/run/bitfusion-pool/socket"
_TOKEN = "bfpool_"  # `access.token_text`, whose imports are slow, makes such tokens


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool, and why it is this one.

    Attributes:
        socket: The socket of a service of this machine; empty for another pool.
        why: For people: goes on after the pool.
        network: What the files say that name services on the network; None for another pool.
        only: HOST:PORT, where it must be this one of these services.
    """

    socket: str
    why: str
    network: NetworkClient | None = None
    only: str = ""

    @property
    def where(self) -> str:
        """The pool, for people."""
        if self.network is not None:
            servers = self.network.servers
            places = ", ".join(str(address) for server in servers for address in server.addresses)
            return f"the service at {self.only or places}"
        return f"the service at {self.socket}" if self.socket else "your own"

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own pool, which has no service."""
        return not self.socket and self.network is None


def choose_pool(
    environ: Mapping[str, str],
    machine_socket: str = MACHINE_SOCKET,
    system: str = SYSTEM_FOLDER,
    pod: str = CLIENT_FOLDER,
) -> PoolChoice:
    """The pool for a command with this environment; no pool is opened or asked.

    Where there is a pool on the network or of the machine, its service may be away: that is an error then,
    not a reason to use another pool (docs/decisions/0052-which-pool.md).

    Args:
        environ: The environment.
        machine_socket: Where the machine's pool listens.
        system: The folder of all users with the files of a network client.
        pod: The folder of an injected client.

    Raises:
        WrongSetting: The setting names no pool.
        PoolUnreadable: The files of a network client are wrong, or the real product's; or this is a pod that
            has none.
    """
    named = environ.get(VARIABLE, "")
    if named == OWN:
        return PoolChoice("", f"{VARIABLE}={OWN}")
    if named.startswith("/"):
        return PoolChoice(os.path.normpath(named), f"{VARIABLE} names its socket")
    if named.startswith(NETWORK):
        return _named_service(named.removeprefix(NETWORK), environ, system, pod)
    if named:
        raise _wrong_setting(named)
    for variable in ("BITFUSION_POOL_DIR", "BITFUSION_POOL_CONFIG"):
        if environ.get(variable):
            return PoolChoice("", f"{variable} is set")
    network = _network_client(environ, system, pod)
    if network is not None:
        return PoolChoice("", f"{network.servers_file} and {network.client_file} name it", network)
    # the folder, because a service that ends takes its socket away
    folder = os.path.dirname(machine_socket)
    if os.path.lexists(folder):
        return PoolChoice(machine_socket, f"this machine has a pool, {folder}")
    missing = missing_in_pod(pod)
    if missing is not None:
        raise missing
    return PoolChoice("", "this machine has no pool for all its users")


def open_pool(environ: Mapping[str, str]) -> Pool:
    """The pool that a command with this environment uses, open.

    Raises:
        WrongSetting: The setting names no pool.
        PoolOutOfReach: The pool cannot be used.
    """
    choice = choose_pool(environ)
    if choice.is_own:
        from bitfusion_pool.client.pools.own_pool import OwnPool

        return OwnPool(environ)
    from bitfusion_pool.client.pools.service_pool import ServicePool

    if choice.network is not None:
        from bitfusion_pool.client.pools.life_by_words import LifeByWords

        return ServicePool(LifeByWords(choice.network, environ, choice.only), environ)
    from bitfusion_pool.client.pools.life_by_lock import LifeByLock

    return ServicePool(LifeByLock(choice.socket), environ)


def _named_service(place: str, environ: Mapping[str, str], system: str, pod: str) -> PoolChoice:
    network = _network_client(environ, system, pod)
    if network is None:
        from bitfusion_client.errors import PoolUnreadable

        raise PoolUnreadable(
            "",
            f"pool configuration is missing: {VARIABLE} names {place}, and there is no servers.conf",
            "put the three files that came with the token into ~/.bitfusion",
        )
    return PoolChoice("", f"{VARIABLE} names it", network, place)


def _network_client(environ: Mapping[str, str], system: str, pod: str) -> NetworkClient | None:
    found = read_network_client(environ, system, pod)
    if found is not None and not found.token.reveal().startswith(_TOKEN):
        raise wrong_file(
            found.client_file,
            f"its token is not from a pool of this kind ({_TOKEN}…); it seems to be the real product's",
            "for vSphere Bitfusion use its own client (BITFUSION_CLIENT names its command); "
            f"for simulated GPUs of your own set {VARIABLE}={OWN}",
        )
    return found


def _wrong_setting(named: str) -> BitfusionError:
    from bitfusion_client.errors import WrongSetting

    allowed = (
        f"must be {OWN}, the path of the socket of a pool's service, such as {MACHINE_SOCKET}, or "
        f"{NETWORK}HOST:PORT, a server of servers.conf"
    )
    return WrongSetting(VARIABLE, named, allowed, "environment")
