"""List, then watch, for ever: keeps a Cache equal to what the API server holds.

One thread each. What can go wrong and what then happens:

- 410, as a status or inside the stream, of a watch: everything is listed anew. Of a page of a list (its
  continue token expired): the list is read once more, in one piece.
- a 429 or 503 with Retry-After is waited for; every other failure is waited out for 1 to 30 s, longer each
  time, until a watch has lived for a while: a server that breaks every watch at once is not hammered.
- silence: a watch ends when nothing was read for longer than the server's own limit. Once a bookmark was
  seen (servers send one about every minute) much less silence is enough.
- garbage, half a line, an error in the stream: the watch is begun again where it was; after the third time
  in a row everything is listed anew.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from notebook_controller_patch.kubernetes_api import (
    ApiError,
    Gone,
    KubernetesApi,
    NoAnswer,
    Stream,
    Timeout,
    TooManyRequests,
    Unauthorized,
    error_of_status,
)
from notebook_controller_patch.metrics import WatchMetrics
from notebook_controller_patch.reconcile.backoff import Backoff
from notebook_controller_patch.reconcile.cache import Cache, Key, Record

R = TypeVar("R", bound=Record)
Trim = Callable[[Mapping[str, Any]], "R | None"]

log = logging.getLogger(__name__)

KINDS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
ANSWERED_FAILURES = 3  # in a row, by a server that answers; then the place in the stream is given up


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times (seconds) of a ListWatch; tests use shorter ones."""

    page: int = 500
    page_pause: float = 0.12
    """Between two pages of a list: two loops together stay below 20 requests a second."""
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    margin: float = 30.0
    """Silence that is allowed beyond the time the server was asked to end the watch at."""
    quiet: float = 150.0
    """Silence that is allowed where bookmarks are seen; they come about every 60 s."""
    steady: float = 10.0
    """A watch that lived this long worked: the next failure is waited out as the first."""
    first_delay: float = 1.0
    longest_delay: float = 30.0
    list_timeout: Timeout = (3.0, 30.0)
    watch_timeout: Timeout = (3.0, 15.0)
    """For the beginning of the watch's answer; also how long `stop` may have to wait."""


class _Ended(Exception):
    """A watch ended; `reason` is a label of the metric. `answered`: the server had something to say."""

    def __init__(self, reason: str, error: Exception | None = None, answered: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.answered = answered


class ListWatch(Generic[R]):
    """Fills `cache` with the objects at `path` (all namespaces), trimmed by `trim`; None drops an object.

    `resource` names it in metrics and logs. `start` returns at once; `cache.synced()` tells when the first
    list is there. `stop` ends a read that waits, from any thread.
    """

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        trim: Trim[R],
        cache: Cache[R],
        resource: str,
        metrics: WatchMetrics,
        limits: Limits | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._trim = trim
        self._cache = cache
        self._resource = resource
        self._limits = limits or Limits()
        self._metrics = metrics
        self._stopping = threading.Event()
        self._wake = threading.Event()  # ends the wait between two rounds
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._version = ""
        self._reason = ""  # why the last watch ended
        self._opened = float("inf")
        self._silence = 0.0
        self._bookmarks = False
        self._answered_failures = 0
        self._away = Backoff(self._limits.first_delay, self._limits.longest_delay)  # no answer
        self._backoff = Backoff(self._limits.first_delay, self._limits.longest_delay)  # a bad one
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """The API server answers again, others say: don't wait any longer if it was away."""
        if self._reason == "broken":
            self._wake.set()

    def stop(self) -> None:
        """End the loop; does not wait for its thread."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end; whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            delay = self._round()
            if delay > 0:
                self._wake.wait(delay)

    def _round(self) -> float:
        """List if that is needed, then one watch; the seconds to wait before the next round."""
        self._opened = float("inf")
        retry_after: float | None = None
        try:
            if not self._version:
                self._list()
            self._watch()
        except _Ended as ended:
            reason, error = ended.reason, ended.error
            self._answered_failures += ended.answered
        except Gone as gone:
            self._version, reason, error = "", "gone", gone
        except NoAnswer as silent:
            reason, error = "broken", silent
        except ApiError as refused:
            reason, error, retry_after = "refused", refused, refused.retry_after
            # these say nothing about our place in the stream
            self._answered_failures += not isinstance(refused, (TooManyRequests, Unauthorized))
        except Exception as bug:  # the loop must live; what the bug left undone, a new list does
            log.exception("watch failed", extra={"resource": self._resource})
            self._version, reason, error = "", "failed", bug
        self._wake.clear()
        if self._stopping.is_set():  # asked after the clearing, which may have swallowed stop's call
            return 0.0
        self._metrics.restarts.labels(self._resource, reason).inc()
        steady = time.monotonic() - self._opened >= self._limits.steady
        if steady:
            self._away.reset()
            self._backoff.reset()
            self._answered_failures = 0
        if self._answered_failures >= ANSWERED_FAILURES:
            self._version, self._answered_failures = "", 0
        self._reason = reason
        delay = 0.0
        if reason == "broken":
            delay = self._away.next()
        else:
            # It answers, if only that it has forgotten where we were, or not read its roles yet: how long
            # it was away says nothing about how long that takes.
            self._away.reset()
            if not (steady and reason in ("timeout", "gone")):
                delay = self._backoff.next(retry_after)
        level = logging.DEBUG if reason == "timeout" else logging.WARNING
        details = {"resource": self._resource, "reason": reason, "wait_s": round(delay, 1)}
        log.log(level, "watch ended", extra={**details, "error": str(error or "")})
        return delay

    def _list(self) -> None:
        try:
            records, version = self._pages(self._limits.page)
        except Gone:
            # what client-go's pager does: an unpaged list cannot expire half-way
            log.warning("list expired half-way", extra={"resource": self._resource})
            records, version = self._pages(0)
        if self._stopping.is_set():
            return
        self._cache.replace(records)
        self._version = version
        self._metrics.lists.labels(self._resource).inc()
        self._metrics.synced.labels(self._resource).set(1)
        self._metrics.objects.labels(self._resource).set(len(records))
        log.info("listed", extra={"resource": self._resource, "objects": len(records)})

    def _pages(self, size: int) -> tuple[dict[Key, R], str]:
        records: dict[Key, R] = {}
        query: dict[str, str | int | bool] = {"limit": size} if size else {}
        while True:
            self._metrics.queries.labels(self._resource, "list").inc()
            going_on, version = self._page(query, records)
            if not going_on or self._stopping.wait(self._limits.page_pause):
                return records, version
            query = {"limit": size, "continue": going_on}

    def _page(self, query: Mapping[str, str | int | bool], records: dict[Key, R]) -> tuple[str, str]:
        """Read one page into `records`: continue token, resourceVersion. Its objects are gone afterwards."""
        page = self._api.get(self._path, query, self._limits.list_timeout)
        self._contact()
        items, metadata = page.get("items"), page.get("metadata")
        if not isinstance(items, list) or not isinstance(metadata, dict):
            raise NoAnswer(answered="the answer is no list")
        for item in items:
            record = self._trim(item) if isinstance(item, dict) else None
            if record is not None:
                records[record.key] = record
        return str(metadata.get("continue") or ""), str(metadata.get("resourceVersion") or "")

    def _watch(self) -> None:
        """Read one watch to its end, which is always an exception."""
        limits = self._limits
        server_s = random.uniform(limits.shortest_watch, limits.longest_watch)
        query: dict[str, str | int | bool] = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": max(1, round(server_s)),
        }
        silence = server_s + limits.margin
        if self._bookmarks:
            silence = min(silence, limits.quiet)
        self._metrics.queries.labels(self._resource, "watch").inc()
        with self._api.stream(self._path, query, silence, limits.watch_timeout) as stream:
            with self._lock:
                self._stream = stream
                if self._stopping.is_set():
                    raise _Ended("closed")
            self._opened, self._silence = time.monotonic(), silence
            try:
                self._contact()
                for line in stream.lines():
                    self._read(line, stream)
            finally:
                with self._lock:
                    self._stream = None
        # 2 s: clocks of two machines
        early = time.monotonic() - self._opened < server_s - 2
        raise _Ended("closed" if early else "timeout")

    def _read(self, line: bytes, stream: Stream) -> None:
        self._contact()
        try:
            event = json.loads(line)
            kind, data = event["type"], event["object"]
            metadata = data.get("metadata") or {}
            version = metadata.get("resourceVersion")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _Ended("garbled", error, answered=True) from error
        # bounded: what else stands there is no label
        label = kind if kind in KINDS else "other"
        self._metrics.events.labels(self._resource, label).inc()
        if kind == "ERROR":
            code = data.get("code")
            error_of_stream = error_of_status(code if isinstance(code, int) else 500, data)
            if isinstance(error_of_stream, Gone) or error_of_stream.reason == "Expired":
                raise Gone(410, error_of_stream.reason, error_of_stream.message)
            raise error_of_stream
        if not isinstance(version, str) or not version:
            raise _Ended("garbled", answered=True)
        if kind == "BOOKMARK":
            if not self._bookmarks:
                self._bookmarks = True
                stream.set_read_timeout(min(self._limits.quiet, self._silence))
        else:
            self._take(kind, data, metadata)
        self._version = version
        self._answered_failures = 0

    def _take(self, kind: str, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        record = self._trim(data)
        if record is not None and kind != "DELETED":
            self._cache.put(record)
        else:
            namespace, name = metadata.get("namespace"), metadata.get("name")
            if isinstance(namespace, str) and isinstance(name, str):
                self._cache.remove((namespace, name))
        self._metrics.objects.labels(self._resource).set(len(self._cache))

    def _contact(self) -> None:
        self._metrics.last_contact.labels(self._resource).set(time.time())
