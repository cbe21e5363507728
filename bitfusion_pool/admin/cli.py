"""The administrator's command `bitfusion-pool`: its arguments, its output, its exit status."""

from __future__ import annotations

import argparse
import json
import os
import sys

from bitfusion_client.any_bytes import print_any_bytes
from bitfusion_client.errors import BitfusionError, ClientFailed, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.admin.certificate_command import add_certificate_parser, run_certificate
from bitfusion_pool.admin.reap import end_entry, end_lease, reap
from bitfusion_pool.admin.setup import init, simulate
from bitfusion_pool.admin.status import status_text
from bitfusion_pool.admin.status_json import status_json
from bitfusion_pool.admin.token_command import add_token_parser, run_token
from bitfusion_pool.client.pools.pool_choice import VARIABLE, open_pool
from bitfusion_pool.inventory.servers import DEFAULT_DEVICE_NAME, DEFAULT_MEMORY_MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ASK_KUBECTL = ""  # --kubernetes without a file


def main(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (by default the process's); returns the exit status."""
    words = sys.argv[1:] if args is None else list(args)
    print_any_bytes()
    options = _parser(words).parse_args(words)
    environ = dict(os.environ)
    if options.dir:
        environ["BITFUSION_POOL_DIR"] = options.dir
        environ.pop(VARIABLE, None)  # which would name another pool
    if options.command == "shell":
        from bitfusion_pool.admin.shell import become

        return become(options.program[options.program[:1] == ["--"] :], environ)
    if options.command == "serve":
        from bitfusion_pool.admin.serve import serve

        return serve(options, environ)
    try:
        text = COMMANDS[options.command](options, environ)
    except BitfusionError as error:
        print(f"Error: {_with_cure(error)}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


def _with_cure(error: BitfusionError) -> str:
    """What happened and, where the error has a next step of its own, that; most errors say it themselves."""
    if isinstance(error, ClientFailed) and error.next_step != ClientFailed.next_step:
        return f"{error}. What to do: {error.next_step}"
    return str(error)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "bitfusion-pool", description="Your embedded GPU pool, or the pool of a machine."
    )
    parser.add_argument(
        "--dir", metavar="FOLDER", help="the pool's folder (default: the pool that `bitfusion` uses)"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("status", help="show GPUs, who holds them and who waits")
    show.add_argument("--json", action="store_true", help="the same for programs")
    show.add_argument(
        "--kubernetes",
        nargs="?",
        const=ASK_KUBECTL,
        metavar="FILE",
        help="what a cluster's pods count of the pool, beside who holds what: kubectl is asked, "
        "or its output is read from FILE (-: standard input)",
    )
    show.add_argument("--context", metavar="NAME", help="passed on to kubectl")
    show.add_argument("--kubeconfig", metavar="FILE", help="passed on to kubectl")
    make = commands.add_parser("init", help="create the pool's folder and an empty ledger")
    content = make.add_mutually_exclusive_group()
    content.add_argument("--config", metavar="FILE", help="copy this pool.toml into the folder")
    content.add_argument(
        "--nvidia", action="store_true", help="hand out this machine's NVIDIA GPUs, not simulated ones"
    )
    make.add_argument("--force", action="store_true", help="replace a ledger that is damaged or in use")
    sim = commands.add_parser("simulate", help="let the pool consist of simulated GPUs")
    sim.add_argument("--servers", type=_count, default=1, metavar="N", help="how many servers (1)")
    sim.add_argument("--gpus", type=_count, default=2, metavar="N", help="GPUs of each server (2)")
    sim.add_argument(
        "--memory", type=_count, default=DEFAULT_MEMORY_MIB, metavar="MIB", help="memory of a GPU"
    )
    sim.add_argument("--name", default=DEFAULT_DEVICE_NAME, help="name of the GPUs")
    collect = commands.add_parser("reap", help="release what dead programs left, tidy the folder")
    collect.add_argument("--force", metavar="LEASE", help="end this lease, whoever holds it")
    end = commands.add_parser("end", help="end a lease or a request that waits")
    end.add_argument("entry", metavar="ID", help="as `status` shows it")
    add_token_parser(commands)
    add_certificate_parser(commands)
    shell = commands.add_parser("shell", help="run a program, or your shell, with `bitfusion` on its PATH")
    shell.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM", help="default: your shell")
    run = commands.add_parser("serve", help="share this pool with all users of this machine")
    if "serve" in words:  # its settings cost the other commands an import
        from bitfusion_pool.admin.serve import add_options

        add_options(run)
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not number:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1: {text!r}")
    return number


def _status(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    if options.kubernetes is not None:
        # its parts cost the other commands an import
        from bitfusion_pool.admin.kubernetes_status import become_report

        become_report(options, environ)
    if options.context or options.kubeconfig:
        raise UsageError("--context and --kubeconfig belong to status --kubernetes")
    with open_pool(environ) as pool:
        snapshot = pool.snapshot()
    return json.dumps(status_json(snapshot), indent=2) + "\n" if options.json else status_text(snapshot)


COMMANDS: dict[str, Callable[[argparse.Namespace, Mapping[str, str]], str]] = {
    "status": _status,
    "end": lambda options, environ: end_entry(environ, options.entry),
    "init": lambda options, environ: init(environ, options.config, options.force, options.nvidia),
    "simulate": lambda options, environ: simulate(
        environ, options.servers, options.gpus, options.memory, options.name
    ),
    "reap": lambda options, environ: end_lease(environ, options.force) if options.force else reap(environ),
    "token": run_token,
    "certificate": run_certificate,
}


if __name__ == "__main__":
    sys.exit(main())
