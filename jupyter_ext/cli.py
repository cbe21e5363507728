"""The command `kubeflow-bitfusion`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bitfusion_client.errors import BitfusionError, UsageError
from jupyter_ext.spawner import form_command, profiles_command, workspacekind_command

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 (it could not be done), 2 (wrongly asked)."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except UsageError as error:
        print(f"kubeflow-bitfusion: {error.user_message}", file=sys.stderr)
        return 2
    except BitfusionError as error:
        print(f"kubeflow-bitfusion: {error.user_message}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"kubeflow-bitfusion: {where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubeflow-bitfusion", description="Bitfusion GPUs in the forms that start notebooks."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (form_command, profiles_command, workspacekind_command):
        command.add_to(commands)
    return parser
