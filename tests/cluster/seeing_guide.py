"""The commands that show who holds what, where the reader of the tutorials has a notebook and a lease.

Prometheus' operator is played: its kind of object is there, and nothing acts on it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

from tests.cluster.cluster import Cluster
from tests.cluster.guide import PROFILE, ROOT, Reader, blocks
from tests.support.machine import scaled

HOW_TO = ROOT / "docs" / "how-to"
TABLE, METRICS = "A table", "Metrics"
TABLE_PAGE, METRICS_PAGE, HEALTH_PAGE = (
    HOW_TO / f"{name}.md" for name in ("see-who-holds-what", "monitoring", "health-check")
)
_OPERATORS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POOL_PODS = "/api/v1/namespaces/bitfusion-pool/pods"


def see_who_holds_what(cluster: Cluster, reader: Reader) -> None:
    """Every command of the page, and what it shows of the notebook."""
    _table(reader)
    _metrics(cluster, reader)
    _health_check(reader)


def see_that_the_pool_is_protected(reader: Reader) -> None:
    """What the table says once the queue runs."""
    _, in_the_pod = blocks(TABLE, page=TABLE_PAGE)
    assert "Protected against overselling by the queue, kubeflow/bitfusion-queue-" in reader.run(in_the_pod)


def _table(reader: Reader) -> None:
    command = [sys.executable, "-m", "bitfusion_pool.admin.cli"]
    program = reader.bridge / "bitfusion-pool"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    here, in_the_pod = blocks(TABLE, page=TABLE_PAGE)
    pod = f"│ {PROFILE} │ bitfusion-sample │    50 │ runs  │"
    alone = reader.run(here._replace(printed=None))
    assert pod in alone
    assert "The pool itself was not asked who holds what: only your own pool is named here" in alone
    both = reader.run(in_the_pod)
    assert "Units of the pool: 200, 50 taken by pods, 150 free\nNot protected against overselling:\n" in both
    (row,) = (line for line in both.splitlines() if pod in line)
    held, for_so_long, _, waiting = [cell.strip() for cell in row.strip("│").split("│")][-4:]
    assert (held, for_so_long.endswith(" s"), waiting) == ("50", True, "")
    assert "Every lease of the pool is accounted for by a pod.\n" in both


def _metrics(cluster: Cluster, reader: Reader) -> None:
    with _operator(cluster):
        (commands,) = blocks(METRICS, page=METRICS_PAGE)
        reader.run(commands)
    (pod,) = cluster.client.get(_POOL_PODS)["items"]
    with urlopen(f"http://{pod['status']['podIP']}:9090/metrics", timeout=scaled(30)) as answer:
        text = answer.read().decode()
    labels = f'holder="cluster/{PROFILE}",namespace="{PROFILE}",notebook="bitfusion-sample"'
    assert f"bitfusion_pool_holder_gpus{{{labels}}} 0.5" in text


@contextmanager
def _operator(cluster: Cluster) -> Iterator[None]:
    """The namespace in which Prometheus usually is, and the operator's kind of object."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = "podmonitors.monitoring.coreos.com"
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": "monitoring"}})
    cluster.client.create(_OPERATORS, kind)
    try:
        cluster.kubectl("wait", "--for=condition=established", f"crd/{name}", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", "crd", name, limit_s=90)
        cluster.kubectl("delete", "namespace", "monitoring", limit_s=90)


def _health_check(reader: Reader) -> None:
    install, look, _of_vmware = blocks(page=HEALTH_PAGE)
    reader.run(install)
    printed = reader.run(look)
    assert "Health report for server: bitfusion-pool.bitfusion-pool.svc:56001\n=====\n" in printed
    assert "Health report for localhost\n=====\n" in printed
    assert re.search(r"Normal +BitfusionHealthPassed .* All is well: \d+ checks\.", printed)
    reader.shell("kubectl delete -k my-health-check")
