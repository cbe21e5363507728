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
from collections.abc import Callable
from importlib.metadata import version

from bitfusion_cluster.api.client import connect
from bitfusion_cluster.leading.election import Candidate, LeaseTimes, replica_identity
from bitfusion_cluster.leading.term import AnyTerm, Leadership
from bitfusion_cluster.monitoring.endpoints import MonitoringServer
from bitfusion_cluster.monitoring.metrics import new_registry
from bitfusion_cluster.program.common_settings import ClusterSettings

STOP_S = 7.0
"""From the signal to the end at the latest, the Lease given back."""

log = logging.getLogger(__name__)


class LeadingProcess(Leadership[AnyTerm]):
    """The base of one replica; making it raises CannotStart and WrongSetting. `run` may be called once.

    Args:
        settings: Of the process.
        info: The metric with its version.
        times: Of the Lease.
        clock: The election's, in seconds.

    Attributes:
        api: To the API server; closed at the end.
        registry: What /metrics shows.
        replica: The name under which it stands for election.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        info: str,
        times: LeaseTimes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = (settings.bind, settings.monitoring_port)
        self.api, self.registry = connect(settings.kubeconfig), new_registry(info)
        self.replica = replica_identity()
        super().__init__(self.api, Candidate(settings.namespace, settings.name, self.replica, times), clock)
        self._ending = threading.Event()

    async def beside(self) -> None:
        """Begun with the election; cancelled at the end."""

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Raises CannotStart when the port is taken."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        monitoring = MonitoringServer({"not shutting down": lambda: not self._ending.is_set()}, self.registry)
        opened = await monitoring.open(*self._where, "--monitoring-port")
        self.start()
        where = {"server": self.api.server, "monitoring_port": opened}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        beside = asyncio.ensure_future(self.beside())
        await stop.wait()
        self._ending.set()
        beside.cancel()
        await asyncio.to_thread(self.stop, STOP_S, 2.0)
        await monitoring.stop(0.5)
        self.api.close()
        log.info("ended")
