"""The process of `bitfusion-identity`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import logging

from bitfusion_cluster.api.client import connect
from bitfusion_cluster.leading.election import Candidate, replica_identity
from bitfusion_cluster.leading.leading_process import LeadingProcess
from bitfusion_cluster.leading.term import Terms
from bitfusion_cluster.monitoring.metrics import WatchMetrics, new_registry
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


class IdentityProcess:
    """The parts of one replica. `run` may be called once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        api, registry = connect(settings.kubeconfig), new_registry("bitfusion_identity_info")
        self._metrics = IdentityMetrics(registry)
        self._watch_metrics = WatchMetrics(registry)
        self._source = _source(settings)
        self._seen = ""  # the fingerprint of the source's files
        self._source_told = False
        replica = replica_identity()
        terms = Terms(self._new_term, self._metrics.leader, lambda: self._metrics.show({}, 0.0))
        self._process = LeadingProcess(
            api, registry, Candidate(settings.namespace, settings.name, replica), terms
        )
        self._context = KeeperContext(
            api,
            settings.name,
            settings.namespace,
            self._source,
            settings.limits,
            self._metrics,
            replica,
            leading=lambda: self._process.leading,
        )

    async def run(self) -> None:
        """Until a signal. Raises CannotStart when the port is taken."""
        self._look_at_source()
        settings = self._settings
        await self._process.run(settings.bind, settings.monitoring_port, self._look_at_files)

    async def _look_at_files(self) -> None:
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
            term = self._process.term
            if term is not None:
                term.look_at_everything()

    def _new_term(self) -> IdentityTerm:
        return IdentityTerm(self._context, self._watch_metrics, WatchLimits())


def _source(settings: Settings) -> IdentitySource:
    if settings.source_files:
        return FilesSource(settings.source_files)
    return IssuerSource(settings.issuer_files or "", (settings.command,))
