"""The process of `bitfusion-identity`: monitoring, the election, and a term whenever this replica leads."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from importlib.metadata import version

from bitfusion_client.structured_logs import configure_logging
from bitfusion_device_plugin.identity.keeper import KeeperContext
from bitfusion_device_plugin.identity.metrics import IdentityMetrics
from bitfusion_device_plugin.identity.settings import Settings
from bitfusion_device_plugin.identity.sources import FilesSource, IdentitySource, IssuerSource, NoIdentity
from bitfusion_device_plugin.identity.term import Term
from notebook_controller_patch.cannot_start import CannotStart
from notebook_controller_patch.metrics import WatchMetrics, new_registry
from notebook_controller_patch.monitoring import MonitoringServer
from notebook_controller_patch.reconcile.election import Candidate, Election, LeaderCallbacks
from notebook_controller_patch.reconcile.watched_resource import WatchLimits
from notebook_controller_patch.serving_process import connect, replica_identity

LOOK_AT_FILES_S = 2.0
STOP_S = 7.0

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    configure_logging(settings.log_format, settings.log_level)
    for name in settings.ignored:
        log.warning("this variable is no setting and is ignored", extra={"variable": name})
    asyncio.run(IdentityProcess(settings).run())


class IdentityProcess:
    """The parts of one replica. `run` may be called once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = connect(settings.kubeconfig)
        self._registry = new_registry("bitfusion_identity_info")
        self._metrics = IdentityMetrics(self._registry)
        self._watch_metrics = WatchMetrics(self._registry)
        self._source = _source(settings)
        self._seen = ""  # the fingerprint of the source's files
        self._source_told = False
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._ending = threading.Event()
        replica = replica_identity()
        self._context = KeeperContext(
            self._api,
            settings.name,
            settings.namespace,
            self._source,
            settings.limits,
            self._metrics,
            replica,
            leading=lambda: self._election.leading,
        )
        self._election = Election(
            self._api,
            Candidate(settings.namespace, settings.name, replica),
            LeaderCallbacks(self._start_term, self._end_term, self._retry_watch),
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
            raise CannotStart(
                f"Port {settings.monitoring_port} of {settings.bind} cannot be opened: {error.strerror}",
                "end what uses it, or choose another port by --monitoring-port.",
            ) from None
        self._look_at_source()
        self._election.start()
        where = {"server": self._api.server, "monitoring_port": port}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        files = asyncio.ensure_future(self._look_at_files())
        await stop.wait()
        self._ending.set()
        files.cancel()
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
            with self._lock:
                term = self._term
            if term is not None:
                term.look_at_everything()

    def _start_term(self) -> None:
        self._metrics.leader.set(1)
        term = Term(self._context, self._watch_metrics, WatchLimits())
        with self._lock:
            self._term = term
        term.start()

    def _end_term(self) -> None:
        self._metrics.leader.set(0)
        self._metrics.show({}, 0.0)
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.stop()

    def _retry_watch(self) -> None:
        with self._lock:
            term = self._term
        if term is not None:
            term.retry_now()


def _source(settings: Settings) -> IdentitySource:
    if settings.source_files:
        return FilesSource(settings.source_files)
    return IssuerSource(settings.issuer_files or "", (settings.command,))
