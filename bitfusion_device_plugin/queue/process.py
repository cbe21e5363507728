"""The process of `bitfusion-queue`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import time

from bitfusion_cluster.leading.election import LeaseTimes
from bitfusion_cluster.leading.leading_process import LeadingProcess
from bitfusion_cluster.monitoring.metrics import WatchMetrics
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


class QueueProcess(LeadingProcess[QueueTerm]):
    """The parts of one replica."""

    def __init__(self, settings: Settings) -> None:
        # Two leaders for a second would be harmless elsewhere. And a machine that was suspended must know
        # that time has passed.
        times, clock = LeaseTimes(patient=True), lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
        super().__init__(settings, "bitfusion_queue_info", times, clock)
        accounts = UnitAccounts()
        metrics = QueueMetrics(self.registry, accounts)
        self.leader = metrics.leader
        self._watch_metrics = WatchMetrics(self.registry)
        self._context = QueueContext(
            self.api,
            metrics,
            accounts,
            self.replica,
            settings.stuck_after,
            leading=lambda: self.leading,
            units_from_zero=settings.units,
        )

    def new_term(self) -> QueueTerm:
        """See `Leadership`."""
        return QueueTerm(self._context, self._watch_metrics, WatchLimits(page=PAGE))

    def term_ended(self) -> None:
        """See `Leadership`. Nothing of what was seen and held is shown any more."""
        self._context.metrics.clear()
        self._context.accounts.end()
