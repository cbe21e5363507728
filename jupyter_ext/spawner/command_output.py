"""What every command does with its files: one to stdout, or written and told; and the table below them."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, TextIO

from jupyter_ext.spawner.written_files import write_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STDOUT = "-"
STDOUT_NAME = "stdout"


def deliver(files: Mapping[str, str], force: bool) -> TextIO:
    """Print the one file whose path is `STDOUT`, or write all; returns the stream for what is told beside it.

    Raises EditedFile, OSError; nothing is written unless all can be.
    """
    if STDOUT in files:
        print_file(files[STDOUT])
        return sys.stderr
    changed = write_files(files, force)
    for path in files:
        print(f"{'wrote' if path in changed else 'unchanged:'} {path}")
    return sys.stdout


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
