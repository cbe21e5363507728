"""Which GPU pods of this notebook's pod belong to a `bitfusion run` that lives, and whose turn it is.

Told by abstract unix sockets, which end with their process, whatever ends it, and are in no folder that may
be full or be cleaned: what is missing is dead. All containers of a pod have them in common, and no other pod.
"""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_TURN = 30.0
"""Seconds after which a turn is not waited for any more: its process may have been stopped."""
_PAUSE = 0.02


class Runs:
    """Those of one container, whoever runs them: its users have one budget together."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._claims: dict[str, socket.socket] = {}

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Only one of them decides what to take, and what is to be deleted."""
        end = time.monotonic() + LONGEST_TURN
        while (mine := _bound(f"turn-{self._container}")) is None and time.monotonic() < end:
            time.sleep(_PAUSE)
        try:
            yield
        finally:
            if mine is not None:
                mine.close()

    def claim(self, pod: str) -> None:
        """This process is the one for a pod, until it ends or forgets it."""
        claimed = _bound(f"run-{pod}")
        if claimed is not None:
            self._claims[pod] = claimed

    def lives(self, pod: str) -> bool:
        """Whether the process of a pod does."""
        free = _bound(f"run-{pod}")
        if free is None:
            return True
        free.close()
        return False

    def forget(self, pod: str) -> None:
        """The pod is gone."""
        claimed = self._claims.pop(pod, None)
        if claimed is not None:
            claimed.close()


def _bound(name: str) -> socket.socket | None:
    """A socket of this name; None if somebody has it. No program inherits it."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(f"\0bitfusion-pods-{name}")
    except OSError:
        made.close()
        return None
    return made
