"""The life of a program that works while it leads: monitoring, the election, one term after another, the end.

`bitfusion-identity` and `bitfusion-queue` are made of it. Every replica answers /healthz; the one that holds
the Lease works, and gives the Lease back when it is told to end.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Gauge

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.leading.election import Candidate, Election, LeaderCallbacks
from bitfusion_cluster.monitoring.endpoints import MonitoringServer
from bitfusion_cluster.program.program import port_not_opened

STOP_S = 7.0
"""From the signal to the end at the latest, the Lease given back."""

log = logging.getLogger(__name__)


class Term(Protocol):
    """One term of leadership: threads of its own, made anew for each."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """Begin nothing more; does not wait."""

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for its threads, after `stop`."""

    def retry_now(self) -> None:
        """The API server answers again."""


AnyTerm = TypeVar("AnyTerm", bound=Term)


@dataclass(frozen=True)
class Terms(Generic[AnyTerm]):
    """What a program does of itself.

    Attributes:
        new: Makes a term, when this replica begins to lead.
        leader: 1 while it does.
        ended: Called when a term was told to stop, by the election's thread.
    """

    new: Callable[[], AnyTerm]
    leader: Gauge
    ended: Callable[[], None] = lambda: None


class LeadingProcess(Generic[AnyTerm]):
    """One replica. `run` may be called once.

    Args:
        api: To the API server; closed at the end.
        registry: What /metrics shows.
        candidate: Which Lease, and who asks for it.
        terms: See there.
        clock: The election's, in seconds.
    """

    def __init__(
        self,
        api: KubernetesApi,
        registry: CollectorRegistry,
        candidate: Candidate,
        terms: Terms[AnyTerm],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._registry = registry
        self._terms = terms
        self._lock = threading.Lock()
        self._term: AnyTerm | None = None
        self._ending = threading.Event()
        callbacks = LeaderCallbacks(self._start_term, self._end_term, self._retry_watches)
        self._election = Election(api, candidate, callbacks, clock)

    @property
    def leading(self) -> bool:
        """Whether this replica may write now."""
        return self._election.leading

    @property
    def term(self) -> AnyTerm | None:
        """The one that runs."""
        with self._lock:
            return self._term

    async def run(
        self, bind: str, port: int, beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """Until SIGTERM or SIGINT; `beside` runs as long. Raises CannotStart when the port is taken."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        monitoring = MonitoringServer({"not about to end": lambda: not self._ending.is_set()}, self._registry)
        opened = await _open(monitoring, bind, port)
        self._election.start()
        where = {"server": self._api.server, "monitoring_port": opened}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        task = asyncio.ensure_future(beside()) if beside is not None else None
        await stop.wait()
        self._ending.set()
        if task is not None:
            task.cancel()
        await asyncio.to_thread(self._stop)
        await monitoring.stop(0.5)
        self._api.close()
        log.info("ended")

    def _stop(self) -> None:
        deadline = time.monotonic() + STOP_S
        term = self.term
        if term is not None:
            term.stop()
            term.join(STOP_S - 2)
        self._election.stop(max(0.1, deadline - time.monotonic()))

    def _start_term(self) -> None:
        self._terms.leader.set(1)
        term = self._terms.new()
        with self._lock:
            self._term = term
        term.start()

    def _end_term(self) -> None:
        self._terms.leader.set(0)
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.stop()
        self._terms.ended()

    def _retry_watches(self) -> None:
        term = self.term
        if term is not None:
            term.retry_now()


async def _open(monitoring: MonitoringServer, bind: str, port: int) -> int:
    try:
        return await monitoring.start(bind, port)
    except OSError as error:
        raise port_not_opened(error, bind, port, "--monitoring-port") from None
