"""From a Notebook's creation until its pod runs, with the client and without, on a real node.

``python -m benchmarks.notebook_start [--pairs 12]``: a node of the test cluster has everything of this
project, installed from `manifests/`. Notebooks that ask for half a GPU and notebooks that ask for none are
made in turns, as Kubeflow's form makes them, one at a time, from an image that the node has. When a
container begins and ends is containerd's word. Needs root, and minutes when the images were never built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Samples, Shown, interleave
from benchmarks.table import format_table
from bitfusion_client.pod.pod_contract import INIT_CONTAINER
from tests.cluster.binaries import CONTROL_PLANE, NODE, binaries
from tests.cluster.installation import User, installed
from tests.cluster.node import Node, cluster_with_node, why_no_node
from tests.support.waiting import wait_until

TOPIC = "notebook_start"
PAIRS = 12
OURS, PLAIN = "with", "without"
LIMITS: Mapping[str, Mapping[str, str]] = {OURS: {"bitfusion.io/gpu-50": "1"}, PLAIN: {}}
LONGEST_S = 120

# 2026-11-23 16:00:00.123456789 +0000 UTC k8s.io /tasks/start {"container_id":"…","pid":7}
_event = re.compile(r"(\S+ \d\d:\d\d:\d\d)(\.\d+)? \+0000 UTC \S+ /tasks/(start|exit) (\{.*\})").match


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a notebook, in seconds since the Epoch; those of an init container are 0 where none is."""

    asked: float
    init_began: float
    init_ended: float
    began: float
    """The notebook's own container."""
    running: float
    """The API server has told that the pod runs."""


class ContainerTimes:
    """When the containers of a node began and ended, by their ids, as containerd tells while this is open."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def take(self, line: str) -> None:
        """One line of ``ctr events``; others than of containers' own processes are passed over."""
        found = _event(line)
        if found is None:
            return
        told = json.loads(found[4])
        container = told.get("container_id", "")
        if told.get("id", container) != container:
            return  # a command within it, `kubectl exec`
        second = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
        times = self.began if found[3] == "start" else self.ended
        times[container] = second.timestamp() + float(found[2] or 0)

    @classmethod
    @contextmanager
    def of(cls, node: Node) -> Iterator[ContainerTimes]:
        """Of this node from now on."""
        times = cls()
        with subprocess.Popen([*node.ctr_command, "events"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            reader = threading.Thread(target=lambda lines: [*map(times.take, lines)], args=[process.stdout])
            reader.start()
            try:
                yield times
            finally:
                process.terminate()
                reader.join()


def start(user: User, times: ContainerTimes, name: str, limits: Mapping[str, str]) -> Start:
    """Create a Notebook, wait until its pod runs, and delete it."""
    path = f"/api/v1/namespaces/{user.namespace}/pods"
    query = {"fieldSelector": f"metadata.name={name}-0", "timeoutSeconds": LONGEST_S}
    with user.cluster.client.watch(path, **query) as watch:
        asked = time.time()
        notebook = user.notebook(name, limits)
        running, pod = _running(watch)
    try:
        init, own = (_ids(pod, field) for field in ("initContainerStatuses", "containerStatuses"))
        known = [*own.values(), *init.values()]
        wait_until(lambda: times.began.keys() >= {*known}, "containerd's word on each container", 30)
        ours = init.get(INIT_CONTAINER)
        return Start(
            asked,
            times.began[ours] if ours else 0,
            times.ended[ours] if ours else 0,
            times.began[own[name]],
            running,
        )
    finally:
        notebook.delete()


def measure(node: Node, user: User, pairs: int) -> list[Row]:
    """All rows: so many notebooks with the client, and as many without, in turns."""
    seen: dict[str, list[Start]] = {OURS: [], PLAIN: []}

    def once(kind: str) -> float:
        found = start(user, times, f"{kind}-{len(seen[kind])}", LIMITS[kind])
        seen[kind].append(found)
        return found.running - found.asked

    with ContainerTimes.of(node) as times:
        for kind in seen:  # the first ones read the images from the disk
            start(user, times, f"first-{kind}", LIMITS[kind])
        interleave({kind: kind for kind in seen}, pairs, once)
    return rows_of(seen[OURS], seen[PLAIN])


def rows_of(ours: Sequence[Start], plain: Sequence[Start]) -> list[Row]:
    """The table of what was seen."""

    def samples(starts: Sequence[Start], begin: str, end: str) -> Samples:
        return Samples(tuple(getattr(each, end) - getattr(each, begin) for each in starts))

    def row(what: str, begin: str, end: str, note: str = "", *, compared: bool = True) -> Row:
        beside = samples(plain, begin, end) if compared else None
        return Row(TOPIC, what, "s", samples(ours, begin, end), beside, Shown(), note)

    running = row("Notebook created -> its pod is Running", "asked", "running")
    assert running.ours is not None
    assert running.plain is not None
    more = f"{running.ours.value - running.plain.value:+.2f} s with the client"
    return [
        row("Notebook created -> its pod is Running", "asked", "running", more),
        row("Notebook created -> its own container has begun", "asked", "began"),
        row("of these: until the init container has begun", "asked", "init_began", compared=False),
        row("of these: the init container itself", "init_began", "init_ended", compared=False),
        row(
            "of these: from its end until the own container has begun",
            "init_ended",
            "began",
            "the kubelet looks once a second whether a container has ended",
            compared=False,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notebook_start", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"notebooks of each kind (default {PAIRS})")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all samples there")
    options = parser.parse_args(arguments)
    reason = why_no_node()
    if reason is not None:
        _say(reason)
        return 1
    with (
        cluster_with_node(binaries(_say, CONTROL_PLANE), binaries(_say, NODE)) as node,
        installed(node, _say) as installation,
        installation.user() as user,
    ):
        before = os.getloadavg()[0]
        rows = measure(node, user, options.pairs)
    print(format_table(rows))
    print(f"medians of n, taken in turns; load {before:.2f} before, {os.getloadavg()[0]:.2f} at the end")
    if options.json:
        options.json.write_text(json.dumps([each.to_json() for each in rows], indent=1) + "\n")
    return 0


def _running(watch: Iterator[Mapping[str, Any]] | Any) -> tuple[float, Mapping[str, Any]]:
    """When the pod was told to run, and the pod."""
    for event in watch:
        if event["object"].get("status", {}).get("phase") == "Running":
            return time.time(), event["object"]
    raise RuntimeError(f"no pod was told to run within {LONGEST_S} s")


def _ids(pod: Mapping[str, Any], field: str) -> dict[str, str]:
    """Containerd's ids of the containers by their names."""
    statuses = pod["status"].get(field, [])
    return {each["name"]: each["containerID"].rpartition("/")[2] for each in statuses}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
