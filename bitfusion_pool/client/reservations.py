"""GPUs that are kept between commands: `request_gpus`, `client`, `release_gpus`.

No process stands behind such a lease; it lives `auto_release` long (a manner, 10m) after its request or after
the last `client` that used it.
"""

from __future__ import annotations

import os

from bitfusion_client.command_line import parse_options, split_program
from bitfusion_client.errors import ClientFailed, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import signals
from bitfusion_pool.client.allocation import program_environment, read_allocation, remove_allocation
from bitfusion_pool.client.first_contact import claim, holder_of
from bitfusion_pool.client.log_output import Speaker
from bitfusion_pool.client.run import acquire, announce, exit_status, run_program, server_of
from bitfusion_pool.ledger.entries import HELD, RESERVED
from bitfusion_pool.ledger.lease_lock import LifeLock
from bitfusion_pool.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.ledger.entries import Entry


def request_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Take GPUs and leave them allocated; `-f FILE` says where to write the allocation."""
    options = {"f": ""}
    request, rest = parse_options(args, other=options, count_may_be_a_word=True)
    if rest:
        raise UsageError(f"request_gpus runs no program: {rest[0]}")
    with Ledger(environ) as ledger:
        manners = ledger.manners
        speaker = Speaker(manners.stream)
        signals.raise_on_signals(manners.sigint, manners.sigterm)
        claim(ledger, speaker)
        entry, lock = acquire(ledger, speaker, request, holder_of((), environ), RESERVED)
        try:
            path = announce(speaker, entry, server_of(ledger.servers, entry), ledger.folder, options["f"])
            _remember(path, environ)
            ledger.renew(entry.entry_id, manners.auto_release)
        except BaseException:
            ledger.give_back(entry.entry_id)
            raise
        finally:
            lock.close()
    return 0


def client(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program with GPUs that were requested before; `-f FILE` names the allocation."""
    path, rest = _file_option(args)
    program = split_program(rest)
    if not program or not program[0]:
        raise UsageError("there is no program to run")
    path = path or _remembered(environ)
    lease, environ = _lease_in(path, environ)
    with Ledger(environ) as ledger:
        manners = ledger.manners
        speaker = Speaker(manners.stream)
        signals.raise_on_signals(manners.sigint, manners.sigterm)
        client_id = claim(ledger, speaker)
        entry, lock = _join(ledger, lease, path)
        before = signals.block()
        servers = ledger.servers
    try:
        server = server_of(servers, entry)
        lock.share()
        given = program_environment(environ, entry, server, lock.fd)
        status = run_program(program, given, before, speaker, client_id, server, manners)
    finally:
        with Ledger(environ) as ledger:
            # from now on the time to live counts again
            ledger.renew(lease, manners.auto_release)
        lock.close()
    return exit_status(status, manners)


def release_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Give back what `request_gpus`, or a `run` that somebody forgot, has allocated."""
    path, rest = _file_option(args)
    if rest:
        raise UsageError(f"unexpected word: {rest[0]}")
    path = path or _remembered(environ)
    lease, environ = _lease_in(path, environ)
    with Ledger(environ) as ledger:
        speaker = Speaker(ledger.manners.stream)
        entry = ledger.look(lease)
        if entry is not None and os.getuid() not in (0, entry.holder.uid):
            raise ClientFailed("", f"the GPUs of {path} belong to {entry.holder.user}")
        speaker.log(f"Releasing GPUs from config file '{path}'...")
        ledger.give_back(lease)
    remove_allocation(path)
    _forget(path, environ)
    speaker.log(f"Released GPUs on 1 servers and removed generated config file '{path}'")
    return 0


def _join(ledger: Ledger, lease: str, path: str) -> tuple[Entry, LifeLock]:
    gone = f"the GPUs of {path} are no longer allocated: released, or not used for too long"
    try:
        lock = LifeLock.join(ledger.folder, lease)
    except OSError:
        raise ClientFailed("", gone, "request GPUs again: bitfusion request_gpus") from None
    # with the lock in hand: from here on nobody takes it for forgotten
    entry = ledger.look(lease)
    if entry is None or entry.state != HELD or not ledger.renew(lease, ledger.manners.auto_release):
        lock.close()
        raise ClientFailed("", gone, "request GPUs again: bitfusion request_gpus")
    return entry, lock


def _file_option(args: Sequence[str]) -> tuple[str, list[str]]:
    rest = list(args)
    path = ""
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        if flag not in ("-f", "--f"):
            raise UsageError(f"flag provided but not defined: {flag}")
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: {flag}")
            value = rest.pop(0)
        path = value
    return path, rest


def _lease_in(path: str, environ: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    try:
        lease, folder = read_allocation(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ClientFailed("", f"allocation file {path} cannot be read: {why}") from None
    return lease, {**environ, "BITFUSION_POOL_DIR": folder} if folder else environ


# which allocations of request_gpus this user has: the newest is the one meant without -f


def _list_file(environ: Mapping[str, str]) -> str:
    return f"{environ.get('HOME') or '/root'}/.bitfusion/requested_gpus"


def _remembered_all(environ: Mapping[str, str]) -> list[str]:
    try:
        with open(_list_file(environ), encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if os.path.exists(line)]
    except OSError:
        return []


def _remembered(environ: Mapping[str, str]) -> str:
    known = _remembered_all(environ)
    if not known:
        raise UsageError("no GPUs are requested: use request_gpus first, or name the allocation with -f FILE")
    return known[-1]


def _write_list(paths: Sequence[str], environ: Mapping[str, str]) -> None:
    file = _list_file(environ)
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        draft = f"{file}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as out:
            out.write("".join(f"{path}\n" for path in paths))
        os.replace(draft, file)
    except OSError:
        pass  # a home that cannot be written: then -f FILE is needed


def _remember(path: str, environ: Mapping[str, str]) -> None:
    path = os.path.abspath(path)
    _write_list([*(known for known in _remembered_all(environ) if known != path), path], environ)


def _forget(path: str, environ: Mapping[str, str]) -> None:
    path = os.path.abspath(path)
    known = _remembered_all(environ)
    _write_list([one for one in known if one != path], environ)
