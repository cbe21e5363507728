"""One term of leadership: watches and threads that begin and end together; and who begins and ends terms.

A program that works while it leads has a `Term` of its own, and a `Leadership` that makes one each time this
replica is elected. Nothing is carried over from one term to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from prometheus_client import Gauge

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.leading.election import Candidate, Election, LeaderCallbacks
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Cache, Record
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits

R = TypeVar("R", bound=Record)


class NotLeading(Exception):
    """Another replica leads by now, or nobody."""


class Term:
    """Base of the term of a program, which adds its watches and begins its threads in `start`.

    Attributes:
        stopping: Set by `stop`.
    """

    def __init__(
        self,
        api: KubernetesApi,
        watch_metrics: WatchMetrics,
        watch_limits: WatchLimits,
        leads: Callable[[], bool],
    ) -> None:
        """`leads`: whether this replica holds the Lease."""
        self.stopping = threading.Event()
        self._watching = (api, watch_metrics, watch_limits)
        self._leads = leads
        self._watches: list[ListWatch[Any]] = []
        self._threads: list[threading.Thread] = []

    def leading(self) -> bool:
        """Whether this term may write now; asked before every write.

        Of the term, not of the replica: what hangs in a request while another one leads must send nothing
        when this replica leads again, in its next term. (Where `leads` turns False and True again without an
        end of the term, the Lease was renewed by its resourceVersion: nobody else has led.)
        """
        return not self.stopping.is_set() and self._leads()

    def watch(self, resource: WatchedResource[R], cache: Cache[R]) -> None:
        """Fill this cache from `start` to `stop`."""
        api, metrics, limits = self._watching
        self._watches.append(ListWatch(api, resource, cache, metrics, limits))

    def begin(self, name: str, target: Callable[[], None]) -> None:
        """Begin a thread of the term."""
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def start(self) -> None:
        """Begin; returns at once."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self.stopping.set()
        self.wake_to_end()
        for watch in self._watches:
            watch.stop()

    def wake_to_end(self) -> None:
        """`stop` was called: end what waits. For what does not look at `stopping` by itself."""

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads, after `stop`."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for watch in self._watches:
            watch.join(max(0.0, deadline - time.monotonic()))

    def retry_now(self) -> None:
        """The API server answers again."""
        for watch in self._watches:
            watch.retry_now()

    def wait_synced(self, *caches: Cache[Any]) -> bool:
        """Wait for the first list of each; False if the term ends before."""
        for cache in caches:
            while not cache.wait_synced(0.2):
                if self.stopping.is_set():
                    return False
        return True


AnyTerm = TypeVar("AnyTerm", bound=Term)


class Leadership(Generic[AnyTerm]):
    """The base of what stands for election, and has a term whenever this replica leads.

    The methods of a program's own class are called by the election's thread, and must not block.

    Attributes:
        leader: 1 while this replica leads; set by the program's own class.
        term: The one that runs.
    """

    leader: Gauge

    def __init__(
        self, api: KubernetesApi, candidate: Candidate, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` is the election's, in seconds."""
        self.term: AnyTerm | None = None
        callbacks = LeaderCallbacks(self._start_term, self._end_term, self.server_is_back)
        self._election = Election(api, candidate, callbacks, clock)

    def new_term(self) -> AnyTerm:
        """Make one: this replica begins to lead."""
        raise NotImplementedError

    def term_ended(self) -> None:
        """A term was told to stop."""

    def server_is_back(self) -> None:
        """The API server answers after it did not."""
        term = self.term
        if term is not None:
            term.retry_now()

    @property
    def leading(self) -> bool:
        """Whether this replica may write now."""
        return self._election.leading

    def start(self) -> None:
        """Begin to stand for election; returns at once."""
        self._election.start()

    def stop(self, seconds: float, to_give_back: float) -> None:
        """End the term, then give the Lease back, within about `seconds`; so many are kept for the latter."""
        deadline = time.monotonic() + seconds
        term = self.term
        if term is not None:
            term.stop()
            term.join(max(0.1, seconds - to_give_back))
        self._election.stop(max(0.1, deadline - time.monotonic()))

    def _start_term(self) -> None:
        self.leader.set(1)
        self.term = term = self.new_term()
        term.start()

    def _end_term(self) -> None:
        self.leader.set(0)
        term, self.term = self.term, None
        if term is not None:
            term.stop()
        self.term_ended()
