"""The admin's command `bitfusion-pool`: status, init, simulate, reap."""

from __future__ import annotations

import argparse
import json
import os
import sys

from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.admin.status import status_text
from bitfusion_pool.inventory.configuration import FILE, parse_configuration, wrong
from bitfusion_pool.inventory.servers import DEFAULT_DEVICE_NAME, DEFAULT_MEMORY_MIB
from bitfusion_pool.ledger.lease_lock import FOLDER as LOCKS
from bitfusion_pool.ledger.lease_lock import is_alive
from bitfusion_pool.ledger.lease_lock import remove_leftovers as remove_locks
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.pool_folder import LEDGER, ensure_folder, pool_folder, unreadable
from bitfusion_pool.ledger.snapshot import take_snapshot
from bitfusion_pool.ledger.wake_up import remove_leftovers as remove_bells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = _parser().parse_args(args)
    environ = dict(os.environ)
    if options.dir:
        environ["BITFUSION_POOL_DIR"] = options.dir
    try:
        text = COMMANDS[options.command](options, environ)
    except BitfusionError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("bitfusion-pool", description="The embedded GPU pool of this machine.")
    parser.add_argument("--dir", metavar="FOLDER", help="the pool's folder (default: BITFUSION_POOL_DIR)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("status", help="show GPUs, who holds them and who waits")
    show.add_argument("--json", action="store_true", help="the same for programs")
    make = commands.add_parser("init", help="make the pool's folder and an empty ledger")
    make.add_argument("--group", help="only members of this group may use the pool")
    make.add_argument("--config", metavar="FILE", help="copy this pool.toml into the folder")
    make.add_argument("--force", action="store_true", help="replace a ledger that is damaged or in use")
    sim = commands.add_parser("simulate", help="let the pool consist of simulated GPUs")
    sim.add_argument("--servers", type=_count, default=1, metavar="N", help="how many servers (1)")
    sim.add_argument("--gpus", type=_count, default=2, metavar="N", help="GPUs of each server (2)")
    sim.add_argument(
        "--memory", type=_count, default=DEFAULT_MEMORY_MIB, metavar="MIB", help="memory of a GPU"
    )
    sim.add_argument("--name", default=DEFAULT_DEVICE_NAME, help="name of the GPUs")
    collect = commands.add_parser("reap", help="take back what dead programs left, tidy the folder")
    collect.add_argument("--force", metavar="LEASE", help="end this lease, whoever holds it")
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not number:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1: {text!r}")
    return number


def status(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Tables, or JSON."""
    with Ledger(environ) as ledger:
        snapshot = take_snapshot(ledger)
    return json.dumps(snapshot.to_json(), indent=2) + "\n" if options.json else status_text(snapshot)


def init(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Make the folder with its permissions; an existing ledger is kept unless forced."""
    folder = pool_folder(environ)
    mode, group = 0o777, -1
    if options.group:
        import grp

        try:
            group = grp.getgrnam(options.group).gr_gid
        except KeyError:
            raise ClientFailed("", f"there is no group {options.group}") from None
        mode = 0o2770  # files made inside belong to the group too
    ledger = os.path.join(folder, LEDGER)
    if os.path.exists(ledger) and not options.force:
        raise ClientFailed("", f"there is a ledger already: {ledger}; --force replaces it")
    running = _held_locks(folder)
    if running:
        # a new ledger would not know of them and hand their GPUs out again
        raise ClientFailed("", f"{running} programs hold GPUs of this pool or wait for them; end them first")
    text = ""
    if options.config:
        try:
            with open(options.config, encoding="utf-8") as file:
                text = file.read()
            parse_configuration(text)
        except (OSError, ValueError) as error:
            raise wrong(options.config, getattr(error, "strerror", None) or str(error)) from None
    try:
        ensure_folder(folder, mode, group)
        if options.group:
            for path in (folder, f"{folder}/locks", f"{folder}/bells"):
                os.chown(path, -1, group)
                os.chmod(path, mode)
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(ledger + ending):
                os.unlink(ledger + ending)
        if text:
            _write(folder, text)
    except OSError as error:
        raise unreadable(folder, error) from None
    with Ledger(environ) as made:
        devices = sum(len(server.devices) for server in made.servers)
        return f"GPU pool in {folder}: {len(made.servers)} servers, {devices} GPUs\n"


def _held_locks(folder: str) -> int:
    try:
        names = os.listdir(f"{folder}/{LOCKS}")
    except OSError:
        return 0
    return sum(is_alive(folder, name, shared=True) for name in names)


def simulate(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Write a pool.toml of simulated servers. Leases that are held stay."""
    folder = pool_folder(environ)
    tables = []
    for number in range(options.servers):
        address = f"127.0.0.{number + 1}"
        name = "local" if options.servers == 1 else f"server{number + 1}"
        tables.append(
            f'[[servers]]\nname = "{name}"\naddress = "{address}"\nport = 56001\n\n'
            f"[[servers.devices]]\nname = {json.dumps(options.name)}\n"
            f"memory_mib = {options.memory}\ncount = {options.gpus}\n"
        )
    text = "\n".join(tables)
    try:
        parse_configuration(text)
    except ValueError as error:
        raise ClientFailed("", str(error)) from None
    try:
        ensure_folder(folder)
        _write(folder, text)
    except OSError as error:
        raise unreadable(folder, error) from None
    with Ledger({**environ, "BITFUSION_POOL_CONFIG": os.path.join(folder, FILE)}) as ledger:
        return status_text(take_snapshot(ledger))


def _write(folder: str, text: str) -> None:
    path = os.path.join(folder, FILE)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o644)  # whatever the umask: everybody who uses the pool reads it
    os.replace(draft, path)


def reap(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Give dead programs' GPUs to those who wait. Happens by itself too, whenever somebody looks."""
    with Ledger(environ) as ledger:
        if options.force:
            if not ledger.give_back(options.force):
                raise ClientFailed("", f"there is no lease {options.force}")
            return f"ended lease {options.force}\n"
        buried = ledger.reap()
        known = {entry.entry_id for entry in ledger.entries()}
        try:
            files = remove_locks(ledger.folder, known)
            remove_bells(ledger.folder, known)
        except OSError as error:
            raise unreadable(ledger.folder, error) from None
    return f"took back {buried} leases and places in the queue, removed {files} leftover lock files\n"


COMMANDS = {"status": status, "init": init, "simulate": simulate, "reap": reap}


if __name__ == "__main__":
    sys.exit(main())
