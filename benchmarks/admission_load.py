"""Load for an admission server: reviews, and posting them as fast as they are answered.

With ``wrk`` (a Debian package) if the machine has it, else from threads of this process. Both keep their
connections, as the apiserver does.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import percentile

NAMESPACE, NAME = "ann", "nb"
OWNER_UID = "0f1d5d0a-3c1f-4a6e-9a53-5c1b7f6f2f11"
ANNOTATIONS = {
    "auto-management/bitfusion": "injection",
    "bitfusion-client/os": "ubuntu22",
    "bitfusion-client/version": "454",
}
SCRIPT = """\
local file = io.open(os.getenv("REVIEW"), "rb")
wrk.body = file:read("*a")
file:close()
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where reviews are posted, and which."""

    port: int
    path: str
    review: bytes


@dataclass(frozen=True, slots=True)
class Throughput:
    """What came out of one load: reviews answered, how many a second, and seconds of one by percentile."""

    answered: int
    rate: float
    median: float
    p99: float


class NotAnswered(RuntimeError):
    """The server did not answer every review with a 200."""


def reviews() -> dict[str, tuple[str, bytes]]:
    """Path and review of what happens most, by what it is."""
    notebook = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"app": NAME},
            "annotations": {"notebooks.kubeflow.org/server-type": "jupyter"},
        },
        "spec": {"template": {"spec": _pod()}},
    }
    return {
        "Notebook created and patched": ("/admit/notebooks", _review(notebook)),
        "StatefulSet of a running notebook": (
            "/admit/statefulsets",
            _review(_set(1, ANNOTATIONS), _set(1, ANNOTATIONS)),
        ),
        "StatefulSet stopped and patched from the cache": ("/admit/statefulsets", _review(_set(0), _set(1))),
    }


def pod_reviews() -> dict[str, tuple[str, bytes]]:
    """Path and review of pods that are injected, small and large, which belong to no Notebook."""
    return {f"Pod of {size} kB injected": ("/admit/pods", _pod_review(size * 1000)) for size in (10, 50)}


def _pod_review(size: int) -> bytes:
    """As large as that by variables, which is what makes the pods of pipelines and model servers large."""
    spec = _pod()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "annotations": ANNOTATIONS},
        "spec": spec,
    }
    variables = spec["containers"][0]["env"]
    while len(review := _review(pod)) < size:
        variables.append({"name": f"VARIABLE_{len(variables)}", "value": "x" * 100})
    return review


def load(target: Target, connections: int, seconds: float, folder: Path) -> Throughput:
    """Post for that long over so many connections. Raises NotAnswered."""
    if has_wrk() and seconds >= 1:
        return _with_wrk(target, connections, int(seconds), folder)
    return _with_threads(target, connections, seconds)


def has_wrk() -> bool:
    """Whether loads of a second and more come from wrk."""
    return shutil.which("wrk") is not None


def post(target: Target, count: int) -> None:
    """Post exactly so many reviews over one connection. Raises NotAnswered."""
    connection = _connection(target.port)
    try:
        for _ in range(count):
            _post_one(connection, target)
    finally:
        connection.close()


def _with_wrk(target: Target, connections: int, seconds: int, folder: Path) -> Throughput:
    script, review = folder / "post.lua", folder / "review.json"
    script.write_text(SCRIPT)
    review.write_bytes(target.review)
    url = f"https://127.0.0.1:{target.port}{target.path}"
    wrk = shutil.which("wrk") or "wrk"  # by its path: the environment given below has no PATH
    words = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url]
    done = subprocess.run(
        words, env={"REVIEW": str(review)}, capture_output=True, text=True, timeout=seconds + 60, check=True
    )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    answered = re.search(r"(\d+) requests in", done.stdout)
    if rate is None or answered is None or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise NotAnswered(done.stdout)
    return Throughput(
        int(answered[1]), float(rate[1]), _latency(done.stdout, "50%"), _latency(done.stdout, "99%")
    )


def _latency(printed: str, share: str) -> float:
    found = re.search(rf"{share}\s+([\d.]+)(us|ms|s)", printed)
    if found is None:
        raise NotAnswered(printed)
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]


def _with_threads(target: Target, connections: int, seconds: float) -> Throughput:
    latencies: list[float] = []
    errors: list[Exception] = []
    until = time.perf_counter() + seconds

    def run() -> None:
        connection = _connection(target.port)
        try:
            while True:
                began = time.perf_counter()
                _post_one(connection, target)
                ended = time.perf_counter()
                latencies.append(ended - began)
                if ended > until:
                    break
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    rate = len(latencies) / (time.perf_counter() - began)
    return Throughput(len(latencies), rate, percentile(latencies, 0.5), percentile(latencies, 0.99))


def _connection(port: int) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is as old as the process
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)


def _post_one(connection: http.client.HTTPSConnection, target: Target) -> None:
    connection.request("POST", target.path, target.review, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200 or not json.loads(content)["response"]["allowed"]:
        raise NotAnswered(f"{response.status} {content[:200]!r}")


def _set(replicas: int, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    labels = {"statefulset": NAME, "notebook-name": NAME}
    owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Notebook", "name": NAME, "uid": OWNER_UID}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"statefulset": NAME}},
            "template": {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": _pod()},
        },
    }


def _pod() -> dict[str, Any]:
    return {
        "serviceAccountName": "default-editor",
        "containers": [
            {
                "name": NAME,
                "image": "ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-scipy:v1.10.0",
                "ports": [{"name": "notebook-port", "containerPort": 8888, "protocol": "TCP"}],
                "env": [{"name": "NB_PREFIX", "value": f"/notebook/{NAMESPACE}/{NAME}"}],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"cpu": "600m", "memory": "1Gi", "bitfusion.io/gpu-50": "1"},
                },
                "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
    }


def _review(new: dict[str, Any], old: dict[str, Any] | None = None) -> bytes:
    kind = new["kind"]
    names = {"group": new["apiVersion"].partition("/")[0], "version": "v1", "kind": kind}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": names,
        "requestKind": names,
        "name": NAME,
        "namespace": NAMESPACE,
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "system:serviceaccount:kubeflow:notebook-controller-service-account"},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review).encode()
