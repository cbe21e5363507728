"""A mutating webhook of somebody else's for pods, as sidecar injectors and PodDefaults are; a thread here."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.support.certificates import certified
from tests.support.waiting import wait_until

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
Patch = list[dict[str, Any]]
ANY_POD = {"metadata": {"generateName": "any-"}, "spec": {"containers": [{"name": "any", "image": "none"}]}}


@contextmanager
def another_webhook(
    cluster: Cluster, room: Room, name: str, folder: Path, patch: Callable[[Any], Patch]
) -> Iterator[None]:
    """Calls `patch` with each pod of the room's namespace; the `name` of its configuration is its turn."""
    certificate = certified("localhost", ["127.0.0.1"])
    calls = 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate.write(folder))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal calls
            calls += 1
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operations = patch(review["request"]["object"])
            response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
            if operations:
                encoded = base64.b64encode(json.dumps(operations).encode()).decode()
                response |= {"patchType": "JSONPatch", "patch": encoded}
            answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": room.namespace}}
    webhook = {
        "name": "pods.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(certificate.certificate).decode(),
        },
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ],
        "namespaceSelector": namespace,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1"],
    }

    def is_called() -> bool:
        before = calls
        with suppress(Refused):  # by somebody else
            cluster.client.create(room.pods, ANY_POD, dryRun="All")
        return calls > before

    cluster.client.create(CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        yield
    finally:
        cluster.client.delete(f"{CONFIGURATIONS}/{name}")
        # The API server hears of it a moment later, and would refuse the next test's pod.
        wait_until(lambda: not is_called(), "the API server calls it no more", 30)
        server.shutdown()
        server.server_close()
        thread.join()


def like_istio(pod: Any) -> Patch:
    """An init container before all others, and a sidecar."""
    spec = pod["spec"]
    if any(each["name"] == "mesh-init" for each in spec.get("initContainers", [])):
        return []
    first = {"name": "mesh-init", "image": "mesh"}
    init: Patch = (
        [{"op": "add", "path": "/spec/initContainers/0", "value": first}]
        if spec.get("initContainers")
        else [{"op": "add", "path": "/spec/initContainers", "value": [first]}]
    )
    return [*init, {"op": "add", "path": "/spec/containers/-", "value": {"name": "mesh", "image": "mesh"}}]


def like_a_pod_default(pod: Any) -> Patch:
    """An annotation of ours, a variable, a volume and its mount, in every container."""
    annotations = pod["metadata"].get("annotations") or {}
    if "example.com/pod-default" in annotations:
        return []
    added = {"example.com/pod-default": "applied", "bitfusion.io/path": "none"}
    patch: Patch = [{"op": "add", "path": "/metadata/annotations", "value": {**annotations, **added}}]
    volume = {"name": "workspace", "emptyDir": {}}
    patch.append({"op": "add", "path": "/spec/volumes", "value": [*pod["spec"].get("volumes", []), volume]})
    for place, container in enumerate(pod["spec"]["containers"]):
        mounts = [*container.get("volumeMounts", []), {"name": "workspace", "mountPath": "/workspace"}]
        variables = [*container.get("env", []), {"name": "TEAM", "value": "vision"}]
        patch.append({"op": "add", "path": f"/spec/containers/{place}/volumeMounts", "value": mounts})
        patch.append({"op": "add", "path": f"/spec/containers/{place}/env", "value": variables})
    return patch
