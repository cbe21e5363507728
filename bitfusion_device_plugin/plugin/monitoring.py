"""What the plugin shows: ``/healthz``, ``/readyz`` and ``/metrics``, in the loop that serves the kubelet.

The other processes have tornado for their reviews and serve these with it, too; here it would be a tenth of
the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from bitfusion_client.listening.plain_http import PLAIN, Answer, PlainHttp
from bitfusion_device_plugin.plugin.metric_text import CONTENT_TYPE
from bitfusion_device_plugin.plugin.metrics import PluginMetrics


def monitoring(not_ready: Callable[[], str], metrics: PluginMetrics) -> PlainHttp:
    """The listener, for the process. `not_ready`: what is missing, empty when nothing is."""

    def ready() -> Answer:
        missing = not_ready()
        if missing:
            return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"not ready: {missing}".encode()
        return HTTPStatus.OK, PLAIN, b"ok"

    return PlainHttp(
        {
            "/healthz": lambda: (HTTPStatus.OK, PLAIN, b"ok"),
            "/readyz": ready,
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, metrics.text()),
        },
        lambda why: metrics.connections_closed.labels(why).inc(),
    )
