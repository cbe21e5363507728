"""The annotations of the Notebook that a StatefulSet belongs to: watch cache first, one live look-up else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Protocol

from bitfusion_client.notebook_request import is_left_alone
from notebook_controller_patch.metrics import HIT, MISS, UNKNOWN, AdmissionMetrics

LONGEST_LOOKUP = 0.5  # seconds; the apiserver waits 5 s for the whole review
LEFT_ALONE: Mapping[str, str] = MappingProxyType({})  # a Notebook that wants nothing of ours
THREADS = 8  # live look-ups at once: as many connections are kept

log = logging.getLogger(__name__)

Fetch = Callable[[str, str], Mapping[str, Any]]


class Record(Protocol):
    """What the cache knows of a Notebook."""

    @property
    def uid(self) -> str: ...

    @property
    def annotations(self) -> Mapping[str, str]: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


class NotebookCache(Protocol):
    """The Notebooks as the watch has seen them; asked from the server's thread."""

    def get(self, namespace: str, name: str) -> Record | None: ...


class Owners:
    """Looks Notebooks up for admission.

    `fetch` gets a Notebook from the apiserver, ``fetch(namespace, name)`` → raw dict, and raises whatever it
    likes; it is called in threads. Close it when the server has stopped.
    """

    def __init__(self, cache: NotebookCache, fetch: Fetch, metrics: AdmissionMetrics | None = None) -> None:
        self._cache = cache
        self._fetch = fetch
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="notebook-lookup")

    def cached(self, namespace: str, name: str, uid: str) -> Mapping[str, str] | None:
        """The annotations in the cache, None if this very Notebook is not there. Never waits.

        `LEFT_ALONE` itself if the Notebook's label says so, as all look-ups do.
        """
        record = self._cache.get(namespace, name)
        if record is None or record.uid != uid:
            return None
        self._count(HIT)
        return LEFT_ALONE if is_left_alone(record.labels) else record.annotations

    async def find(self, namespace: str, name: str, uid: str) -> Mapping[str, str] | None:
        """The annotations of the Notebook with this uid; None if they could not be learnt in 0.5 s."""
        annotations = self.cached(namespace, name, uid)
        return annotations if annotations is not None else await self.look_up(namespace, name, uid)

    async def look_up(self, namespace: str, name: str, uid: str) -> Mapping[str, str] | None:
        """`find` without the cache."""
        annotations: Mapping[str, str] | None = None
        self._count(MISS)
        began = time.perf_counter()
        try:
            call = asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, namespace, name)
            notebook = await asyncio.wait_for(call, LONGEST_LOOKUP)
            annotations = _annotations(notebook, uid)
            problem = "" if annotations is not None else "the Notebook of that name is another one"
        except asyncio.TimeoutError:
            problem = f"no answer within {LONGEST_LOOKUP:g} s"
        except Exception as error:  # whatever it is: admission goes on without the Notebook
            problem = f"{type(error).__name__}: {error}"
        if self._metrics is not None:
            self._metrics.lookup_seconds.observe(time.perf_counter() - began)
        if problem:
            self._count(UNKNOWN)
            fields = {"namespace": namespace, "notebook": name, "uid": uid, "reason": problem}
            log.warning("notebook could not be looked up", extra=fields)
        return annotations

    def close(self) -> None:
        """Give the threads back; look-ups under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.lookups.labels(result).inc()


def _annotations(notebook: object, uid: str) -> Mapping[str, str] | None:
    metadata = notebook.get("metadata") if isinstance(notebook, Mapping) else None
    if not isinstance(metadata, Mapping) or metadata.get("uid") != uid:
        return None
    if is_left_alone(metadata.get("labels")):
        return LEFT_ALONE
    annotations = metadata.get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}
