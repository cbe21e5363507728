"""The HTTPS server of both webhooks: reads a review, has it decided, answers, counts and logs.

A bug in this project never blocks anybody's object: it is let through as it is, with a warning in the answer,
the traceback in the log and a count in ``bitfusion_admission_reviews_total{outcome="failed"}``.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bitfusion_client.client_images import ImageRule
from notebook_controller_patch.admission.notebook import admit_notebook
from notebook_controller_patch.admission.owners import UNKNOWN, Owner, Owners
from notebook_controller_patch.admission.review import (
    TOO_DEEP,
    UNTOUCHED,
    BadReview,
    Review,
    Verdict,
    answer,
    parse_review,
)
from notebook_controller_patch.admission.statefulset import (
    OwnerReference,
    admit_statefulset,
    needs_owner,
    starts_pod,
)
from notebook_controller_patch.http_service import HttpService, Response, Route, plain
from notebook_controller_patch.metrics import FAILED, PATCHED, REFUSED, UNCHANGED, AdmissionMetrics
from notebook_controller_patch.monitoring import Conditions, health_routes

NOTEBOOKS, STATEFULSETS = "notebooks", "statefulsets"
JSON = "application/json"
FAILURE = "Bitfusion's admission failed on this object and left it as it is; the cause is in its log"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """What an AdmissionServer works with.

    Attributes:
        rules: Gives the image rules in force; the same object as long as they do not change.
        owners: Looks up the Notebook of a StatefulSet.
        metrics: Counts reviews.
        own_username: The reconciler's, whose writes pass unchanged; empty: nobody's.
        ready: What must hold before this replica is sent reviews; /readyz names what does not.
    """

    rules: Callable[[], Sequence[ImageRule]]
    owners: Owners
    metrics: AdmissionMetrics
    own_username: str = ""
    ready: Conditions = field(default_factory=dict)


class AdmissionServer:
    """POST ``/admit/notebooks`` and ``/admit/statefulsets`` over TLS; GET /healthz and /readyz.

    Made by the controller; used in one asyncio loop. `ssl_context` shows the serving certificate.
    """

    def __init__(self, context: AdmissionContext, ssl_context: ssl.SSLContext) -> None:
        if ssl_context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
        metrics = context.metrics
        self._rules = context.rules
        self._owners = context.owners
        self._own_username = context.own_username
        self._service = HttpService(
            {
                "/admit/notebooks": Route("POST", self._notebooks, JSON),
                "/admit/statefulsets": Route("POST", self._statefulsets, JSON),
                **health_routes(context.ready),
            },
            ssl_context,
            self._count_bad_request,
        )
        metrics.in_flight.set_function(lambda: self._service.in_flight)
        self._bad_requests = metrics.bad_requests
        self._outcomes = {
            (webhook, outcome): metrics.reviews.labels(webhook, outcome)
            for webhook in (NOTEBOOKS, STATEFULSETS)
            for outcome in (UNCHANGED, PATCHED, REFUSED, FAILED)
        }
        self._seconds = {name: metrics.seconds.labels(name) for name in (NOTEBOOKS, STATEFULSETS)}

    async def start(self, address: str, port: int) -> int:
        """Listen; returns the port (a free one for 0). Raises OSError."""
        return await self._service.start(address, port)

    def drain(self) -> None:
        """Go on serving, but ask every client to open its next connection elsewhere."""
        self._service.drain()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Take nothing new, answer what was asked within `grace_s` seconds, then close."""
        await self._service.stop(grace_s)

    def _notebooks(self, body: bytes) -> Response:
        began = time.perf_counter()
        try:
            review = parse_review(body)
        except BadReview as error:
            return self._not_a_review(error)
        try:
            verdict = admit_notebook(review, self._rules())
            return self._answered(NOTEBOOKS, review, verdict, began)
        except RecursionError:
            return self._not_a_review(BadReview(TOO_DEEP))
        except Exception:
            return self._failed(NOTEBOOKS, review, began)

    def _statefulsets(self, body: bytes) -> Response | Awaitable[Response]:
        began = time.perf_counter()
        try:
            review = parse_review(body)
        except BadReview as error:
            return self._not_a_review(error)
        try:
            reference = needs_owner(review, self._own_username)
            if reference is None:
                return self._decided(review, UNKNOWN, began)
            if not starts_pod(review):
                owner = self._owners.cached(reference.namespace, reference.name, reference.uid)
                if owner is not None:
                    return self._decided(review, owner, began)
        except Exception:
            return self._failed(STATEFULSETS, review, began)
        return self._looked_up(review, reference, began)

    async def _looked_up(self, review: Review, reference: OwnerReference, began: float) -> Response:
        try:
            owner = await self._owners.current(reference.namespace, reference.name, reference.uid)
            return self._decided(review, owner, began)
        except Exception:
            return self._failed(STATEFULSETS, review, began)

    def _decided(self, review: Review, owner: Owner, began: float) -> Response:
        if owner.left_alone:
            return self._answered(STATEFULSETS, review, UNTOUCHED, began)
        verdict = admit_statefulset(review, owner.annotations, self._own_username, owner.certain)
        return self._answered(STATEFULSETS, review, verdict, began)

    def _answered(self, webhook: str, review: Review, verdict: Verdict, began: float) -> Response:
        response = _response(review, verdict)
        seconds = time.perf_counter() - began
        self._seconds[webhook].observe(seconds)
        outcome = (PATCHED if verdict.patch else UNCHANGED) if verdict.allowed else REFUSED
        self._outcomes[webhook, outcome].inc()
        level = logging.DEBUG if outcome is UNCHANGED else logging.INFO
        if log.isEnabledFor(level):
            fields = _fields(webhook, review, outcome, seconds)
            if not verdict.allowed:
                fields["reason"] = verdict.message
            else:
                fields["keys"] = [operation["path"] for operation in verdict.patch]
            log.log(level, "review answered", extra=fields)
        return response

    def _failed(self, webhook: str, review: Review, began: float) -> Response:
        """Called while the unexpected exception is being handled."""
        seconds = time.perf_counter() - began
        self._outcomes[webhook, FAILED].inc()
        self._seconds[webhook].observe(seconds)
        log.exception("review failed, object let through", extra=_fields(webhook, review, FAILED, seconds))
        return _response(review, Verdict(warnings=(FAILURE,)))

    def _not_a_review(self, error: BadReview) -> Response:
        self._count_bad_request(400)
        return plain(400, str(error))

    def _count_bad_request(self, status: int) -> None:
        self._bad_requests.labels(str(status)).inc()


def _response(review: Review, verdict: Verdict) -> Response:
    return Response(200, json.dumps(answer(review, verdict)).encode(), JSON)


def _fields(webhook: str, review: Review, outcome: str, seconds: float) -> dict[str, object]:
    return {
        "webhook": webhook,
        "operation": review.operation,
        "namespace": review.namespace,
        "object": review.name,
        "uid": review.uid,
        "user": review.username,
        "dry_run": review.dry_run,
        "outcome": outcome,
        "milliseconds": round(seconds * 1000, 3),
    }
