"""What reading everything anew costs: ``python -m benchmarks.relist [--notebooks 10000] [--json FILE]``.

A real kube-apiserver (the test cluster's) holds that many Notebooks and as many StatefulSets of theirs. Each
figure comes from a process of its own (``benchmarks.relist_reader``), the ways in turns: the reconciler, and
two plain loops over the official client.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import MEGABYTE, AtMost, Row, Samples, Shown, interleave
from benchmarks.table import format_table
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import STOPPED, stateful_set_of
from tests.support.notebooks import form_notebook

TOPIC = "relist"
NOTEBOOKS = 10_000
REPETITIONS = 1
ROOT = Path(__file__).parents[1]
CLIENT = {
    "auto-management/bitfusion": "injection",
    "bitfusion-client/os": "ubuntu22",
    "bitfusion-client/version": "454",
}
WAYS = ("ours", "dynamic", "custom")


def make_namespaces(cluster: Cluster, notebooks: int) -> list[str]:
    """Ten namespaces for so many notebooks, or fewer."""
    return [cluster.new_namespace(prefix="user") for _ in range(min(10, notebooks))]


def fill(cluster: Cluster, namespaces: Sequence[str], notebooks: int) -> None:
    """Notebooks as admission leaves them, stopped, with their StatefulSets."""

    def make(number: int) -> None:
        namespace = namespaces[number % len(namespaces)]
        body = form_notebook(
            f"nb-{number}",
            {"bitfusion.io/gpu-50": "1"},
            {**CLIENT, STOPPED: "2026-11-21T08:00:00Z"},
            namespace=namespace,
        )
        body["metadata"]["labels"]["bitfusion.io/requested"] = "true"
        base = f"/namespaces/{namespace}"
        made = cluster.client.create(f"/apis/kubeflow.org/v1beta1{base}/notebooks", body)
        statefulset = stateful_set_of(made, "1.7")
        statefulset["spec"]["template"]["metadata"]["annotations"] = CLIENT
        cluster.client.create(f"/apis/apps/v1{base}/statefulsets", statefulset)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(make, number) for number in range(notebooks)]:
            done.result()


def read(way: str, kubeconfig: Path, notebooks: int) -> dict[str, Any]:
    """Run one way in a process of its own; what it measured."""
    command = [sys.executable, "-m", "benchmarks.relist_reader", way, str(kubeconfig), str(notebooks)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{way}: {done.stderr.strip()[-500:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(cluster: Cluster, notebooks: int, repetitions: int) -> list[Row]:
    """All rows; `cluster` holds the notebooks."""
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}

    def once(way: str) -> float:
        seen[way].append(read(way, cluster.kubeconfig, notebooks))
        return float(seen[way][-1]["seconds"])

    interleave({way: way for way in WAYS}, repetitions, once)
    return rows_of(seen, notebooks)


def rows_of(seen: dict[str, list[dict[str, Any]]], notebooks: int) -> list[Row]:
    """The table of what the readers measured."""

    def samples(way: str, field: str) -> Samples:
        return Samples(tuple(float(each[field]) for each in seen[way]))

    def most(field: str) -> int:
        return max(int(each[field]) for each in seen["ours"])

    first = (
        f"{most('queries')} requests, lease included, at most {most('busiest')} in a second; "
        f"{most('writes')} writes"
    )
    again = (
        f"{most('again_queries')} requests, at most {most('again_busiest')} in a second; its delay included; "
        f"{most('lists_expired')} lists expired half-way"
    )
    rows = [
        Row(
            TOPIC,
            f"start: {notebooks} notebooks listed and looked at; plain: {way}, listed",
            "s",
            samples("ours", "seconds"),
            samples(way, "seconds"),
            AtMost(30, "s"),
            first,
        )
        for way in WAYS[1:]
    ]
    rows.append(
        Row(
            TOPIC,
            f"relist after a lost watch, {notebooks} notebooks; plain: dynamic",
            "s",
            samples("ours", "again_seconds"),
            samples("dynamic", "seconds"),
            AtMost(30, "s"),
            again,
            most("busiest") < 20 and most("again_busiest") < 20,
        )
    )
    rows += [
        Row(
            TOPIC,
            f"most memory, {notebooks} notebooks, whole controller; plain: {way}, client only",
            "MB",
            samples("ours", "again_peak"),
            samples(way, "peak"),
            AtMost(160 * MEGABYTE, "MB") if notebooks >= 2000 else Shown(),
        )
        for way in WAYS[1:]
    ]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relist", description=__doc__)
    parser.add_argument("--notebooks", type=int, default=NOTEBOOKS, help=f"how many (default {NOTEBOOKS})")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="processes for each way")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all samples there")
    options = parser.parse_args(arguments)
    cluster = Cluster.start(binaries(_say))
    try:
        began = time.monotonic()
        namespaces = make_namespaces(cluster, options.notebooks)
        # else its writes, 20 a second, go on for minutes and disturb what is measured
        cluster.controller_manager.stop()
        fill(cluster, namespaces, options.notebooks)
        _say(f"{options.notebooks} notebooks made in {time.monotonic() - began:.0f} s")
        rows = measure(cluster, options.notebooks, options.repetitions)
    finally:
        cluster.end()
    print(format_table(rows))
    if options.json:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
