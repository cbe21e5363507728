"""The `bitfusion` command: its subcommands, its help, its exit status and error lines."""

from __future__ import annotations

import os

from bitfusion_client.command.command_line import HelpWanted
from bitfusion_client.command.log_output import VERSION, LogOutput, write_text
from bitfusion_client.errors import BitfusionError, InvalidRequest, TokenExpired, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.signals import Interrupted, raise_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HELP = """\
NAME:
   bitfusion - GPUs from a pool (embedded stand-in for the vSphere Bitfusion client)

USAGE:
   bitfusion COMMAND [options] [arguments]

COMMANDS:
   run           Take GPUs, run a program with them, release them
   request_gpus  Take GPUs and keep them until release_gpus
   client        Run a program with the GPUs of request_gpus
   release_gpus  Release the GPUs of request_gpus, or those of an allocation file (-f FILE)
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
    """Run the command and end the process; called by `bin/bitfusion`, never returns."""
    status = 1
    try:
        raise_on_signals()
        status = _dispatch(args, os.environ)
    except Interrupted as interruption:
        status = 128 + interruption.number
    except HelpWanted:
        write_text(1, HELP)
        status = 0
    except TokenExpired as error:
        output = _log_output(os.environ)
        if error.next_step != TokenExpired.next_step:  # a service says more than the emulation
            output.log(f"What to do: {error.next_step}", "WARN")
        output.plain(str(error))
    except BitfusionError as error:
        _log_output(os.environ).error(error)
    except BaseException as error:
        _log_output(os.environ).error(f"unexpected {type(error).__name__}: {error}")
        if os.environ.get("BITFUSION_POOL_DEBUG"):
            import traceback

            traceback.print_exc()
    finally:
        # nothing is buffered, and an orderly end of the interpreter costs some milliseconds
        os._exit(status)


def _dispatch(args: Sequence[str], environ: Mapping[str, str]) -> int:
    name = args[0] if args else "help"
    subcommand = _subcommand(name)
    if subcommand is None:
        raise UsageError(f'unknown command "{name}"; `bitfusion help` lists the commands')
    if args[1:2] in (["-h"], ["--help"]):
        raise HelpWanted(name)
    return subcommand(args[1:], environ)


def _log_output(environ: Mapping[str, str]) -> LogOutput:
    from bitfusion_pool.inventory.emulation import emulation_from, environment_settings

    try:
        return LogOutput(emulation_from(environment_settings(environ)).stream)
    except InvalidRequest:  # which may be the very error to write
        return LogOutput()


def _subcommand(name: str) -> Callable[[Sequence[str], Mapping[str, str]], int] | None:
    """Each imports what it needs, which the start of the others does not have to pay for."""
    match name:
        case "run":
            from bitfusion_pool.client.commands.run import run

            return run
        case "request_gpus" | "client" | "release_gpus":
            from bitfusion_pool.client.commands.reservations import SUBCOMMANDS

            return SUBCOMMANDS[name]
        case "list_gpus" | "smi":
            from bitfusion_pool.client.commands.reports import list_gpus, smi

            return lambda _, environ: (smi if name == "smi" else list_gpus)(environ)
        case "health":
            from bitfusion_pool.client.health.health import health

            return lambda _, environ: health(environ)
        case "version" | "-v" | "--version":
            about = "embedded pool, stand-in for the vSphere Bitfusion client"
            return lambda *_: _tell(f"bitfusion version {VERSION} ({about})\n")
        case "help" | "h" | "-h" | "--help":
            return lambda *_: _tell(HELP)
    return None


def _tell(text: str) -> int:
    write_text(1, text)
    return 0
