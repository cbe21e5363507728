"""The controller process: puts admission, reconciler and certificates together.

Every replica answers admission and watches Notebooks, for the look-ups. The one that holds the Lease also
reconciles and, with the built-in authority, writes ``caBundle``. How it begins and ends is
`serving_process.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bitfusion_cluster.api.client import connect
from bitfusion_cluster.certificates.webhook_certificate import WebhookCertificate
from bitfusion_cluster.leading.election import Candidate, replica_identity
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics, WatchMetrics, new_registry
from bitfusion_cluster.notebooks.image_rules import ImageRulesFile
from bitfusion_cluster.notebooks.live_notebook import LiveNotebook
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.webhooks.serving_process import ServingProcess, Work
from notebook_controller_patch.admission.webhooks import AdmissionContext, admission_server
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
from notebook_controller_patch.reconcile.service import ReconcileService
from notebook_controller_patch.settings import Settings

STOP_S = 7.0  # for the request to the apiserver under way, and to give the Lease back
LABELS = {
    "app.kubernetes.io/name": "bitfusion-notebook-controller",
    "app.kubernetes.io/part-of": "kubeflow-bitfusion",
    "app.kubernetes.io/managed-by": "bitfusion-notebook-controller",
}


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(Controller(settings).run())


class Controller:
    """The parts of one process. `run` may be called once; making it raises CannotStart and WrongSetting."""

    def __init__(self, settings: Settings) -> None:
        self._images = ImageRulesFile(settings.images, settings.clients)
        self._images.load()
        api = connect(settings.kubeconfig)
        self._process = ServingProcess(settings, api)
        self._registry = new_registry("bitfusion_controller_info")
        self._reconcile = ReconcileService(
            ReconcileContext(
                api=api,
                candidate=Candidate(settings.namespace, settings.name, replica_identity()),
                rules=lambda: self._images.rules,
                metrics=ReconcileMetrics(self._registry),
                watch_metrics=WatchMetrics(self._registry),
            )
        )
        self._certificate = WebhookCertificate(
            settings, api, lambda: self._reconcile.leading, LABELS, self._registry
        )
        metrics = AdmissionMetrics(self._registry)
        self._owners = Owners(
            self._reconcile.notebooks, LiveNotebook(api), metrics, unsure=self._reconcile.look_again
        )
        self._admission = admission_server(
            AdmissionContext(
                rules=lambda: self._images.rules,
                owners=self._owners,
                metrics=metrics,
                own_username=settings.username,
                ready=self.conditions,
            ),
            self._certificate.serving.context,
        )

    @property
    def conditions(self) -> dict[str, Callable[[], bool]]:
        """What must hold before this replica is sent reviews; the names are what /readyz says is missing."""
        return {
            **self._certificate.conditions,
            "the list of all Notebooks": self._reconcile.notebooks.synced,
            **self._process.condition,
        }

    async def run(self) -> None:
        """Serve until a signal, then end in order. Raises CannotStart when a port is taken."""
        await self._process.run(
            Work(
                admission=self._admission,
                ready=self.conditions,
                registry=self._registry,
                start=self._start,
                refresh=(self._images.refresh, self._certificate.refresh),
                stop=self._stop,
            )
        )

    def _start(self) -> None:
        self._reconcile.start()
        self._certificate.start(self._process.ending)

    def _stop(self) -> None:
        self._reconcile.stop(STOP_S)
        self._owners.close()
        self._certificate.join(1.0)
