"""What every process that serves webhooks has in common: how it begins, how it ends, its files, its metrics.

Nothing waits at the start: the listeners are opened at once, readiness says what is still missing, and an
apiserver that does not answer yet is asked again. Admission and monitoring run in one asyncio loop; whatever
waits for the apiserver has a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.monitoring.endpoints import Conditions, MonitoringServer
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_cluster.webhooks.serving_settings import ServingSettings

LOOK_AT_FILES_S = 2.0  # certificates, rules and maps; the kubelet exchanges mounted ones about once a minute
GRACE_S = 5.0  # for the reviews under way when the listener closes
LONGEST_END_S = 19.0  # of all, from the signal on: the last resort

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What one process does between its start and its end.

    Attributes:
        admission: Answers reviews.
        ready: What must hold before this replica is sent reviews.
        start: Called when the listeners are open; starts threads and returns.
        refresh: Called every few seconds, in a thread: files that may have changed.
        stop: Called in a thread when the last review is answered: ends what `start` began.
    """

    admission: ReviewServer
    ready: Conditions
    registry: CollectorRegistry
    start: Callable[[], None]
    refresh: Sequence[Callable[[], object]]
    stop: Callable[[], None]


class ServingProcess:
    """The life of one process; `run` may be called once.

    Attributes:
        ending: Set at the first signal.
    """

    def __init__(self, settings: ServingSettings, api: KubernetesApi) -> None:
        self._settings = settings
        self._api = api
        self.ending = threading.Event()
        self._signalled = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def condition(self) -> dict[str, Callable[[], bool]]:
        """For readiness: not ending."""
        return {"not about to end": lambda: not self.ending.is_set()}

    async def run(self, work: Work) -> None:
        """Serve until a signal, then end in order. Raises CannotStart when a port is taken."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        monitoring = MonitoringServer(work.ready, work.registry)
        monitoring_port = await monitoring.open(settings.bind, settings.monitoring_port, "--monitoring-port")
        port = await work.admission.open(settings.bind, settings.port, "--port")
        work.start()
        files = asyncio.ensure_future(_look_at_files(work.refresh))
        where = {"server": self._api.server, "port": port, "monitoring_port": monitoring_port}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        await self._signalled.wait()
        began = time.monotonic()
        last_resort = threading.Timer(LONGEST_END_S, _give_up)
        last_resort.daemon = True
        last_resort.start()
        await self._end(work)
        files.cancel()
        await monitoring.stop(0.5)
        self._api.close()
        last_resort.cancel()
        log.info("ended", extra={"seconds": round(time.monotonic() - began, 1)})

    def _on_signal(self) -> None:
        (self._hurried if self._signalled.is_set() else self._signalled).set()

    async def _end(self, work: Work) -> None:
        self.ending.set()
        log.info("ending: not ready any more", extra={"drain_s": self._settings.drain})
        # The apiserver keeps its connections: it is asked to open the next one to another replica.
        work.admission.drain()
        try:
            # A second signal ends the wait.
            await asyncio.wait_for(self._hurried.wait(), self._settings.drain)
        except asyncio.TimeoutError:
            pass
        await work.admission.stop(GRACE_S)
        # Only now: until here reviews were answered with what it keeps.
        await asyncio.to_thread(work.stop)


async def _look_at_files(refresh: Sequence[Callable[[], object]]) -> None:
    """In a thread, as folders may be slow."""
    while True:
        await asyncio.sleep(LOOK_AT_FILES_S)
        for look in refresh:
            await asyncio.to_thread(look)


def _give_up() -> None:
    log.error("ended by force: something did not stop in time", extra={"seconds": LONGEST_END_S})
    os._exit(0)
