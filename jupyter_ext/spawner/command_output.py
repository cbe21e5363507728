"""What every command has: its parser, files to stdout or written and told, and the table below them."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from jupyter_ext.spawner.written_files import write_files

STDOUT = "-"
STDOUT_NAME = "stdout"


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int],
    name: str,
    form: str,
    description: str,
    examples: str,
) -> argparse.ArgumentParser:
    """Add one that gives sizes to this form to the parser of `kubeflow-bitfusion`; for its options."""
    parser = commands.add_parser(
        name,
        help=f"GPU sizes for {form}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    return parser


def deliver(files: Mapping[str, str], force: bool, told: Sequence[str]) -> int:
    """Print the one file whose path is `STDOUT`, or write all; then `told` beside it. The exit status, 0.

    Raises EditedFile, OSError; nothing is written unless all can be.
    """
    if STDOUT in files:
        print_file(files[STDOUT])
    else:
        changed = write_files(files, force)
        for path in files:
            print(f"{'wrote' if path in changed else 'unchanged:'} {path}")
    if told:
        print("\n" + "\n".join(told), file=sys.stderr if STDOUT in files else sys.stdout)
    return 0


def print_file(text: str) -> None:
    """Print the text of a file. Raises OSError, with stdout's name or none."""
    if getattr(sys, "stdout", None) is None:  # as Python has it where it was closed before the start
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STDOUT_NAME)
    sys.stdout.write(text)
    sys.stdout.flush()


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns begin below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        padded = [f"{word:{width}}" for word, width in zip(row, widths, strict=False)]
        lines.append("  " + "   ".join([*padded, row[-1]]).rstrip())
    return lines
