"""``/metrics`` of a service, in a thread of its own: what Prometheus reads takes time to make."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING

from bitfusion_client.listening.plain_http import Answer, PlainHttp
from bitfusion_pool.service.monitoring.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def serve_metrics(address: str, port: int, registry: CollectorRegistry, metrics: Metrics) -> None:
    """Listen, until the process ends. Called once, before the service's loop; raises OSError."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    def text() -> Answer:
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)

    def closed(why: str) -> None:
        metrics.metrics_connections_closed.labels(why).inc()

    async def serve(listens: Future[None]) -> None:
        try:
            await PlainHttp({"/metrics": text}, closed).start(address, port)
        except OSError as error:
            listens.set_exception(error)
            return
        listens.set_result(None)
        await asyncio.Event().wait()

    listens: Future[None] = Future()
    threading.Thread(target=lambda: asyncio.run(serve(listens)), name="metrics", daemon=True).start()
    listens.result()
