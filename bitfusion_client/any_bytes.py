"""Paths and names whose bytes are no UTF-8, as old ones in Latin-1: printed as they are, not refused."""

from __future__ import annotations

import io
import sys


def print_any_bytes() -> None:
    """Let this process print what Python has read by `surrogateescape`; commands call it as they start."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")
