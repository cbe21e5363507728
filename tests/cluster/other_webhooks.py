"""Other people's mutating webhooks for pods, as a Kubeflow has them: one like istio's, one like PodDefaults.

`sidecar_injected` does what istio's and linkerd's do: an init container placed first, a native sidecar, an
ordinary sidecar, a volume and annotations. `pod_default_applied` does what Kubeflow's PodDefaults do: a
volume, its mount and a variable in every container, and an annotation. Mutating webhooks run in the order of
their configurations' names; Kubeflow's PodDefaults come before ours, istio after.
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonpatch

from tests.cluster.cluster import Cluster
from tests.support.certificates import certified

Object = dict[str, Any]
Change = Callable[[Object], Object | None]
"""What becomes of a pod; None refuses it."""

ISTIO = "istio-sidecar-injector"
POD_DEFAULTS = "admission-webhook-mutating-webhook-configuration"
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1337,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_SMALL = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}


def sidecar_injected(pod: Object, image: str) -> Object:
    """The pod with what a service mesh puts into it; the same pod if it has that already."""
    annotations = pod["metadata"].setdefault("annotations", {})
    if annotations.get("sidecar.istio.io/status"):
        return pod
    annotations["sidecar.istio.io/status"] = '{"initContainers":["istio-init"],"containers":["istio-proxy"]}'
    spec = pod["spec"]
    common = {"image": image, "resources": _SMALL, "securityContext": _RESTRICTED}
    mount = [{"name": "istio-envoy", "mountPath": "/etc/istio/proxy"}]
    first = {"name": "istio-init", "command": ["/bin/sh", "-c", "exit 0"], **common}
    waits = ["/bin/sh", "-c", "trap exit TERM; while :; do sleep 1; done"]
    native = {"name": "istio-validation", "command": waits, "restartPolicy": "Always", **common}
    proxy = {"name": "istio-proxy", "command": waits, "volumeMounts": mount, **common}
    spec["initContainers"] = [first, native, *(spec.get("initContainers") or [])]
    spec["containers"] = [*spec["containers"], proxy]
    spec["volumes"] = [*(spec.get("volumes") or []), {"name": "istio-envoy", "emptyDir": {}}]
    return pod


def pod_default_applied(pod: Object) -> Object:
    """The pod with what a PodDefault of a user's namespace puts into every container; once."""
    annotations = pod["metadata"].setdefault("annotations", {})
    applied = "poddefault.admission.kubeflow.org/poddefault-team"
    if applied in annotations:
        return pod
    annotations[applied] = "1"
    spec = pod["spec"]
    spec["volumes"] = [*(spec.get("volumes") or []), {"name": "team-cache", "emptyDir": {}}]
    for container in spec["containers"]:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [*mounts, {"name": "team-cache", "mountPath": "/opt/team"}]
        container["env"] = [*(container.get("env") or []), {"name": "TEAM", "value": "vision"}]
    return pod


@contextmanager
def pod_webhook(cluster: Cluster, name: str, namespace: str, change: Change) -> Iterator[list[str]]:
    """A mutating webhook for the pods of one namespace, under that configuration's name.

    Gives the list of the names of the pods that it was asked about; one that is asked again for the same pod
    (`reinvocationPolicy: IfNeeded`) notes it again.
    """
    asked: list[str] = []
    with tempfile.TemporaryDirectory() as folder, _served(change, asked, Path(folder)) as (address, ca):
        cluster.client.create(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            _configuration(name, namespace, address, ca),
        )
        try:
            yield asked
        finally:
            cluster.client.delete(
                f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"
            )


@contextmanager
def _served(change: Change, asked: list[str], folder: Path) -> Iterator[tuple[str, bytes]]:
    authority = certified("other webhooks", authority=True)
    certificate, key = certified("127.0.0.1", ["127.0.0.1"], signed_by=authority).write(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            asked.append(str(request["object"]["metadata"].get("name", "")))
            body = json.dumps(_answer(request, change)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: what was asked is in the list."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/", authority.certificate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: Object, change: Change) -> Object:
    before = request["object"]
    after = change(copy.deepcopy(before))
    response = {"uid": request["uid"], "allowed": after is not None}
    if after is not None:
        patch = jsonpatch.make_patch(before, after).to_string()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _configuration(name: str, namespace: str, address: str, ca: bytes) -> Object:
    return {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "pods.other.example.com",
                "clientConfig": {"url": address, "caBundle": base64.b64encode(ca).decode()},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "Namespaced",
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "reinvocationPolicy": "IfNeeded",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
