"""How old what a cache holds may be: the seconds since the API server last said something that holds for it.

A quiet watch confirms its cache too: servers send bookmarks about once a minute, and end a watch in order
after the time that was asked for. A connection that opens, an error in the stream, or a page of a list that
is not complete confirm nothing: a server may say those for hours and refuse everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class CacheAge:
    """Made and confirmed by the loop that fills the cache; any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._confirmed = clock()

    def confirm(self) -> None:
        """What the cache holds is what there was a moment ago."""
        self._confirmed = self._clock()

    def seconds(self) -> float:
        """Since the last confirmation; before the first one, since this was made."""
        return self._clock() - self._confirmed
