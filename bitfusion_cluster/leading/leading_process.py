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
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.leading.election import Candidate
from bitfusion_cluster.leading.term import AnyTerm, Leadership, Terms
from bitfusion_cluster.monitoring.endpoints import MonitoringServer

STOP_S = 7.0
"""From the signal to the end at the latest, the Lease given back."""

log = logging.getLogger(__name__)


class LeadingProcess(Leadership[AnyTerm]):
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
        super().__init__(api, candidate, terms, clock)
        self._api = api
        self._registry = registry
        self._ending = threading.Event()

    async def run(
        self, bind: str, port: int, beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """Until SIGTERM or SIGINT; `beside` runs as long. Raises CannotStart when the port is taken."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        monitoring = MonitoringServer({"not about to end": lambda: not self._ending.is_set()}, self._registry)
        opened = await monitoring.open(bind, port, "--monitoring-port")
        self.start()
        where = {"server": self._api.server, "monitoring_port": opened}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        task = asyncio.ensure_future(beside()) if beside is not None else None
        await stop.wait()
        self._ending.set()
        if task is not None:
            task.cancel()
        await asyncio.to_thread(self.stop, STOP_S, 2.0)
        await monitoring.stop(0.5)
        self._api.close()
        log.info("ended")
