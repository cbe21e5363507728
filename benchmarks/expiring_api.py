"""An API client whose watches and lists can be made to expire, as after a compaction of etcd (410 Gone)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bitfusion_cluster.api.client import TIMEOUT, KubernetesApi, Query, Timeout
from bitfusion_cluster.api.errors import Gone
from bitfusion_cluster.api.stream import Stream

GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


class ExpiringApi(KubernetesApi):
    """For the relist benchmark: `expire` makes every loop list everything anew, two pages of it in vain.

    Attributes:
        lists_expired: How many lists have met a 410 after their second page.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reading: list[ExpiringStream] = []
        self._pages: dict[str, int] = {}  # of the lists that are to expire: path, pages that were asked for
        self.lists_expired = 0

    def get(
        self, path: str, query: Query | None = None, timeout: Timeout = TIMEOUT, largest: int | None = None
    ) -> dict[str, Any]:
        """As `KubernetesApi.get`; Gone for the third page of the first list of each path after `expire`."""
        if path in self._pages:
            self._pages[path] += 1
            if query and query.get("continue") and self._pages[path] > 2:
                del self._pages[path]
                self.lists_expired += 1
                raise Gone(410, "Expired", "The provided continue parameter is too old")
        return super().get(path, query, timeout, largest)

    def stream(
        self, path: str, query: Query | None, read_timeout: float, timeout: Timeout = TIMEOUT
    ) -> Stream:
        """As `KubernetesApi.stream`; what it returns is remembered until it ends."""
        return ExpiringStream(super().stream(path, query, read_timeout, timeout), path, self._reading)

    def open_streams(self) -> int:
        """How many watches are being read."""
        return len(self._reading)

    def expire(self) -> None:
        """End each watch by a 410, and each list that follows by another one, once."""
        for stream in list(self._reading):
            self._pages[stream.path] = 0
            stream.expired = True
            stream.close()


class ExpiringStream(Stream):
    """Delegates to a stream, and ends it by a 410 when told to."""

    def __init__(self, stream: Stream, path: str, reading: list[ExpiringStream]) -> None:
        self._stream = stream
        self.path = path
        self._reading = reading
        self.expired = False

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(None, None, None)

    def set_read_timeout(self, seconds: float) -> None:
        """As the stream's own."""
        self._stream.set_read_timeout(seconds)

    def lines(self) -> Iterator[bytes]:
        """The lines of the stream, then, if it has expired, the API server's word for it."""
        self._reading.append(self)
        try:
            yield from self._stream.lines()
        finally:
            self._reading.remove(self)
        if self.expired:
            yield json.dumps(GONE).encode()

    def close(self) -> None:
        """As the stream's own."""
        self._stream.close()
