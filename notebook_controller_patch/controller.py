"""The controller process: puts admission, reconciler and certificates together.

Every replica answers admission and watches Notebooks, for the look-ups. The one that holds the Lease also
reconciles and, with the built-in authority, writes ``caBundle``. How it begins and ends is
`serving_process.py`'s.
"""

from __future__ import annotations

import asyncio

from bitfusion_cluster.leading.election import Candidate
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.notebooks.image_rules import ImageRulesFile
from bitfusion_cluster.notebooks.live_notebook import LiveNotebook
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.program.program import begin
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_cluster.webhooks.serving_process import ServingProcess
from notebook_controller_patch.admission.webhooks import notebook_webhooks
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
from notebook_controller_patch.reconcile.service import ReconcileService
from notebook_controller_patch.settings import DEFAULT_NAME, Settings

UNREACHED = (
    "Each Notebook and its StatefulSet wait 5 s for it and are created without Bitfusion's annotations, "
    "which the controller writes later."
)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and WrongSetting."""
    begin(settings)
    asyncio.run(Controller(settings).run())


class Controller(ServingProcess):
    """The parts of one process."""

    def __init__(self, settings: Settings) -> None:
        images = ImageRulesFile(settings.images, settings.clients)
        super().__init__(settings, DEFAULT_NAME, "bitfusion_controller_info", (images,), UNREACHED)
        self._reconcile = ReconcileService(
            ReconcileContext(
                api=self.api,
                candidate=Candidate(settings.namespace, settings.name, self.replica),
                rules=lambda: images.rules,
                metrics=ReconcileMetrics(self.registry),
                watch_metrics=WatchMetrics(self.registry),
                quota_keys=settings.quota_keys,
            )
        )
        notebooks = self._reconcile.notebooks
        self.leading = lambda: self._reconcile.leading
        self.own_conditions = {"the list of all Notebooks": notebooks.synced}
        self.owners = Owners(
            notebooks, LiveNotebook(self.api), self.metrics, unsure=self._reconcile.look_again
        )
        webhooks = notebook_webhooks(lambda: images.rules, self.owners, settings.username)
        self.admission = ReviewServer(
            (*webhooks, self.self_check.webhook),
            self.metrics,
            self.conditions,
            self.certificate.serving.context,
        )

    def begin_work(self) -> None:
        """See `ServingProcess`."""
        self._reconcile.start()

    def end_work(self, seconds: float) -> None:
        """See `ServingProcess`."""
        self._reconcile.stop(seconds)
