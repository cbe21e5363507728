"""The injector process: puts the webhook of pods, its files and its certificate together.

Every replica answers reviews. The one that holds the Lease writes ``caBundle``; where the certificate comes
from a folder nobody need lead. How it begins and ends is `bitfusion_cluster.webhooks.serving_process`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_cluster.api.client import connect
from bitfusion_cluster.certificates.webhook_certificate import WebhookCertificate
from bitfusion_cluster.leading.election import (
    Candidate,
    Election,
    LeaderCallbacks,
    LeaseTimes,
    replica_identity,
)
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics, new_registry
from bitfusion_cluster.notebooks.image_rules import ImageRulesFile
from bitfusion_cluster.notebooks.live_notebook import LiveNotebook
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.program.yaml_file import YamlFile
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_cluster.webhooks.serving_process import ServingProcess, Work
from bitfusion_device_plugin.injector.gates import Gates
from bitfusion_device_plugin.injector.injection.client_map import ClientRule, parse_clients
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.pods_webhook import PodsWebhook
from bitfusion_device_plugin.injector.settings import Settings

STOP_S = 7.0  # to give the Lease back
# client-go's: all that waits for a leader here is a caBundle that somebody has emptied
LEASE = LeaseTimes(duration=15.0, renew_within=10.0, retry=2.0)
LABELS = {
    "app.kubernetes.io/name": "bitfusion-injector",
    "app.kubernetes.io/part-of": "kubeflow-bitfusion",
    "app.kubernetes.io/managed-by": "bitfusion-injector",
}


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(Injector(settings).run())


class Injector:
    """The parts of one process. `run` may be called once; making it raises CannotStart and WrongSetting."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: YamlFile[Sequence[ClientRule]] = YamlFile(
            "--clients", settings.clients, "clients", parse_clients
        )
        self._images = ImageRulesFile(settings.images)
        for file in (self._clients, self._images):
            file.load()
        api = connect(settings.kubeconfig)
        self._process = ServingProcess(settings, api)
        self._registry = new_registry("bitfusion_injector_info")
        self._gates = Gates(api, settings.gates, self._registry)
        self._in_force = self._read()
        self._election = Election(
            api,
            Candidate(settings.namespace, settings.name, replica_identity(), LEASE),
            LeaderCallbacks(_nothing, _nothing),
        )
        self._certificate = WebhookCertificate(
            settings, api, lambda: self._election.leading, LABELS, self._registry
        )
        metrics = AdmissionMetrics(self._registry)
        self._notebooks = Owners(None, LiveNotebook(api), metrics)
        pods = PodsWebhook(lambda: self._in_force, self._notebooks)
        self._admission = ReviewServer(
            (pods.webhook,), metrics, self.conditions, self._certificate.serving.context
        )

    @property
    def conditions(self) -> dict[str, Callable[[], bool]]:
        """What must hold before this replica is sent reviews; the names are what /readyz says is missing."""
        return {**self._certificate.conditions, **self._process.condition}

    async def run(self) -> None:
        """Serve until a signal, then end in order. Raises CannotStart when a port is taken."""
        await self._process.run(
            Work(
                admission=self._admission,
                ready=self.conditions,
                registry=self._registry,
                start=self._start,
                refresh=(self._refresh, self._certificate.refresh),
                stop=self._stop,
            )
        )

    def _start(self) -> None:
        if self._certificate.built_in:
            self._election.start()
        self._certificate.start(self._process.ending)

    def _stop(self) -> None:
        if self._certificate.built_in:
            self._election.stop(STOP_S)
        self._notebooks.close()
        self._certificate.join(1.0)

    def _refresh(self) -> None:
        changed = [part.refresh() for part in (self._clients, self._images, self._gates)]
        if any(changed):
            self._in_force = self._read()

    def _read(self) -> InjectorSettings:
        rules: Sequence[ImageRule] = self._images.rules
        return InjectorSettings(
            clients=self._clients.value,
            images=rules,
            client_image=self._settings.client_image,
            gpu_memory_mib=self._settings.gpu_memory,
            volume_mib=self._settings.volume_limit,
            gates=self._gates.on,
        )


def _nothing() -> None:
    """Nobody need be told who leads."""
