"""The process of `bitfusion-queue`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
import time
from importlib.metadata import version

from bitfusion_client.structured_logs import configure_logging
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.settings import Settings
from bitfusion_device_plugin.queue.term import PAGE, Term
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts
from notebook_controller_patch.cannot_start import CannotStart
from notebook_controller_patch.metrics import WatchMetrics, new_registry
from notebook_controller_patch.monitoring import MonitoringServer
from notebook_controller_patch.reconcile.election import Candidate, Election, LeaderCallbacks, LeaseTimes
from notebook_controller_patch.reconcile.watched_resource import WatchLimits
from notebook_controller_patch.serving_process import connect, replica_identity

STOP_S = 7.0

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    configure_logging(settings.log_format, settings.log_level)
    for name in settings.ignored:
        log.warning("this variable is no setting and is ignored", extra={"variable": name})
    asyncio.run(QueueProcess(settings).run())


class QueueProcess:
    """The parts of one replica. `run` may be called once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = connect(settings.kubeconfig)
        self._registry = new_registry("bitfusion_queue_info")
        accounts = UnitAccounts()
        self._metrics = QueueMetrics(self._registry, accounts)
        self._watch_metrics = WatchMetrics(self._registry)
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._ending = threading.Event()
        replica = replica_identity()
        self._context = QueueContext(
            self._api,
            self._metrics,
            accounts,
            replica,
            settings.stuck_after,
            leading=lambda: self._election.leading,
        )
        # Two leaders for a second would be harmless elsewhere. And a machine that was suspended must know
        # that time has passed.
        times = LeaseTimes(patient=True)
        self._election = Election(
            self._api,
            Candidate(settings.namespace, settings.name, replica, times),
            LeaderCallbacks(self._start_term, self._end_term, self._retry_watches),
            clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        )

    async def run(self) -> None:
        """Until a signal. Raises CannotStart when the port is taken."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        monitoring = MonitoringServer({"not about to end": lambda: not self._ending.is_set()}, self._registry)
        settings = self._settings
        try:
            port = await monitoring.start(settings.bind, settings.monitoring_port)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            what = "is in use" if in_use else f"cannot be opened: {error.strerror or error}"
            raise CannotStart(
                f"Port {settings.monitoring_port} of {settings.bind} {what}.",
                "end what uses it, or choose another port by --monitoring-port.",
            ) from None
        self._election.start()
        where = {"server": self._api.server, "monitoring_port": port}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        await stop.wait()
        self._ending.set()
        await asyncio.to_thread(self._stop)
        await monitoring.stop(0.5)
        self._api.close()
        log.info("ended")

    def _stop(self) -> None:
        deadline = time.monotonic() + STOP_S
        with self._lock:
            term = self._term
        if term is not None:
            term.stop()
            term.join(STOP_S - 2)
        self._election.stop(max(0.1, deadline - time.monotonic()))

    def _start_term(self) -> None:
        self._metrics.leader.set(1)
        term = Term(self._context, self._watch_metrics, WatchLimits(page=PAGE))
        with self._lock:
            self._term = term
        term.start()

    def _end_term(self) -> None:
        self._metrics.leader.set(0)
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.stop()
        self._metrics.clear()
        self._context.accounts.end()

    def _retry_watches(self) -> None:
        with self._lock:
            term = self._term
        if term is not None:
            term.retry_now()
