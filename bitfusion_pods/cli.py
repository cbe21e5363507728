"""The `bitfusion` command: its subcommands, its help, its exit status and error lines."""

from __future__ import annotations

import os

from bitfusion_client.command.command_line import HelpWanted
from bitfusion_client.command.log_output import VERSION, LogOutput, write_text
from bitfusion_client.errors import (
    BitfusionError,
    NoGpuGiven,
    PodRefused,
    PrintedError,
    UsageError,
    WaitTimedOut,
)
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.pod.pod_contract import OF_GPU_PODS
from bitfusion_pods import signals
from bitfusion_pods.command import stdio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Subcommand = Callable[[Sequence[str], Mapping[str, str]], int]

DEBUG_VARIABLE = "BITFUSION_PODS_DEBUG"
HELP = """\
NAME:
   bitfusion - GPUs of this Kubernetes cluster, each program in a pod of its own

USAGE:
   bitfusion COMMAND [options] [arguments]

COMMANDS:
   run           Create a pod with GPUs, run a program in it, delete it
   list_gpus     GPUs of the cluster that this pod may see, and who holds them in this namespace
   smi           The same as tables
   health        Check this pod's rights and how a GPU pod would be created; with --connect, create one
                 without a GPU and test its image, its volumes, the connection and a program
   version       Show the version
   help          Show this text

OPTIONS of run:
   -n N, --num_gpus N         number of GPUs (required)
   -p F, --partial F          share of each GPU, above 0.0, at most 1.0; default: whole GPUs
   -m MIB, --gpu_memory MIB   the same as an amount of memory; not with -p
   --timeout D                longest time to wait for free GPUs, such as 90 or 2m30s; default 30m
"""
NOT_HERE = (
    "{} reserves GPUs for later programs, which is not possible here: in this cluster `bitfusion run` "
    "creates a pod for each program"
)


def main(args: Sequence[str]) -> None:
    """Run the command and end the process; called by `bin/bitfusion`, never returns."""
    status, log = 1, LogOutput()
    stdio.hold_closed()
    try:
        signals.raise_on(signals.ENDS)
        status = _dispatch(args, os.environ)
    except signals.Interrupted as interrupted:
        status = 128 + interrupted.number
    except HelpWanted:
        write_text(1, HELP)
        status = 0
    except BitfusionError as error:
        log.error(_printed(error))
    except BaseException as error:
        log.error(f"unexpected {type(error).__name__}: {error}")
        if os.environ.get(DEBUG_VARIABLE):
            import traceback

            traceback.print_exc()
    finally:
        os._exit(status)  # nothing is buffered; an orderly end of the interpreter costs some milliseconds


def _printed(error: BitfusionError) -> object:
    """What is printed of it, with its cure: what no line of the client's says is told as a refused pod."""
    if isinstance(error, NoGpuGiven) and not isinstance(error, (PrintedError, WaitTimedOut)):
        headline = error.headline.rstrip(".")
        said = f"{headline[0].lower()}{headline[1:]}: {error.answered}" if error.answered else headline
        return PodRefused("", said, error.next_step)
    return error


def _dispatch(args: Sequence[str], environ: Mapping[str, str]) -> int:
    name = args[0] if args else "help"
    subcommand = _subcommand(name)
    if subcommand is None:
        raise UsageError(f'unknown command "{name}"; `bitfusion help` lists the commands')
    if args[1:2] in (["-h"], ["--help"]):
        raise HelpWanted(name)
    return subcommand(args[1:], environ)


def _subcommand(name: str) -> Subcommand | None:
    """Each imports what it needs, which the start of the others does not have to pay for."""
    match name:
        case "run":
            from bitfusion_pods.command.run import run

            return run
        case "agent":  # process 1 of a GPU pod, and nobody's to call
            from bitfusion_pods.agent.__main__ import main as agent

            return lambda args, _: agent(list(args))
        case "request_gpus" | "client" | "release_gpus":
            raise UsageError(NOT_HERE.format(name))
        case "list_gpus" | "smi":
            from bitfusion_pods.command.reports import list_gpus, smi

            return lambda _, environ: (smi if name == "smi" else list_gpus)(environ)
        case "health":
            from bitfusion_pods.command.health import health

            return health
        case "version" | "-v" | "--version":
            return lambda *_: _tell(f"bitfusion version {VERSION} ({OF_GPU_PODS})\n")
        case "help" | "h" | "-h" | "--help":
            return lambda *_: _tell(HELP)
    return None


def _tell(text: str) -> int:
    write_text(1, text)
    return 0
