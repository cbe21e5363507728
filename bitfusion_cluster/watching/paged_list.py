"""Reads a whole list from the API server, page by page, as records, with a bound on each page's bytes.

A list that expires half-way is begun again with smaller pages, never read in one piece: 10,000 Notebooks at
once took 351 MiB. Pages that are too large for their bytes are asked for again with fewer objects: one tenant
can make a hundred Notebooks of 1.5 MiB.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

from bitfusion_client.kubernetes.raw_objects import text
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import AnswerTooLarge, Gone, NoAnswer
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Key, Record
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits

R = TypeVar("R", bound=Record)

TRIES = 3  # to read a list that expires half-way; then the caller waits before the next

log = logging.getLogger(__name__)


class PagedList(Generic[R]):
    """The list half of a ListWatch. `stopping` ends the pause between two pages."""

    def __init__(
        self,
        api: KubernetesApi,
        resource: WatchedResource[R],
        metrics: WatchMetrics,
        limits: WatchLimits,
        stopping: threading.Event,
    ) -> None:
        self._api = api
        self._resource = resource
        self._metrics = metrics
        self._limits = limits
        self._stopping = stopping

    def read(self) -> tuple[dict[Key, R], str] | None:
        """All records, and the resourceVersion to watch from; None when stopped. Raises ApiFailure."""
        size = self._limits.page
        for tries in range(1, TRIES + 1):
            try:
                listed = self._read_pages(size)
                break
            except Gone:
                details = {"resource": self._resource.name, "page": size, "tries": tries}
                log.warning("list expired half-way", extra=details)
                if tries == TRIES:
                    raise
                size = max(1, size // 2)
        return None if self._stopping.is_set() else listed

    def _read_pages(self, size: int) -> tuple[dict[Key, R], str]:
        records: dict[Key, R] = {}
        query: dict[str, str | int | bool] = {**self._resource.query, "limit": size}
        while True:
            try:
                token, version = self._read_page(query, records)
            except AnswerTooLarge as error:
                if size == 1:
                    raise
                log.warning("page too large", extra={"resource": self._resource.name, "error": str(error)})
                size = max(1, size // 8)
                query["limit"] = size
                continue
            if not token or self._stopping.wait(self._limits.page_pause):
                return records, version
            size = min(self._limits.page, size * 2)
            query = {**self._resource.query, "limit": size, "continue": token}

    def _read_page(self, query: Mapping[str, str | int | bool], records: dict[Key, R]) -> tuple[str, str]:
        """Read one page into `records`; its continue token and resourceVersion.

        The raw objects of a page are freed before the next one is read.
        """
        self._metrics.queries.labels(self._resource.name, "list").inc()
        page = self._api.get(
            self._resource.path, query, self._limits.list_timeout, largest=self._limits.page_bytes
        )
        items, metadata = page.get("items"), page.get("metadata")
        if not isinstance(items, list) or not isinstance(metadata, dict):
            raise NoAnswer(answered="the answer is not a list")
        for item in items:
            record = self._resource.trim(item) if isinstance(item, dict) else None
            if record is not None:
                records[record.key] = record
        return text(metadata.get("continue")), text(metadata.get("resourceVersion"))
