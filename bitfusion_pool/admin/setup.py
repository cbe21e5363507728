"""`bitfusion-pool init` and `simulate`: create the pool's folder and ledger, write its pool.toml."""

from __future__ import annotations

import json
import os
from contextlib import closing

from bitfusion_client.errors import BitfusionError, ClientFailed, PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.admin.status import status_text
from bitfusion_pool.client.pools.pool_choice import OWN, VARIABLE, choose_pool
from bitfusion_pool.inventory.configuration import MAX_BYTES, parse_configuration, wrong_configuration
from bitfusion_pool.inventory.servers import default_name
from bitfusion_pool.ledger.entries import REMOTE, RESERVED, Entry
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.lease_lock import count_held_locks
from bitfusion_pool.ledger.files.pool_folder import (
    CONFIGURATION,
    DATABASE,
    SUBFOLDERS,
    ensure_subfolder,
    pool_folder,
)
from bitfusion_pool.ledger.files.service_lock import is_served
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.liveness import clock, lives
from bitfusion_pool.ledger.snapshot import take_snapshot
from bitfusion_pool.ledger.storage.database import open_database, open_folder, remove_database
from bitfusion_pool.ledger.storage.entry_table import all_entries
from bitfusion_pool.ledger.storage.sqlite import sqlite3
from bitfusion_pool.own_files import NotOurs, read_text, write_own

if TYPE_CHECKING:
    from collections.abc import Mapping

NVIDIA_WARNING = """\
These are real GPUs, and this pool is yours alone: the pool of another user of this machine would hand out the
same GPUs a second time. Shares of a GPU's memory are cooperative: PyTorch, TensorFlow and JAX keep to them,
other programs may not. `bitfusion-pool simulate` goes back to simulated GPUs.
"""


def init(
    environ: Mapping[str, str],
    configuration: str | None = None,
    force: bool = False,
    nvidia: bool = False,
) -> str:
    """Create the folder and a new ledger in it.

    Args:
        environ: Names the pool's folder.
        configuration: A file to copy into the folder as pool.toml.
        force: Whether to replace an existing ledger.
        nvidia: Whether the pool shall hand out this machine's NVIDIA cards. Then `configuration` is None.

    Returns:
        What to tell the administrator.

    Raises:
        ClientFailed: There is a ledger already, or GPUs are held that a new one would hand out again; or a
            service runs with this pool, or the user's commands use a service's.
        PoolUnreadable: The configuration is wrong, a file cannot be written, or the NVIDIA cards cannot be
            read.
    """
    check_that_it_is_own(environ)
    folder = open_folder(pool_folder(environ), environ)
    _check_that_nobody_serves(folder)
    database = f"{folder}/{DATABASE}"
    if os.path.lexists(database) and not force:
        raise ClientFailed("", f"a ledger already exists: {database}; --force replaces it")
    running = count_held_locks(folder)
    if running:
        # a new ledger would not know of them and would hand out their GPUs again
        raise ClientFailed("", f"{running} programs hold GPUs of this pool or wait for them; end them first")
    _check_that_nothing_is_kept(folder)
    warning = ""
    if nvidia:
        text, warning = _nvidia_configuration(environ)
    else:
        text = _read_configuration(configuration) if configuration else ""
    try:
        for name in SUBFOLDERS:
            ensure_subfolder(folder, name)
        remove_database(folder)
        if text:
            write_own(f"{folder}/{CONFIGURATION}", text)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    with Ledger(environ) as ledger:
        devices = sum(len(server.devices) for server in ledger.servers)
        return f"GPU pool in {folder}: {len(ledger.servers)} servers, {devices} GPUs\n{warning}"


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
        ClientFailed: A value is out of range, or the user's commands use a service's pool.
        PoolUnreadable: A file cannot be written.
    """
    text = "\n".join(_server_table(number, gpus, memory_mib, name) for number in range(servers))
    try:
        parse_configuration(text)
    except ValueError as error:
        raise ClientFailed("", str(error)) from None
    check_that_it_is_own(environ)
    folder = open_folder(pool_folder(environ), environ)
    try:
        write_own(f"{folder}/{CONFIGURATION}", text)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    with Ledger({**environ, "BITFUSION_POOL_CONFIG": f"{folder}/{CONFIGURATION}"}) as ledger:
        return status_text(take_snapshot(ledger))


def check_that_it_is_own(environ: Mapping[str, str]) -> None:
    """Refuse to change the user's own pool where the user's commands use another one.

    Raises:
        ClientFailed: They use a service's.
    """
    choice = choose_pool(environ)
    if not choice.is_own:
        raise ClientFailed(
            "",
            f"your commands use the pool of {choice.where} ({choice.why}), which its administrator sets up",
            f"for your own pool set {VARIABLE}={OWN}; as the service's account name its folder: --dir FOLDER",
        )


def _cannot_write(folder: str, error: OSError) -> PoolUnreadable:
    if isinstance(error, IsADirectoryError):
        # the second name, if there is one, is what a draft was to replace
        error = NotOurs(error.filename2 or error.filename, "is a folder, not a file of yours")
    return unreadable(folder, error)


def _check_that_nobody_serves(folder: str) -> None:
    try:
        served = is_served(folder)
    except OSError as error:
        raise unreadable(folder, error) from None
    if served:
        # it has the ledger open, and would go on with one that nobody else sees
        raise ClientFailed(
            "",
            f"a service runs with the pool in {folder}",
            "end it first: systemctl stop bitfusion-pool; `simulate` and changes of pool.toml need no end",
        )


def _check_that_nothing_is_kept(folder: str) -> None:
    kept = _kept_without_a_lock(folder)
    for kind, who in (
        (RESERVED, "request_gpus keeps GPUs of this pool"),
        (REMOTE, "clients on other machines hold GPUs of this pool or wait for them"),
    ):
        names = ", ".join(entry.entry_id for entry in kept if entry.kind == kind)
        if names:
            raise ClientFailed(
                "", f"{who}: {names}; end each with bitfusion-pool --dir {folder} reap --force LEASE"
            )


def _kept_without_a_lock(folder: str) -> list[Entry]:
    """What no program here holds; nothing can be known of a ledger that is damaged."""
    if not os.path.lexists(f"{folder}/{DATABASE}"):
        return []
    try:
        with closing(open_database(folder)) as db:
            found = [entry for entry in all_entries(db) if entry.kind in (RESERVED, REMOTE)]
    except (BitfusionError, sqlite3.Error):
        return []
    now = clock()
    return [one for one in found if lives(folder, one.entry_id, one.kind, one.expires_at, now)]


def _nvidia_configuration(environ: Mapping[str, str]) -> tuple[str, str]:
    """The pool.toml that hands out this machine's cards, and what to tell who asked for it."""
    # what only this command needs
    import socket

    from bitfusion_pool.inventory.nvidia.nvidia_configuration import configuration_text
    from bitfusion_pool.inventory.nvidia.reading_process import no_gpus, read_cards

    reading = read_cards(environ)
    if not reading.devices():
        raise no_gpus(reading)
    notes = "".join(f"Not in the pool: {note}\n" for note in reading.left_out())
    return configuration_text(reading.devices(), reading, socket.gethostname()), notes + NVIDIA_WARNING


def _read_configuration(path: str) -> str:
    try:
        text = read_text(path, MAX_BYTES)
        parse_configuration(text)
    except (OSError, ValueError) as error:
        raise wrong_configuration(path, getattr(error, "strerror", None) or str(error)) from None
    return text


def _server_table(number: int, gpus: int, memory_mib: int, name: str) -> str:
    return (
        f'[[servers]]\nname = "{default_name(number)}"\naddress = "127.0.0.{number + 1}"\nport = 56001\n\n'
        f"[[servers.devices]]\nname = {json.dumps(name)}\n"
        f"memory_mib = {memory_mib}\ncount = {gpus}\n"
    )
