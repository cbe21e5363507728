"""The stand-in `bitfusion` command: its sub-commands and what it says when something is wrong."""

from __future__ import annotations

import os

from bitfusion_client.errors import BitfusionError, InvalidRequest, TokenExpired, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.log_output import VERSION, Speaker, say
from bitfusion_pool.client.signals import Interrupted, raise_on_signals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELP = """\
NAME:
   bitfusion - GPUs from a pool (embedded stand-in for the vSphere Bitfusion client)

USAGE:
   bitfusion COMMAND [options] [arguments]

COMMANDS:
   run           Take GPUs, run a program with them, give them back
   request_gpus  Take GPUs and keep them until release_gpus
   client        Run a program with the GPUs of request_gpus
   release_gpus  Give back the GPUs of request_gpus, or those of an allocation file (-f FILE)
   list_gpus     Servers, their GPUs and free memory
   smi           Who uses which GPU
   health        Check the pool and this machine
   version       Show the version
   help          Show this text

OPTIONS of run and request_gpus:
   -n N, --num_gpus N         number of GPUs, all from one server (required)
   -p F, --partial F          share of each GPU's memory, above 0.0, at most 1.0; default: whole GPUs
   -m MIB, --gpu_memory MIB   the same in MiB; not together with -p
   --filter KEY=VALUE         only such servers and GPUs; may be repeated
   --server_list HOST:PORT    only these servers, several joined by ;
   --timeout D                longest time to wait for free GPUs, like 90, 2m30s; default 30m
"""


def main(args: Sequence[str]) -> None:
    """Run the command and end the process; never returns."""
    status = 1
    try:
        raise_on_signals()
        status = _dispatch(args, os.environ)
    except Interrupted as interruption:
        status = 128 + interruption.number
    except TokenExpired as error:
        _speaker(os.environ).plain(str(error))
    except BitfusionError as error:
        _speaker(os.environ).error(error)
    except BaseException as error:
        _speaker(os.environ).error(f"unexpected {type(error).__name__}: {error}")
        if os.environ.get("BITFUSION_POOL_DEBUG"):
            import traceback

            traceback.print_exc()
    finally:
        # nothing is buffered; taking the interpreter down in order costs some milliseconds
        os._exit(status)


def _dispatch(args: Sequence[str], environ: Mapping[str, str]) -> int:
    name = args[0] if args else "help"
    rest = args[1:]
    if name == "run":
        from bitfusion_pool.client.run import run

        return run(rest, environ)
    if name in ("request_gpus", "client", "release_gpus"):
        from bitfusion_pool.client import reservations

        return getattr(reservations, name)(rest, environ)  # type: ignore[no-any-return]  # all three return int
    if name in ("list_gpus", "smi"):
        from bitfusion_pool.client import reports

        return reports.list_gpus(environ) if name == "list_gpus" else reports.smi(environ)
    if name == "health":
        from bitfusion_pool.client.health import health

        return health(environ)
    if name in ("version", "-v", "--version"):
        say(1, f"bitfusion version {VERSION} (embedded pool, stand-in for the vSphere Bitfusion client)\n")
        return 0
    if name in ("help", "h", "-h", "--help"):
        say(1, HELP)
        return 0
    raise UsageError(f'no such command: "{name}"; `bitfusion help` lists them')


def _speaker(environ: Mapping[str, str]) -> Speaker:
    # the error may be that manners cannot be read: then the default stream must do
    from bitfusion_pool.inventory.emulation import manners_from, split_manners

    try:
        return Speaker(manners_from(split_manners(environ.get("BITFUSION_POOL_MANNERS", ""))).stream)
    except InvalidRequest:
        return Speaker()
