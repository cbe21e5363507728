"""List and watch: keeps a cache equal to what the API server holds, through outages, 410 and garbage.

One thread each. What can go wrong and what then happens:

- 410, as a status or inside the stream, of a watch: everything is listed anew. Of a page of a list (its
  continue token expired): the list is begun again, with smaller pages.
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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bitfusion_client.kubernetes.raw_objects import metadata_of, text, whole_number
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    ApiError,
    Gone,
    NoAnswer,
    TooManyRequests,
    Unauthorized,
    error_of_status,
)
from bitfusion_cluster.api.stream import Stream
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.backoff import Backoff
from bitfusion_cluster.watching.cache import Cache, CacheAge, Record
from bitfusion_cluster.watching.paged_list import PagedList
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits

DELETED, BOOKMARK, ERROR = "DELETED", "BOOKMARK", "ERROR"
KINDS = ("ADDED", "MODIFIED", DELETED, BOOKMARK, ERROR)


class GarbledEvent(ValueError):
    """A line that is no event: not JSON, or without a type or an object."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; `data` is the object it is about, or the Status object of an error."""

    kind: str
    data: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The kind as a label of a metric: what else a server might send there is ``other``."""
        return self.kind if self.kind in KINDS else "other"

    @property
    def version(self) -> str:
        """The resourceVersion, from which a later watch goes on; empty if there is none."""
        return text(metadata_of(self.data).get("resourceVersion"))

    def error(self) -> ApiError:
        """What an event of the kind ERROR says; Gone when the place in the stream is lost."""
        error = error_of_status(whole_number(self.data.get("code"), 500), self.data)
        if error.reason == "Expired" and not isinstance(error, Gone):
            return Gone(410, error.reason, error.message)
        return error


def parse_event(line: bytes) -> WatchEvent:
    """The event in one line of the stream. Raises GarbledEvent."""
    try:
        event = json.loads(line)
        kind, data = event["type"], event["object"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise GarbledEvent(f"{type(error).__name__}: {error}") from error
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise GarbledEvent("an event has a type and an object")
    return WatchEvent(kind, data)


R = TypeVar("R", bound=Record)

log = logging.getLogger(__name__)

ANSWERED_FAILURES = 3  # in a row, by a server that answers; then the place in the stream is given up


class _Ended(Exception):
    """A watch ended; `reason` is a label of the metric. `answered`: the server sent something unusable."""

    def __init__(self, reason: str, error: Exception | None = None, answered: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.answered = answered


class ListWatch(Generic[R]):
    """Fills a cache with the objects of one resource, in a thread of its own.

    `cache.synced()` tells when the first list is there, `age`, shown as a metric from `start` to `stop`, how
    long ago the API server last said something that holds for the whole cache.
    """

    def __init__(
        self,
        api: KubernetesApi,
        resource: WatchedResource[R],
        cache: Cache[R],
        metrics: WatchMetrics,
        limits: WatchLimits,
        age: CacheAge | None = None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._name = resource.name
        self._cache = cache
        self._metrics = metrics
        self._limits = limits
        self._age = age or CacheAge()
        self._stopping = threading.Event()
        self._paged_list = PagedList(api, resource, metrics, limits, self._stopping)
        self._wake = threading.Event()  # ends the wait between two rounds
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._version = ""
        self._reason = ""  # why the last watch ended
        self._opened = float("inf")
        self._silence = 0.0
        self._bookmarks = False
        self._answered_failures = 0
        self._no_answer_backoff = Backoff(limits.first_delay, limits.longest_delay)
        self._bad_answer_backoff = Backoff(limits.first_delay, limits.longest_delay)
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once. May be called once."""
        self._metrics.show_age(self._name, self._age.seconds)
        self._thread.start()

    def retry_now(self) -> None:
        """Don't wait any longer for a server that was out of reach: another request has reached it."""
        if self._reason == "broken":
            self._wake.set()

    def stop(self) -> None:
        """End the loop and a read that waits, from any thread; does not wait for the loop's thread."""
        self._stopping.set()
        self._wake.set()
        self._metrics.hide_age(self._name, self._age.seconds)
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
            log.exception("watch failed", extra={"resource": self._name})
            self._version, reason, error = "", "failed", bug
        self._wake.clear()
        if self._stopping.is_set():  # asked after the clearing, which may have swallowed stop's call
            return 0.0
        self._metrics.restarts.labels(self._name, reason).inc()
        steady = time.monotonic() - self._opened >= self._limits.steady
        if steady:
            self._no_answer_backoff.reset()
            self._bad_answer_backoff.reset()
            self._answered_failures = 0
        if self._answered_failures >= ANSWERED_FAILURES:
            self._version, self._answered_failures = "", 0
        self._reason = reason
        delay = 0.0
        if reason == "broken":
            delay = self._no_answer_backoff.next()
        else:
            # It answers, if only that it has forgotten where we were, or not read its roles yet: how long
            # it was away says nothing about how long that takes.
            self._no_answer_backoff.reset()
            if not (steady and reason in ("timeout", "gone")):
                delay = self._bad_answer_backoff.next(retry_after)
        level = logging.DEBUG if reason == "timeout" else logging.WARNING
        details = {"resource": self._name, "reason": reason, "wait_s": round(delay, 1)}
        log.log(level, "watch ended", extra={**details, "error": str(error or "")})
        return delay

    def _list(self) -> None:
        listed = self._paged_list.read()
        if listed is None:
            return
        records, self._version = listed
        self._cache.replace(records)
        self._age.confirm()
        self._metrics.lists.labels(self._name).inc()
        self._metrics.synced.labels(self._name).set(1)
        self._metrics.objects.labels(self._name).set(len(records))
        log.info("listed", extra={"resource": self._name, "objects": len(records)})

    def _watch(self) -> None:
        """Read one watch to its end, which is always an exception."""
        limits = self._limits
        server_s = random.uniform(limits.shortest_watch, limits.longest_watch)
        query: dict[str, str | int | bool] = {
            **self._resource.query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": max(1, round(server_s)),
        }
        silence = server_s + limits.margin
        if self._bookmarks:
            silence = min(silence, limits.quiet)
        self._metrics.queries.labels(self._name, "watch").inc()
        with self._api.stream(self._resource.path, query, silence, limits.watch_timeout) as stream:
            with self._lock:
                self._stream = stream
                if self._stopping.is_set():
                    raise _Ended("closed")
            self._opened, self._silence = time.monotonic(), silence
            try:
                for line in stream.lines():
                    self._read(line, stream)
            finally:
                with self._lock:
                    self._stream = None
        # 2 s: clocks of two machines
        if time.monotonic() - self._opened < server_s - 2:
            raise _Ended("closed")
        self._age.confirm()  # all that time nothing more has happened than was told
        raise _Ended("timeout")

    def _read(self, line: bytes, stream: Stream) -> None:
        try:
            event = parse_event(line)
        except GarbledEvent as error:
            raise _Ended("garbled", error, answered=True) from error
        self._metrics.events.labels(self._name, event.label).inc()
        if event.kind == ERROR:
            raise event.error()
        if not event.version:
            raise _Ended("garbled", answered=True)
        if event.kind == BOOKMARK:
            if not self._bookmarks:
                self._bookmarks = True
                stream.set_read_timeout(min(self._limits.quiet, self._silence))
        else:
            self._take(event)
        self._age.confirm()
        self._version = event.version
        self._answered_failures = 0

    def _take(self, event: WatchEvent) -> None:
        record = self._resource.trim(event.data)
        if record is not None and event.kind != DELETED:
            self._cache.put(record)
        else:
            metadata = metadata_of(event.data)
            self._cache.remove((text(metadata.get("namespace")), text(metadata.get("name"))))
        self._metrics.objects.labels(self._name).set(len(self._cache))
