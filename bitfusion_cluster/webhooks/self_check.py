"""Whether the API server reaches this program's webhooks: it is made to ask one of them, once a minute.

A port that is closed between the API server and the pods of a webhook shows nowhere else. Every replica is
ready, the API server waits 5 s for each call, goes on without it or refuses the object, and tells nobody but
whoever sent that.

So each replica creates a Lease as a dry run, with a label by which the webhook `WEBHOOK` of its own
configuration is asked about it and nobody else. That webhook fails closed: where it cannot be asked the API
server says why, and where it is, whoever answered leaves an annotation. The call takes the way of every
other: the same Service, port and trust. What is found is a metric, a line of the log and an Event, and makes
no replica unready: see decision 0129.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.raw_objects import annotations_of, metadata_of
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiError, ApiFailure, Conflict
from bitfusion_cluster.api.events import NORMAL, WARNING, Said, about, event_object
from bitfusion_cluster.api.json_patch import map_patch
from bitfusion_cluster.api.paths import events_path, leases_path
from bitfusion_cluster.monitoring.metrics import (
    NOT_ASKED,
    NOT_KNOWN,
    REACHED,
    UNREACHED,
    AdmissionMetrics,
)
from bitfusion_cluster.webhooks.review import Review, Verdict
from bitfusion_cluster.webhooks.review_server import Webhook

SELF_CHECK = "self-check"  # its path is /admit/self-check
WEBHOOK = "self-check.bitfusion.io"
LABEL = "bitfusion.io/self-check"  # its value is the program's name
ANNOTATION = "bitfusion.io/answered-by"
UNREACHABLE, REACHABLE = "BitfusionWebhooksUnreachable", "BitfusionWebhooksReached"

FIRST_S = 5.0  # after the start, and while this replica is not ready: its Service has to know it
RETRY_S = 10.0  # after a call that did not arrive
BELIEVED = 3  # so many in a row: a replica that leaves, or a busy API server, is no closed port

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """Whose webhooks they are.

    Attributes:
        name: Of its Service, in its own `namespace`.
        component: Who tells the Event.
        consequence: What happens while they are not reached, in a sentence.
        every: Seconds between two checks; 0: never.
    """

    name: str
    namespace: str
    component: str
    consequence: str
    every: float


class SelfCheck:
    """One replica's checks, in a thread of its own.

    Args:
        api: Asks the API server.
        program: Whose webhooks they are.
        ready: Whether this replica is sent reviews at all.
        tells: Whether this replica tells Events, as one of several should.
        metrics: Counts the checks.
        replica: Under which name it answers, and tells.
    """

    def __init__(
        self,
        api: KubernetesApi,
        program: CheckedProgram,
        ready: Callable[[], bool],
        tells: Callable[[], bool],
        metrics: AdmissionMetrics,
        replica: str,
    ) -> None:
        self._api = api
        self._program = program
        self._ready = ready
        self._tells = tells
        self._metrics = metrics
        self._replica = replica
        self._failures = 0
        self._since = ""  # of what is believed to be an outage
        self._told = False
        self._thread: threading.Thread | None = None
        metrics.reachable.set(-1)

    @property
    def webhook(self) -> Webhook:
        """What answers the check, of whichever replica."""

        def decide(review: Review) -> Verdict:
            metadata = metadata_of(review.object or {})
            current = metadata.get("annotations")
            patch = map_patch("/metadata/annotations", current, {ANNOTATION: self._replica})
            return Verdict(patch=patch)

        return Webhook(SELF_CHECK, decide, lambda review: Verdict(), patched_level=logging.DEBUG)

    def start(self, stop: threading.Event, port: int) -> None:
        """Check until `stop`; returns at once. `port`: of this replica's webhooks, for the words."""
        if self._program.every:
            self._thread = threading.Thread(
                target=self._run, args=(stop, port), name="self-check", daemon=True
            )
            self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the check under way, after `stop`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, stop: threading.Event, port: int) -> None:
        pause = min(FIRST_S, self._program.every)
        while not stop.wait(pause * random.uniform(0.8, 1.2)):
            try:
                pause = self.step(port) if self._ready() else min(FIRST_S, self._program.every)
            except Exception:  # nobody else would look
                log.exception("the webhooks could not be checked")
                pause = self._program.every

    def step(self, port: int) -> float:
        """One check, and what it leads to; returns the seconds to the next."""
        result, words = self._ask()
        self._metrics.self_checks.labels(result).inc()
        if result == REACHED:
            self._reached()
        elif result == UNREACHED:
            self._unreached(words, port)
            return min(RETRY_S, self._program.every)
        else:
            log.debug("the self-check says nothing", extra={"result": result, "reason": words})
        return self._program.every

    def _ask(self) -> tuple[str, str]:
        name = self._program.name
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"{name}-self-check", "labels": {LABEL: name}},
            "spec": {},
        }
        try:
            answer = self._api.create(leases_path(self._program.namespace), lease, dry_run=True)
        except ApiFailure as error:
            return judged_failure(error)
        return judged_answer(answer), ""

    def _reached(self) -> None:
        self._metrics.reachable.set(1)
        self._failures = 0
        since, self._since = self._since, ""
        if not since:
            return
        log.info("the API server reaches the webhooks again", extra={"since": since})
        if self._told:
            text = f"The API server reaches the webhooks of {self._program.name} again."
            self._tell(Said(NORMAL, REACHABLE, text, since))
        self._told = False

    def _unreached(self, words: str, port: int) -> None:
        self._failures += 1
        if self._failures < BELIEVED:
            return
        self._metrics.reachable.set(0)
        if not self._since:
            self._since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            log.warning("the API server does not reach the webhooks", extra={"reason": words, "port": port})
        if self._tells():
            # Each time: the API server forgets Events after an hour, and the same one is not made twice.
            self._tell(Said(WARNING, UNREACHABLE, unreached_words(self._program, words, port), self._since))
            self._told = True

    def _tell(self, said: Said) -> None:
        program = self._program
        service = about("v1", "Service", program.namespace, program.name, "")
        event = event_object(service, said, program.component, self._replica, one_for_its_reason=True)
        try:
            self._api.create(events_path(program.namespace), event)
        except Conflict:
            pass  # told already
        except ApiFailure as error:
            log.info("the Event could not be written", extra={"reason": str(error)})


def judged_answer(answer: Mapping[str, Any]) -> str:
    """What the Lease that the API server would have made says: whether the webhook has been asked."""
    return REACHED if ANNOTATION in annotations_of(answer) else NOT_ASKED


def judged_failure(error: ApiFailure) -> tuple[str, str]:
    """What a failed request says of the webhook, and the API server's words for it."""
    message = error.message if isinstance(error, ApiError) else ""
    _, found, words = message.partition(f'failed calling webhook "{WEBHOOK}": ')
    if found:
        return UNREACHED, words.removeprefix("failed to call webhook: ")
    return NOT_KNOWN, str(error)


def unreached_words(program: CheckedProgram, words: str, port: int) -> str:
    """For an administrator: what was seen, what it leads to, what to do."""
    return (
        f"The API server does not reach the webhooks of {program.name}, whose replicas are ready: {words}. "
        f"{program.consequence} Let the API server connect to TCP port {port} of its pods through each "
        "firewall and network policy in between, or choose an open port: "
        "docs/how-to/webhook-port.md."
    )
