"""The command `kubeflow-bitfusion`."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence

from bitfusion_client.errors import BitfusionError, UsageError
from jupyter_ext.spawner import form_command, profiles_command, workspacekind_command
from jupyter_ext.spawner.command_output import STDOUT_NAME
from kubeflow_bitfusion import doctor_command, form_in_cluster


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 (it could not be done), 2 (wrongly asked)."""
    _write_utf8(sys.stdout)
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
        if getattr(sys, "stdout", None) is not None:
            sys.stdout.flush()
    except UsageError as error:
        print(f"kubeflow-bitfusion: {error.user_message}", file=sys.stderr)
        return 2
    except BitfusionError as error:
        print(f"kubeflow-bitfusion: {error.user_message}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `kubeflow-bitfusion form sizes.yaml | head`
        _drop_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if not error.filename:  # every file is named
            _drop_stdout()
        where = error.filename or STDOUT_NAME
        print(f"kubeflow-bitfusion: {where}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _write_utf8(stream: object) -> None:
    """What is piped or redirected is a file that Kubernetes reads, whatever the terminal's letters are."""
    if isinstance(stream, io.TextIOWrapper):
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8")


def _drop_stdout() -> None:
    """What could not be written is not tried again by Python at its end, which would tell another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kubeflow-bitfusion",
        description="Puts GPU sizes into the forms that start notebooks, and checks the installation.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    form_in_cluster.add_to(form_command.add_to(commands))
    for command in (profiles_command, workspacekind_command, doctor_command):
        command.add_to(commands)
    return parser
