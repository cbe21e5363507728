"""Lines on the proxy's stderr, which is Jupyter's log, or the terminal of a tool such as papermill."""

from __future__ import annotations

import os
import select


def write_line(line: str) -> None:
    """Write one line, cut to what fits at once; drop it if nobody reads."""
    try:
        if select.select([], [2], [], 0)[1]:  # then at least PIPE_BUF bytes can be written without blocking
            os.write(2, line.encode(errors="replace")[: select.PIPE_BUF - 1] + b"\n")
    except (OSError, ValueError):
        return
