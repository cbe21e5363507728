"""The servers that are measured, each a process of its own: ``python -m benchmarks.admission_server KIND``.

``ours`` is the admission server as the controller runs it, with a cache that knows the Notebook; ``injector``
is that of the injector, whose pods here belong to no Notebook; ``bare`` is tornado's web framework, which
reads the same review with `json` and gives a fixed answer. Both show a certificate of the same kind (ECDSA
P-256), the same way. The port and ``ready`` are printed; they end with their standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

import tornado.httpserver
import tornado.netutil
import tornado.web
from prometheus_client import CollectorRegistry

from benchmarks.admission_load import ANNOTATIONS, NAME, NAMESPACE, OWNER_UID
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_client.structured_logs import configure_logging
from bitfusion_cluster.certificates.authority import issue, new_authority
from bitfusion_cluster.certificates.serving import ServingCertificate
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS
from bitfusion_device_plugin.injector.pods_webhook import PodsWebhook
from notebook_controller_patch.admission.webhooks import notebook_webhooks

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Record:
    """The Notebook in the cache."""

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


class Cache:
    """A watch cache that knows one Notebook."""

    def get(self, namespace: str, name: str) -> Record | None:
        """As the reconciler's cache."""
        return Record(OWNER_UID, ANNOTATIONS, {}) if (namespace, name) == (NAMESPACE, NAME) else None


class FixedAnswer(tornado.web.RequestHandler):
    """What any webhook does at least: read the review, answer with its uid."""

    def post(self) -> None:
        """Allow."""
        review = json.loads(self.request.body)
        self.set_header("Content-Type", "application/json")
        self.write(
            json.dumps(
                {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": {"uid": review["request"]["uid"], "allowed": True},
                }
            )
        )


def _unknown(namespace: str, name: str, within: float) -> None:
    raise LookupError(f"{namespace}/{name}")


async def serve(kind: str) -> None:
    """Serve until the standard input ends."""
    now = datetime.now(timezone.utc)
    certificate = ServingCertificate()
    certificate.use(issue(new_authority("benchmark", now), ["localhost"], now))
    if kind == "ours":
        metrics = AdmissionMetrics(CollectorRegistry())
        webhooks = notebook_webhooks(lambda: DEFAULT_RULES, Owners(Cache(), _unknown, metrics))
        port = await ReviewServer(webhooks, metrics, {}, certificate.context).start(HOST, 0)
    elif kind == "injector":
        metrics = AdmissionMetrics(CollectorRegistry())
        pods = PodsWebhook(lambda: DEFAULT_SETTINGS, Owners(None, _unknown, metrics))
        port = await ReviewServer((pods.webhook,), metrics, {}, certificate.context).start(HOST, 0)
    else:
        logging.getLogger("tornado.access").setLevel(logging.ERROR)  # ours writes a line for patches
        application = tornado.web.Application([("/admit/.*", FixedAnswer)])
        server = tornado.httpserver.HTTPServer(application, ssl_options=certificate.context)
        sockets = tornado.netutil.bind_sockets(0, HOST)
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
    print(port, "ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("ours", "injector", "bare"))
    configure_logging("json", "info")
    asyncio.run(serve(parser.parse_args().kind))


if __name__ == "__main__":
    main()
