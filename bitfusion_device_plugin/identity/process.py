"""The process of `bitfusion-identity`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import logging

from bitfusion_cluster.leading.election import LeaseTimes
from bitfusion_cluster.leading.leading_process import LeadingProcess
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.watching.watched_resource import WatchLimits
from bitfusion_device_plugin.identity.keeper import KeeperContext
from bitfusion_device_plugin.identity.metrics import IdentityMetrics
from bitfusion_device_plugin.identity.settings import Settings
from bitfusion_device_plugin.identity.sources import FilesSource, IdentitySource, IssuerSource, NoIdentity
from bitfusion_device_plugin.identity.term import IdentityTerm

LOOK_AT_FILES_S = 2.0

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(IdentityProcess(settings).run())


class IdentityProcess(LeadingProcess[IdentityTerm]):
    """The parts of one replica."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, "bitfusion_identity_info", LeaseTimes())
        self._metrics = IdentityMetrics(self.registry)
        self.leader = self._metrics.leader
        self._watch_metrics = WatchMetrics(self.registry)
        self._source = _source(settings)
        self._seen = ""  # the fingerprint of the source's files
        self._source_told = False
        self._context = KeeperContext(
            self.api,
            settings.name,
            settings.namespace,
            self._source,
            settings.limits,
            self._metrics,
            self.replica,
            leading=lambda: self.leading,
            profiles=settings.profiles,
        )
        self._look_at_source()

    async def beside(self) -> None:
        """See `LeadingProcess`: look at the source's files."""
        while True:
            await asyncio.sleep(LOOK_AT_FILES_S)
            await asyncio.to_thread(self._look_at_source)

    def _look_at_source(self) -> None:
        """Notice that the files of the issuer, or those that are handed out, have changed."""
        try:
            found = self._source.fingerprint()
            self._metrics.source.set(1)
            self._source_told = False
        except NoIdentity as error:
            self._metrics.source.set(0)
            if not self._source_told:
                self._source_told = True
                log.warning("the pool's files cannot be read", extra={"reason": str(error)})
            return
        if found != self._seen:
            self._seen = found
            term = self.term
            if term is not None:
                term.look_at_everything()

    def new_term(self) -> IdentityTerm:
        """See `Leadership`."""
        return IdentityTerm(self._context, self._watch_metrics, WatchLimits())

    def term_ended(self) -> None:
        """See `Leadership`."""
        self._metrics.show({}, 0.0)


def _source(settings: Settings) -> IdentitySource:
    if settings.source_files:
        return FilesSource(settings.source_files)
    return IssuerSource(settings.issuer_files or "", (settings.command,))
