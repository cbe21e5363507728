"""The injector process: puts the webhook of pods, its files and its certificate together.

Every replica answers reviews. The one that holds the Lease writes ``caBundle``; where the certificate comes
from a folder nobody need lead. How it begins and ends is `bitfusion_cluster.webhooks.serving_process`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from bitfusion_client.gpu_pods.settings import PodSettings, parse_settings
from bitfusion_cluster.leading.election import (
    Candidate,
    Election,
    LeaderCallbacks,
    LeaseTimes,
)
from bitfusion_cluster.notebooks.image_rules import ImageRulesFile
from bitfusion_cluster.notebooks.live_notebook import LiveNotebook
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.program.yaml_file import YamlFile
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_cluster.webhooks.serving_process import ServingProcess
from bitfusion_device_plugin.injector.gates import Gates
from bitfusion_device_plugin.injector.injection.client_map import ClientRule, parse_clients
from bitfusion_device_plugin.injector.injection.form_sizes import parse_form_sizes
from bitfusion_device_plugin.injector.injection.gpu_nodes import GpuNodes
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.pods_webhook import PodsWebhook
from bitfusion_device_plugin.injector.settings import DEFAULT_NAME, Settings

UNREACHED = "No pod that asks for GPUs can be created: the API server refuses it after 5 s."
# client-go's: all that waits for a leader here is a caBundle that somebody has emptied
LEASE = LeaseTimes(duration=15.0, renew_within=10.0, retry=2.0)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(Injector(settings).run())


class Injector(ServingProcess):
    """The parts of one process."""

    def __init__(self, settings: Settings) -> None:
        self._clients: YamlFile[Sequence[ClientRule]] = YamlFile(
            "--clients", settings.clients, "clients", partial(parse_clients, image=settings.client_image)
        )
        self._images = ImageRulesFile(settings.images)
        self._pods: YamlFile[PodSettings] = YamlFile("--pods", settings.pods, "pod settings", parse_settings)
        self._sizes: YamlFile[str] = YamlFile("--sizes", settings.sizes, "sizes", parse_form_sizes)
        files = (self._clients, self._images, self._pods, self._sizes)
        super().__init__(settings, DEFAULT_NAME, "bitfusion_injector_info", files, UNREACHED)
        self._own = settings
        self._gates = Gates(self.api, settings.gates, self.registry)
        self._in_force = self._read()
        candidate = Candidate(settings.namespace, settings.name, self.replica, LEASE)
        self._election = Election(self.api, candidate, LeaderCallbacks(_nothing, _nothing))
        # where nobody need lead, each replica tells what all see
        self.leading = lambda: self._election.leading or not self.certificate.built_in
        self.owners = Owners(None, LiveNotebook(self.api), self.metrics)
        pods = PodsWebhook(lambda: self._in_force, self.owners)
        self.admission = ReviewServer(
            (pods.webhook, self.self_check.webhook),
            self.metrics,
            self.conditions,
            self.certificate.serving.context,
        )

    def begin_work(self) -> None:
        """See `ServingProcess`. With a certificate from a folder nobody need lead."""
        if self.certificate.built_in:
            self._election.start()

    def end_work(self, seconds: float) -> None:
        """See `ServingProcess`."""
        if self.certificate.built_in:
            self._election.stop(seconds)

    def refresh(self) -> None:
        """See `ServingProcess`."""
        parts = (self._clients, self._images, self._pods, self._sizes, self._gates)
        changed = [part.refresh() for part in parts]
        if any(changed):
            self._in_force = self._read()

    def _read(self) -> InjectorSettings:
        return InjectorSettings(
            clients=self._clients.value,
            images=self._images.rules,
            client_image=self._own.client_image,
            gpu_memory_mib=self._own.gpu_memory,
            volume_mib=self._own.volume_limit,
            gates=self._gates.on,
            hides_node_gpus=self._own.node_gpus,
            pods=self._pods.value,
            sizes=self._sizes.value,
            near_gpus=GpuNodes(*self._own.gpu_nodes, self._own.gpu_taint),
        )


def _nothing() -> None:
    """Nobody need be told who leads."""
