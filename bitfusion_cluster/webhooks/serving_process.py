"""What every process that serves webhooks has in common: how it begins, how it ends, its files, its metrics.

Nothing waits at the start: the listeners are opened at once, readiness says what is still missing, and an
apiserver that does not answer yet is asked again. Admission and monitoring run in one asyncio loop; whatever
waits for the apiserver has a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from bitfusion_cluster.api.client import connect
from bitfusion_cluster.leading.election import replica_identity
from bitfusion_cluster.monitoring.endpoints import MonitoringServer
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics, new_registry
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.program.yaml_file import YamlFile
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_cluster.webhooks.self_check import CheckedProgram, SelfCheck
from bitfusion_cluster.webhooks.serving_settings import ServingSettings
from bitfusion_cluster.webhooks.webhook_certificate import WebhookCertificate

LOOK_AT_FILES_S = 2.0  # certificates, rules and maps; the kubelet exchanges mounted ones about once a minute
GRACE_S = 5.0  # for the reviews under way when the listener closes
STOP_S = 7.0  # for the request to the apiserver under way, and to give the Lease back
LONGEST_END_S = 19.0  # of all, from the signal on: the last resort

log = logging.getLogger(__name__)


class ServingProcess:
    """The base of one process that answers reviews; making it raises CannotStart and WrongSetting.

    Args:
        settings: Of the process.
        program: Its name, in the labels of what it creates; its metric of the version is named after `info`.
        files: An administrator's, read now and again when they have changed.
        unreached: What happens while the API server does not reach its webhooks, in a sentence.

    Attributes:
        admission: Answers reviews; the process's own class sets it, and `owners`, which it looks up with.
        self_check: Its webhook is one of those that are answered.
        replica: Under which name it stands for election, and tells Events.
        own_conditions: What must hold beside the certificate before this replica is sent reviews.
        leading: Whether this replica may write what one replica alone should; set by the process's own class.
        ending: Set at the first signal.
    """

    admission: ReviewServer
    owners: Owners
    leading: Callable[[], bool]

    def __init__(
        self,
        settings: ServingSettings,
        program: str,
        info: str,
        files: Sequence[YamlFile[Any]],
        unreached: str,
    ) -> None:
        self._settings = settings
        self._files = files
        for file in files:
            file.load()
        self.api = connect(settings.kubeconfig)
        self.registry = new_registry(info)
        self.metrics = AdmissionMetrics(self.registry)
        labels = {
            "app.kubernetes.io/name": program,
            "app.kubernetes.io/part-of": "kubeflow-bitfusion",
            "app.kubernetes.io/managed-by": program,
        }
        self.certificate = WebhookCertificate(
            settings, self.api, lambda: self.leading(), labels, self.registry
        )
        self.own_conditions: dict[str, Callable[[], bool]] = {}
        self.ending = threading.Event()
        self.replica = replica_identity()
        self.self_check = SelfCheck(
            self.api,
            CheckedProgram(settings.name, settings.namespace, program, unreached, settings.self_check_every),
            lambda: all(holds() for holds in self.conditions.values()),
            lambda: self.leading(),
            self.metrics,
            self.replica,
        )
        self._signalled = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def conditions(self) -> dict[str, Callable[[], bool]]:
        """What must hold before this replica is sent reviews; the names are what /readyz says is missing."""
        own, not_ending = self.own_conditions, lambda: not self.ending.is_set()
        return {**self.certificate.conditions, **own, "not shutting down": not_ending}

    def begin_work(self) -> None:
        """The listeners are open: start threads and return."""
        raise NotImplementedError

    def end_work(self, seconds: float) -> None:
        """Called in a thread when the last review is answered: end what was begun, give the Lease back."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Called every few seconds, in a thread: look at files that may have changed."""
        for file in self._files:
            file.refresh()

    async def run(self) -> None:
        """Serve until a signal, then end in order; called once. Raises CannotStart when a port is taken."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        monitoring = MonitoringServer(self.conditions, self.registry)
        monitoring_port = await monitoring.open(settings.bind, settings.monitoring_port, "--monitoring-port")
        port = await self.admission.open(settings.bind, settings.port, "--port")
        self.begin_work()
        self.certificate.start(self.ending)
        self.self_check.start(self.ending, port)
        files = asyncio.ensure_future(self._look_at_files())
        where = {"server": self.api.server, "port": port, "monitoring_port": monitoring_port}
        log.info("serving", extra={"version": version("kubeflow-bitfusion"), **where})
        await self._signalled.wait()
        began = time.monotonic()
        last_resort = threading.Timer(LONGEST_END_S, _give_up)
        last_resort.daemon = True
        last_resort.start()
        await self._end()
        files.cancel()
        await monitoring.stop(0.5)
        self.api.close()
        last_resort.cancel()
        log.info("ended", extra={"seconds": round(time.monotonic() - began, 1)})

    def _on_signal(self) -> None:
        (self._hurried if self._signalled.is_set() else self._signalled).set()

    async def _end(self) -> None:
        self.ending.set()
        log.info("ending: not ready any more", extra={"drain_s": self._settings.drain})
        # The apiserver keeps its connections: it is asked to open the next one to another replica.
        self.admission.drain()
        try:
            # A second signal ends the wait.
            await asyncio.wait_for(self._hurried.wait(), self._settings.drain)
        except asyncio.TimeoutError:
            pass
        await self.admission.stop(GRACE_S)
        # Only now: until here reviews were answered with what it keeps.
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self.end_work(STOP_S)
        self.owners.close()
        self.certificate.join(1.0)
        self.self_check.join(1.0)

    async def _look_at_files(self) -> None:
        """In a thread, as folders may be slow."""
        while True:
            await asyncio.sleep(LOOK_AT_FILES_S)
            for look in (self.refresh, self.certificate.refresh):
                await asyncio.to_thread(look)


def _give_up() -> None:
    log.error("ended by force: something did not stop in time", extra={"seconds": LONGEST_END_S})
    os._exit(0)
