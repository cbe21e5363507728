"""What a list-and-watch loop reads (path, record of an object), and the limits that it keeps to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bitfusion_cluster.api.client import Timeout
from bitfusion_cluster.watching.cache import Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class WatchedResource(Generic[R]):
    """What is listed and watched, in all namespaces.

    Attributes:
        name: In metrics and logs: ``notebooks``.
        path: In the API.
        trim: Makes the record of a raw object; None drops the object.
        fields: A field selector; an object that leaves the selection counts as deleted. Empty: all.
    """

    name: str
    path: str
    trim: Callable[[Mapping[str, Any]], R | None]
    fields: str = ""

    @property
    def query(self) -> dict[str, str | int | bool]:
        """What each list and watch asks for besides its own."""
        return {"fieldSelector": self.fields} if self.fields else {}


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Sizes and times (seconds) of a ListWatch; tests use shorter ones.

    Attributes:
        page: Objects in one page of a list, at most.
        page_bytes: Of one page, at most; its objects take about six times as much memory. A page of 500
            usual Notebooks has 2 MiB, one Notebook at most 3.
        page_pause: Between two pages of a list: two long lists at once stay below 20 requests a second.
        shortest_watch: The server is asked to end a watch after a random time, this long at least …
        longest_watch: … and this long at most.
        margin: Silence that is allowed beyond the time the server was asked to end the watch at.
        quiet: Silence that is allowed where bookmarks are seen; they come about every 60 s.
        steady: A watch that lived this long worked: the next failure is waited out as the first.
        first_delay: After the first failure.
        longest_delay: Between two tries.
        list_timeout: Of one page: to connect, and between two pieces of the answer.
        watch_timeout: For the beginning of the watch's answer; also how long `stop` may have to wait.
    """

    page: int = 500
    page_bytes: int = 8 << 20
    page_pause: float = 0.12
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    margin: float = 30.0
    quiet: float = 150.0
    steady: float = 10.0
    first_delay: float = 1.0
    longest_delay: float = 30.0
    list_timeout: Timeout = (3.0, 30.0)
    watch_timeout: Timeout = (3.0, 15.0)
