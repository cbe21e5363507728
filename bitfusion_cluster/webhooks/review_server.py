"""The HTTPS server of webhooks: reads a review, has it decided by its path, answers, counts and logs.

What decides is given: pure functions, or ones that look something up. A bug in one of them never ends the
server: the webhook says what is answered then, the traceback is in the log and a count in
``bitfusion_admission_reviews_total{outcome="failed"}``.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bitfusion_cluster.monitoring.endpoints import Conditions, health_routes
from bitfusion_cluster.monitoring.metrics import (
    FAILED,
    PATCHED,
    REFUSED,
    UNCHANGED,
    AdmissionMetrics,
)
from bitfusion_cluster.program.http_service import HttpService, Response, Route, plain
from bitfusion_cluster.webhooks.review import BadReview, Review, Verdict
from bitfusion_cluster.webhooks.review_json import TOO_DEEP, encode_answer, parse_review

JSON = "application/json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Webhook:
    """What answers the reviews of one path.

    Attributes:
        name: In metrics and logs: ``notebooks``. Its path is ``/admit/notebooks``.
        decide: The verdict, at once or once something has been looked up.
        failed: The verdict where `decide` raised what it never should. It must not raise itself.
        patched_level: Of the log line about an object that was patched. What was refused or failed is always
            told, what stays as it is only at debug level.
    """

    name: str
    decide: Callable[[Review], Verdict | Awaitable[Verdict]]
    failed: Callable[[Review], Verdict]
    patched_level: int = logging.INFO

    @property
    def path(self) -> str:
        """Where the apiserver posts to."""
        return f"/admit/{self.name}"


class ReviewServer:
    """POST ``/admit/…`` for each webhook over TLS; GET /healthz and /readyz. Used in one asyncio loop.

    Args:
        webhooks: By what is reviewed.
        metrics: Counts reviews.
        ready: What must hold before this replica is sent reviews; /readyz names what does not.
        ssl_context: Shows the serving certificate.
    """

    def __init__(
        self,
        webhooks: Sequence[Webhook],
        metrics: AdmissionMetrics,
        ready: Conditions,
        ssl_context: ssl.SSLContext,
    ) -> None:
        if ssl_context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._service = HttpService(
            {
                **{hook.path: Route("POST", partial(self._review, hook), JSON) for hook in webhooks},
                **health_routes(ready),
            },
            ssl_context,
            self._count_bad_request,
            lambda why: metrics.connections_closed.labels(why).inc(),
        )
        metrics.in_flight.set_function(lambda: self._service.in_flight)
        self._bad_requests = metrics.bad_requests
        self._outcomes = {
            (hook.name, outcome): metrics.reviews.labels(hook.name, outcome)
            for hook in webhooks
            for outcome in (UNCHANGED, PATCHED, REFUSED, FAILED)
        }
        self._seconds = {hook.name: metrics.seconds.labels(hook.name) for hook in webhooks}

    async def start(self, address: str, port: int) -> int:
        """Listen; returns the port (a free one for 0). Raises OSError."""
        return await self._service.start(address, port)

    async def open(self, address: str, port: int, option: str) -> int:
        """`start` for a command, see `HttpService.open`. Raises CannotStart."""
        return await self._service.open(address, port, option)

    def drain(self) -> None:
        """Go on serving, but ask every client to open its next connection elsewhere."""
        self._service.drain()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Take nothing new, answer what was asked within `grace_s` seconds, then close."""
        await self._service.stop(grace_s)

    def _review(self, webhook: Webhook, body: bytes) -> Response | Awaitable[Response]:
        began = time.perf_counter()
        try:
            review = parse_review(body)
        except BadReview as error:
            return self._not_a_review(error)
        try:
            verdict = webhook.decide(review)
            if not isinstance(verdict, Verdict):
                return self._decided_later(webhook, review, verdict, began)
            return self._answered(webhook, review, verdict, began)
        except RecursionError:
            return self._not_a_review(BadReview(TOO_DEEP))
        except Exception:
            return self._failed(webhook, review, began)

    async def _decided_later(
        self, webhook: Webhook, review: Review, verdict: Awaitable[Verdict], began: float
    ) -> Response:
        try:
            return self._answered(webhook, review, await verdict, began)
        except Exception:
            return self._failed(webhook, review, began)

    def _answered(self, webhook: Webhook, review: Review, verdict: Verdict, began: float) -> Response:
        response = _response(review, verdict)
        seconds = time.perf_counter() - began
        self._seconds[webhook.name].observe(seconds)
        outcome = (PATCHED if verdict.patch else UNCHANGED) if verdict.allowed else REFUSED
        self._outcomes[webhook.name, outcome].inc()
        level = logging.INFO
        if verdict.allowed:
            level = webhook.patched_level if verdict.patch else logging.DEBUG
        if log.isEnabledFor(level):
            fields = _fields(webhook, review, outcome, seconds)
            if not verdict.allowed:
                fields["reason"] = verdict.message
            else:
                fields["keys"] = [operation["path"] for operation in verdict.patch]
            log.log(level, "review answered", extra=fields)
        return response

    def _failed(self, webhook: Webhook, review: Review, began: float) -> Response:
        """Called while the unexpected exception is being handled."""
        verdict = webhook.failed(review)
        seconds = time.perf_counter() - began
        self._outcomes[webhook.name, FAILED].inc()
        self._seconds[webhook.name].observe(seconds)
        what = "let through" if verdict.allowed else "refused"
        log.exception("review failed, object %s", what, extra=_fields(webhook, review, FAILED, seconds))
        return _response(review, verdict)

    def _not_a_review(self, error: BadReview) -> Response:
        self._count_bad_request(400)
        return plain(400, str(error))

    def _count_bad_request(self, status: int) -> None:
        self._bad_requests.labels(str(status)).inc()


def _response(review: Review, verdict: Verdict) -> Response:
    return Response(200, encode_answer(review, verdict), JSON)


def _fields(webhook: Webhook, review: Review, outcome: str, seconds: float) -> dict[str, object]:
    return {
        "webhook": webhook.name,
        "operation": review.operation,
        "namespace": review.namespace,
        "object": review.name,
        "uid": review.uid,
        "user": review.username,
        "dry_run": review.dry_run,
        "outcome": outcome,
        "milliseconds": round(seconds * 1000, 3),
    }
