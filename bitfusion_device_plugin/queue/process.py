"""The process of `bitfusion-queue`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import time

from bitfusion_cluster.api.client import connect
from bitfusion_cluster.leading.election import Candidate, LeaseTimes, replica_identity
from bitfusion_cluster.leading.leading_process import LeadingProcess
from bitfusion_cluster.leading.term import Terms
from bitfusion_cluster.monitoring.metrics import WatchMetrics, new_registry
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.watching.watched_resource import WatchLimits
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.settings import Settings
from bitfusion_device_plugin.queue.term import PAGE, QueueTerm
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(QueueProcess(settings).run())


class QueueProcess:
    """The parts of one replica. `run` may be called once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        api, registry = connect(settings.kubeconfig), new_registry("bitfusion_queue_info")
        self._accounts = UnitAccounts()
        self._metrics = QueueMetrics(registry, self._accounts)
        self._watch_metrics = WatchMetrics(registry)
        # Two leaders for a second would be harmless elsewhere. And a machine that was suspended must know
        # that time has passed.
        replica = replica_identity()
        candidate = Candidate(settings.namespace, settings.name, replica, LeaseTimes(patient=True))
        terms = Terms(self._new_term, self._metrics.leader, self._show_nothing)
        self._process = LeadingProcess(
            api, registry, candidate, terms, clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
        )
        self._context = QueueContext(
            api,
            self._metrics,
            self._accounts,
            replica,
            settings.stuck_after,
            leading=lambda: self._process.leading,
        )

    async def run(self) -> None:
        """Until a signal. Raises CannotStart when the port is taken."""
        await self._process.run(self._settings.bind, self._settings.monitoring_port)

    def _new_term(self) -> QueueTerm:
        return QueueTerm(self._context, self._watch_metrics, WatchLimits(page=PAGE))

    def _show_nothing(self) -> None:
        self._metrics.clear()
        self._accounts.end()
