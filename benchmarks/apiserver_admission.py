"""What admission costs the API server: ``python -m benchmarks.apiserver_admission [--quick] [--json FILE]``.

A real kube-apiserver (the test cluster's) calls one replica of the controller, with the rights and webhooks
of the manifests, and a bare tornado webhook with a fixed answer. Two kinds of figures, taken in turns:

- the apiserver's own mean of a call, ``apiserver_admission_webhook_admission_duration_seconds``: without a
  look-up, with one answered by the watch cache, and with a live one over a kept connection;
- a client's time for a dry-run creation of a StatefulSet with and without our webhook.

A StatefulSet that is created with a replica starts a pod, and its Notebook is looked up live; one without
gets what the watch cache knows.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, Row, Samples, Shown, percentile
from benchmarks.table import format_table
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import stateful_set_of
from tests.cluster.notebooks import PROFILE
from tests.notebook_controller_patch.installation import Installation
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

TOPIC = "apiserver"
NOTEBOOKS, STATEFULSETS, BARE = "notebooks.bitfusion.io", "statefulsets.bitfusion.io", "bare.example.com"
BARE_LABEL = {"benchmark": "bare"}
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
METRIC = "apiserver_admission_webhook_admission_duration_seconds"
BATCHES = 15
REVIEWS = 200  # in a batch
AT_ONCE = 8
MANAGED = "auto-management/bitfusion"


class Bench:
    """Three namespaces: our webhooks see one, the bare webhook another, nobody the third."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = cluster.client
        self.seen = cluster.new_namespace(PROFILE, "seen")
        self.bare = cluster.new_namespace(BARE_LABEL, "bare")
        self.unseen = cluster.new_namespace({}, "unseen")
        self._statefulsets = {space: self._running(space) for space in (self.seen, self.bare, self.unseen)}

    def create(self, namespace: str, replicas: int = 1) -> object:
        """A dry-run creation, as Kubeflow's controller would; of a stopped notebook without replicas."""
        body = json.loads(json.dumps(self._statefulsets[namespace]))
        body["metadata"]["name"] = "another"
        body["spec"]["replicas"] = replicas
        return self.client.create(_statefulsets(namespace), body, dryRun="All")

    def update(self, namespace: str) -> object:
        """A dry-run change of a running StatefulSet whose sizes stay: no look-up is needed."""
        change = {"metadata": {"labels": {"changed": str(time.monotonic_ns())}}}
        return self.client.merge(f"{_statefulsets(namespace)}/nb", change, dryRun="All")

    def notebook(self, namespace: str) -> object:
        """A dry-run creation of a Notebook, as the form's."""
        return self.client.create(_notebooks(namespace), _asking(namespace, "another"), dryRun="All")

    def settled(self) -> bool:
        """Whether our webhook is called, and the reconciler has written where no webhook of ours did."""
        made: Any = self.create(self.seen)
        notebooks = [self.client.get(f"{_notebooks(space)}/nb") for space in (self.bare, self.unseen)]
        objects = [made["spec"]["template"], *notebooks]
        return all(MANAGED in (each["metadata"].get("annotations") or {}) for each in objects)

    def mean_of(self, webhook: str, call: Call, namespace: str, count: int) -> float:
        """The apiserver's mean, in seconds, of the calls of `webhook` that `count` requests cause."""
        before = self._metric(webhook)
        with ThreadPoolExecutor(call.at_once) as pool:
            for done in [pool.submit(call.send, self, namespace) for _ in range(count)]:
                done.result()
        after = self._metric(webhook)
        calls = after[1] - before[1]
        if calls != count:
            raise RuntimeError(f"{webhook} was called {calls:g} times for {count} requests")
        return (after[0] - before[0]) / calls

    def _metric(self, webhook: str) -> tuple[float, float]:
        total = calls = 0.0
        for line in self.client.text("/metrics").splitlines():
            if not line.startswith(METRIC) or f'name="{webhook}"' not in line:
                continue
            value = float(line.rpartition(" ")[2])
            if line.startswith(f"{METRIC}_sum"):
                total += value
            elif line.startswith(f"{METRIC}_count"):
                calls += value
        return total, calls

    def _running(self, namespace: str) -> dict[str, Any]:
        made = self.client.create(_notebooks(namespace), _asking(namespace, "nb"))
        body = stateful_set_of(made, "1.7")
        self.client.create(_statefulsets(namespace), body)
        return body


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of review: what causes it, in a given namespace, and how many are under way at once."""

    what: str
    webhook: str
    send: Callable[[Bench, str], object]
    goal_ms: float = 2  # 0: none, the row is only to be read
    at_once: int = 1


def _stopped(bench: Bench, namespace: str) -> object:
    return bench.create(namespace, replicas=0)


CALLS = (
    Call("Notebook, no look-up", NOTEBOOKS, Bench.notebook),
    Call("running StatefulSet, no look-up", STATEFULSETS, Bench.update),
    Call("StatefulSet, from the watch cache", STATEFULSETS, _stopped),
    Call("StatefulSet, live look-up", STATEFULSETS, Bench.create, 5),
    Call(f"StatefulSet, live look-up, {AT_ONCE} at once", STATEFULSETS, Bench.create, 0, AT_ONCE),
)


def measure(bench: Bench, batches: int, reviews: int) -> list[Row]:
    """All rows; every batch measures each variant once, so that the machine's moods meet them all."""
    means: dict[tuple[Call, str, str], list[float]] = {
        (call, webhook, namespace): []
        for call in CALLS
        for webhook, namespace in ((call.webhook, bench.seen), (BARE, bench.bare))
    }
    times: dict[str, list[float]] = {bench.seen: [], bench.unseen: []}
    for batch in range(-1, batches):  # the first one warms up connections and caches
        for key in sorted(means, key=lambda _: random.random()):
            call, webhook, namespace = key
            mean = bench.mean_of(webhook, call, namespace, reviews if batch >= 0 else 20)
            if batch >= 0:
                means[key].append(mean)
        for turn in range(reviews if batch >= 0 else 20):
            for namespace in (bench.seen, bench.unseen) if turn % 2 else (bench.unseen, bench.seen):
                began = time.perf_counter()
                bench.create(namespace)
                if batch >= 0:
                    times[namespace].append(time.perf_counter() - began)
    rows = [
        Row(
            TOPIC,
            f"apiserver's mean: {call.what}",
            "ms",
            Samples(tuple(means[call, call.webhook, bench.seen])),
            Samples(tuple(means[call, BARE, bench.bare])),
            AtMost(call.goal_ms * MILLISECOND, "ms") if call.goal_ms else Shown(),
        )
        for call in CALLS
    ]
    ours, plain = times[bench.seen], times[bench.unseen]
    what = "creation of a StatefulSet"
    rows.append(
        Row(
            TOPIC,
            f"{what}, median",
            "ms",
            Samples(tuple(ours)),
            Samples(tuple(plain)),
            AtMostMore(5 * MILLISECOND),
            "plain: the same without any webhook",
        )
    )
    slow, plain_slow = (Samples((percentile(values, 0.99),)) for values in (ours, plain))
    rows.append(Row(TOPIC, f"{what}, 99th percentile", "ms", slow, plain_slow))
    return rows


def _notebooks(namespace: str) -> str:
    return f"/apis/kubeflow.org/v1beta1/namespaces/{namespace}/notebooks"


def _statefulsets(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/statefulsets"


def _asking(namespace: str, name: str) -> dict[str, Any]:
    return form_notebook(name, {"bitfusion.io/gpu-50": "1"}, namespace=namespace)


@contextmanager
def bare_webhook(cluster: Cluster) -> Iterator[None]:
    """Tornado with a fixed answer as a webhook of the namespaces with `BARE_LABEL`."""
    command = [sys.executable, "-m", "benchmarks.admission_server", "bare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().split()[0])
            # its certificate is its own authority: Go takes a leaf that is trusted itself
            leaf = ssl.get_server_certificate(("127.0.0.1", port))
            webhook = {
                "name": BARE,
                "clientConfig": {
                    "url": f"https://localhost:{port}/admit/any",
                    "caBundle": base64.b64encode(leaf.encode()).decode(),
                },
                "rules": [
                    _rule("kubeflow.org", "notebooks"),
                    _rule("apps", "statefulsets"),
                ],
                "namespaceSelector": {"matchLabels": BARE_LABEL},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            configuration = {"metadata": {"name": BARE}, "webhooks": [webhook]}
            cluster.client.create(CONFIGURATIONS, configuration)
            yield
        finally:
            process.stdin.close()
            process.wait(10)


def _rule(group: str, resource: str) -> dict[str, Any]:
    operations = ["CREATE", "UPDATE"]
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resource]}


@contextmanager
def opened() -> Iterator[Bench]:
    """A cluster of our own with one replica of the controller, ready and called, and the bare webhook."""
    cluster = Cluster.start(binaries(_say))
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            Installation(cluster, Path(folder)) as installed,
            bare_webhook(cluster),
        ):
            installed.started()
            bench = Bench(cluster)
            wait_until(bench.settled, limit_s=30)
            yield bench
    finally:
        cluster.end()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apiserver_admission", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer reviews")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all samples there")
    options = parser.parse_args()
    batches, reviews = (3, 50) if options.quick else (BATCHES, REVIEWS)
    with opened() as bench:
        rows = measure(bench, batches, reviews)
    print(format_table(rows))
    print(
        "plain: a bare tornado webhook that allows everything; ours sends a patch, and its application by the"
    )
    print("apiserver is part of its figure, but for the running StatefulSet, where nothing is patched")
    print(f"medians of {batches} batches of {reviews}; load at the end {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
