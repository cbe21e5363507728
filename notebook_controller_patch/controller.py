"""The controller process: puts admission, reconciler and certificates together, starts and stops them.

Every replica answers admission and watches Notebooks, for the look-ups. The one that holds the Lease also
reconciles and, with the built-in authority, writes ``caBundle``. Admission and monitoring run in one asyncio
loop; whatever waits for the apiserver has a thread of its own.

Nothing waits at the start: the listeners are opened at once, readiness (`Controller.conditions`) says what is
still missing, and an apiserver that does not answer yet is asked again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from bitfusion_client.errors import BitfusionError, WrongSetting
from bitfusion_client.structured_logs import configure_logging
from notebook_controller_patch.admission.owners import Owners
from notebook_controller_patch.admission.server import AdmissionContext, AdmissionServer
from notebook_controller_patch.certificates.authority import UnusableCertificate, service_names
from notebook_controller_patch.certificates.built_in_authority import AuthoritySettings, BuiltInAuthority
from notebook_controller_patch.certificates.serving import (
    CertificateFolder,
    ClientAuthorityFile,
    ServingCertificate,
)
from notebook_controller_patch.image_rules import ImageRulesFile
from notebook_controller_patch.kubernetes_api.client import KubernetesApi
from notebook_controller_patch.metrics import AdmissionMetrics, ReconcileMetrics, WatchMetrics
from notebook_controller_patch.monitoring import MonitoringServer
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.election import Candidate
from notebook_controller_patch.reconcile.live_notebook import LiveNotebook
from notebook_controller_patch.reconcile.service import ReconcileService
from notebook_controller_patch.settings import Settings

LOOK_AT_FILES_S = 2.0  # certificates and image rules; the kubelet exchanges mounted ones about once a minute
GRACE_S = 5.0  # for the reviews under way when the listener closes
STOP_S = 7.0  # for the request to the apiserver under way, and to give the Lease back
LONGEST_END_S = 19.0  # of all, from the signal on: the last resort
LABELS = {
    "app.kubernetes.io/name": "bitfusion-notebook-controller",
    "app.kubernetes.io/part-of": "kubeflow-bitfusion",
    "app.kubernetes.io/managed-by": "bitfusion-notebook-controller",
}

log = logging.getLogger(__name__)


class CannotStart(BitfusionError):
    """Something this process needs is not there; `headline` says what, `next_step` what to do."""

    def __init__(self, headline: str, next_step: str) -> None:
        super().__init__(next_step=next_step)
        self.args = (headline, next_step)
        self.headline = headline


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    configure_logging(settings.log_format, settings.log_level)
    for name in settings.ignored:
        log.warning("this variable is no setting and is ignored", extra={"variable": name})
    asyncio.run(Controller(settings).run())


class Controller:
    """The parts of one process. `run` may be called once; making it raises CannotStart and WrongSetting."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._signals = 0
        self._signalled = asyncio.Event()
        self._hurried = asyncio.Event()
        self._images = ImageRulesFile(settings.images, settings.clients)
        self._images.load()
        self._api = _connect(settings)
        self._registry = _registry()
        self._reconcile = ReconcileService(
            ReconcileContext(
                api=self._api,
                candidate=Candidate(settings.namespace, settings.name, _identity()),
                rules=lambda: self._images.rules,
                metrics=ReconcileMetrics(self._registry),
                watch_metrics=WatchMetrics(self._registry),
            )
        )
        self._serving = ServingCertificate()
        self._clients = _client_authority(settings.client_authority, self._serving)
        self._folder: CertificateFolder | None = None
        self._authority: BuiltInAuthority | None = None
        if settings.certificate_folder is not None:
            service = service_names(settings.name, settings.namespace)[0]
            self._folder = _certificate_folder(settings.certificate_folder, self._serving, service)
        else:
            names = (*service_names(settings.name, settings.namespace), *settings.certificate_names)
            secret = settings.certificate_secret or f"{settings.name}-ca"
            self._authority = BuiltInAuthority(
                self._api,
                self._serving,
                AuthoritySettings(
                    settings.name,
                    settings.namespace,
                    secret,
                    settings.webhook_configuration,
                    names,
                    labels=LABELS,
                ),
                is_leader=lambda: self._reconcile.leading,
            )
        self._certificate_metric()
        admission_metrics = AdmissionMetrics(self._registry)
        self._owners = Owners(
            self._reconcile.notebooks,
            LiveNotebook(self._api),
            admission_metrics,
            unsure=self._reconcile.look_again,
        )
        self._admission = AdmissionServer(
            AdmissionContext(
                rules=lambda: self._images.rules,
                owners=self._owners,
                metrics=admission_metrics,
                own_username=settings.username,
                ready=self.conditions,
            ),
            self._serving.context,
        )
        self._monitoring = MonitoringServer(self.conditions, self._registry)

    @property
    def conditions(self) -> dict[str, Callable[[], bool]]:
        """What must hold before this replica is sent reviews; the names are what /readyz says is missing."""
        conditions: dict[str, Callable[[], bool]] = {
            "a serving certificate": lambda: self._serving.loaded,
            "the list of all Notebooks": self._reconcile.notebooks.synced,
            "not about to end": lambda: not self._ending.is_set(),
        }
        authority = self._authority
        if authority is not None:
            name = f"the CA in caBundle of {self._settings.webhook_configuration}"
            conditions[name] = lambda: authority.published
        return conditions

    async def run(self) -> None:
        """Serve until a signal, then end in order. Raises CannotStart when a port is taken."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        monitoring_port = await _listen(
            self._monitoring.start, settings.bind, settings.monitoring_port, "--monitoring-port"
        )
        port = await _listen(self._admission.start, settings.bind, settings.port, "--port")
        threads = self._start_threads()
        files = asyncio.ensure_future(self._look_at_files())
        where = {"server": self._api.server, "port": port, "monitoring_port": monitoring_port}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        await self._signalled.wait()
        await self._end(files, threads)

    def _on_signal(self) -> None:
        self._signals += 1
        (self._hurried if self._signalled.is_set() else self._signalled).set()

    def _start_threads(self) -> list[threading.Thread]:
        self._reconcile.start()
        if self._authority is None:
            return []
        thread = threading.Thread(
            target=self._authority.run, args=(self._ending,), name="authority", daemon=True
        )
        thread.start()
        return [thread]

    async def _look_at_files(self) -> None:
        """Read certificates and image rules again when they change; in a thread, the folders may be slow."""
        while True:
            await asyncio.sleep(LOOK_AT_FILES_S)
            await asyncio.to_thread(self._images.refresh)
            if self._folder is not None:
                await asyncio.to_thread(self._folder.refresh)
            if self._clients is not None:
                await asyncio.to_thread(self._clients.refresh)

    async def _end(self, files: asyncio.Future[None], threads: list[threading.Thread]) -> None:
        began = time.monotonic()
        last_resort = threading.Timer(LONGEST_END_S, _give_up)
        last_resort.daemon = True
        last_resort.start()
        self._ending.set()
        log.info("ending: not ready any more", extra={"drain_s": self._settings.drain})
        # The apiserver keeps its connections: it is asked to open the next one to another replica.
        self._admission.drain()
        try:
            # A second signal ends the wait.
            await asyncio.wait_for(self._hurried.wait(), self._settings.drain)
        except asyncio.TimeoutError:
            pass
        await self._admission.stop(GRACE_S)
        # Only now: until here reviews were answered from the Notebooks it watches.
        await asyncio.to_thread(self._reconcile.stop, STOP_S)
        self._owners.close()
        files.cancel()
        await self._monitoring.stop(0.5)
        for thread in threads:
            await asyncio.to_thread(thread.join, 1.0)
        self._api.close()
        last_resort.cancel()
        log.info("ended", extra={"seconds": round(time.monotonic() - began, 1)})

    def _certificate_metric(self) -> None:
        gauge = Gauge(
            "bitfusion_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, as Unix time; 0 before there is one.",
            registry=self._registry,
        )
        serving = self._serving
        gauge.set_function(lambda: serving.expires.timestamp() if serving.expires else 0.0)


def _identity() -> str:
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def _connect(settings: Settings) -> KubernetesApi:
    try:
        return KubernetesApi.load(settings.kubeconfig)
    except WrongSetting as error:
        if settings.kubeconfig is not None:
            raise
        raise CannotStart(
            f"No way into a cluster was found: {error.allowed}",
            "run it in a pod, or name a file with credentials by --kubeconfig.",
        ) from None


def _certificate_folder(name: str, serving: ServingCertificate, service: str) -> CertificateFolder:
    folder = CertificateFolder(name, serving, service)
    try:
        folder.load()
    except UnusableCertificate as error:
        raise CannotStart(
            f"No usable certificate in --certificate-folder: {error}",
            "it must hold tls.crt and tls.key, unencrypted; with cert-manager look at the Certificate's "
            "conditions, without it leave the option out.",
        ) from None
    return folder


def _client_authority(name: str | None, serving: ServingCertificate) -> ClientAuthorityFile | None:
    if name is None:
        return None
    file = ClientAuthorityFile(name, serving)
    try:
        file.load()
    except UnusableCertificate as error:
        raise CannotStart(
            f"No usable certificate authority in --client-authority: {error}",
            "it must be the PEM file of who signs the apiserver's client certificate; without the option "
            "nobody is asked for one.",
        ) from None
    return file


async def _listen(start: Callable[[str, int], Awaitable[int]], address: str, port: int, option: str) -> int:
    try:
        return await start(address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"Port {port} of {address} is in use"
        else:
            what = f"Port {port} of {address} cannot be opened: {error.strerror or error}"
        raise CannotStart(what, f"end what uses it, or choose another port by {option}.") from None


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    info = Gauge("bitfusion_controller_info", "Always 1.", ("version",), registry=registry)
    info.labels(version("kubeflow-bitfusion")).set(1)
    return registry


def _give_up() -> None:
    log.error("ended by force: something did not stop in time", extra={"seconds": LONGEST_END_S})
    os._exit(0)
