"""`bitfusion-pool init` and `simulate`: create the pool's folder and ledger, write its pool.toml."""

from __future__ import annotations

import json
import os

from bitfusion_client.errors import ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.admin.status import status_text
from bitfusion_pool.inventory.configuration import parse_configuration, wrong_configuration
from bitfusion_pool.ledger.lease_lock import count_held_locks
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.pool_folder import (
    CONFIGURATION,
    DATABASE,
    SUBFOLDERS,
    ensure_folder,
    pool_folder,
    set_permissions,
    unreadable,
)
from bitfusion_pool.ledger.snapshot import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping


def init(
    environ: Mapping[str, str],
    group: str | None = None,
    configuration: str | None = None,
    force: bool = False,
) -> str:
    """Create the folder with its permissions, and a new ledger in it.

    Args:
        environ: Names the pool's folder.
        group: Only members of this group may use the pool; by default all users may.
        configuration: A file to copy into the folder as pool.toml.
        force: Whether to replace an existing ledger.

    Returns:
        What to tell the administrator.

    Raises:
        ClientFailed: There is a ledger already, programs hold GPUs, or there is no such group.
        PoolUnreadable: The configuration is wrong, or a file cannot be written.
    """
    folder = pool_folder(environ)
    mode, group_id = 0o777, -1
    if group:
        mode, group_id = 0o2770, _group_id(group)  # files created inside belong to the group, too
    database = os.path.join(folder, DATABASE)
    if os.path.exists(database) and not force:
        raise ClientFailed("", f"there is a ledger already: {database}; --force replaces it")
    running = count_held_locks(folder)
    if running:
        # a new ledger would not know of them and would hand out their GPUs again
        raise ClientFailed("", f"{running} programs hold GPUs of this pool or wait for them; end them first")
    text = _read_configuration(configuration) if configuration else ""
    try:
        ensure_folder(folder, mode, group_id)
        if group:
            for path in (folder, *(f"{folder}/{name}" for name in SUBFOLDERS)):
                set_permissions(path, mode, group_id)
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(database + ending):
                os.unlink(database + ending)
        if text:
            _write_configuration(folder, text)
    except OSError as error:
        raise unreadable(folder, error) from None
    with Ledger(environ) as ledger:
        devices = sum(len(server.devices) for server in ledger.servers)
        return f"GPU pool in {folder}: {len(ledger.servers)} servers, {devices} GPUs\n"


def simulate(environ: Mapping[str, str], servers: int, gpus: int, memory_mib: int, name: str) -> str:
    """Write a pool.toml of simulated servers. Leases that are held stay.

    Args:
        environ: Names the pool's folder.
        servers: How many servers.
        gpus: How many GPUs each has.
        memory_mib: Memory of each GPU.
        name: Name of the GPUs.

    Returns:
        The status of the pool as text.

    Raises:
        ClientFailed: A value is out of range.
        PoolUnreadable: A file cannot be written.
    """
    folder = pool_folder(environ)
    text = "\n".join(_server_table(number, servers, gpus, memory_mib, name) for number in range(servers))
    try:
        parse_configuration(text)
    except ValueError as error:
        raise ClientFailed("", str(error)) from None
    try:
        ensure_folder(folder)
        _write_configuration(folder, text)
    except OSError as error:
        raise unreadable(folder, error) from None
    with Ledger({**environ, "BITFUSION_POOL_CONFIG": os.path.join(folder, CONFIGURATION)}) as ledger:
        return status_text(take_snapshot(ledger))


def _group_id(group: str) -> int:
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ClientFailed("", f"there is no group {group}") from None


def _read_configuration(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        parse_configuration(text)
    except (OSError, ValueError) as error:
        raise wrong_configuration(path, getattr(error, "strerror", None) or str(error)) from None
    return text


def _write_configuration(folder: str, text: str) -> None:
    path = os.path.join(folder, CONFIGURATION)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o644)  # whatever the umask: everybody who uses the pool reads it
    os.replace(draft, path)


def _server_table(number: int, servers: int, gpus: int, memory_mib: int, name: str) -> str:
    server = "local" if servers == 1 else f"server{number + 1}"
    return (
        f'[[servers]]\nname = "{server}"\naddress = "127.0.0.{number + 1}"\nport = 56001\n\n'
        f"[[servers.devices]]\nname = {json.dumps(name)}\n"
        f"memory_mib = {memory_mib}\ncount = {gpus}\n"
    )
