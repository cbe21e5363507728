"""The command `bitfusion-notebook-controller`: reads the settings, runs the controller, reports errors.

Exit status: 0 ended by a signal, 1 it could not start or run, 2 a wrong setting. Each is one line on stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NoReturn

from bitfusion_client.errors import BitfusionError, UsageError, WrongInput
from notebook_controller_patch.settings import GROUPS, PREFIX, TABLE, Settings, read_settings

PROGRAM = "bitfusion-notebook-controller"
DESCRIPTION = """\
Carries GPU requests of Kubeflow notebooks to their pods: Notebook and StatefulSet admission, and the
reconciler that heals what admission missed. Every replica answers admission; one of them, elected by a
Lease, reconciles. It never restarts a running notebook."""
EPILOG = f"""\
Each option can be given in the environment: --monitoring-port is {PREFIX}MONITORING_PORT.
Options win.
SIGTERM and SIGINT end it within 20 seconds: not ready, requests answered, lease released.
Ready (/readyz) means: a certificate is there, the apiserver trusts it, and the notebooks have been read."""


def main(args: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    if args is None:
        # The first process of a container never sees a signal without a handler, and we import for a while.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    try:
        settings = settings_of(sys.argv[1:] if args is None else args, os.environ)
    except WrongInput as error:
        return _told(error, 2)
    # The client of the cluster and the server take a third of a second to import: not for --help.
    from notebook_controller_patch.controller import run

    try:
        run(settings)
    except WrongInput as error:
        return _told(error, 2)
    except BitfusionError as error:
        return _told(error, 1)
    return 0


def settings_of(args: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings of a command line. Raises WrongSetting and UsageError; ends at --help and --version."""
    options, rest = _parser().parse_known_args(list(args))
    if rest:
        raise UsageError(f'unknown option "{rest[0]}"; {PROGRAM} --help lists all')
    return read_settings(vars(options), environ)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {PROGRAM} --help lists all options")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        PROGRAM,
        usage="%(prog)s [--option value …]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    shown = f"{PROGRAM} {version('kubeflow-bitfusion')}"
    parser.add_argument("--version", action="version", version=shown, help="show the version and end")
    groups = {name: parser.add_argument_group(name) for name in GROUPS}
    for setting in TABLE:
        groups[setting.group].add_argument(setting.option, metavar=setting.metavar, help=setting.help)
    return parser


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(0)


def _told(error: BitfusionError, status: int) -> int:
    text = " ".join(error.user_message.split())
    print(f"{PROGRAM}: {text[:1].upper()}{text[1:]}", file=sys.stderr, flush=True)
    return status
