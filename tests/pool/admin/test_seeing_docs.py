"""docs/how-to/see-who-holds-what.md: its commands are run, and what it shows is what they print."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_device_plugin.queue.words import waits
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, REMOTE, Holder
from bitfusion_pool.ledger.ledger import Ledger
from tests.bitfusion_device_plugin.units_report.raw import gated, node, pod, queue_pod, quota
from tests.pool.pool_client import PoolClient
from tests.support.machine import scaled
from tests.support.run_blocks import ran

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "see-who-holds-what.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"min \d\d s")  # they pass
WHY = waits(100, 150, 200, 1, 1).message
ITEMS = [
    node("node-1"),
    node("node-2"),
    queue_pod(name="bitfusion-queue-6d5c7b9f4-x2x7k"),
    quota("team-vision", used="150", hard="200"),
    pod("mnist-0", "team-vision", 50, "mnist", "node-1"),
    gated("resnet-0", WHY, namespace="team-vision", units=100),
    pod("whisper-0", "team-speech", 100, "whisper", "node-2"),
]


def section(title: str) -> list[tuple[str, str]]:
    """The blocks of a section: their language and text."""
    body = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return BLOCK.findall(body)


@pytest.fixture
def commands(tmp_path: Path, client: PoolClient) -> dict[str, str]:
    """An environment with `kubectl`, which answers and runs what is to run in a pod, and `bitfusion-pool`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    answer = tmp_path / "objects.json"
    answer.write_text(json.dumps({"kind": "List", "items": ITEMS}))
    files = {
        "kubectl": f'case "$*" in *" exec "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@";; esac\n'
        f"exec cat {answer}",
        "bitfusion-pool": f'exec {sys.executable} -m bitfusion_pool.admin.cli "$@"',
    }
    for name, script in files.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {**client.environ, "PATH": f"{folder}:{client.environ['PATH']}"}


@pytest.fixture
def held(client: PoolClient, ledger: Ledger) -> None:
    """What the page shows: team-vision/mnist has half a GPU, a notebook that is gone a whole one."""

    def take(namespace: str, notebook: str, request: GpuRequest, number: int) -> None:
        host = f"{namespace}/{notebook}"
        uid = FIRST_TOKEN_NAME - number
        holder = Holder(f"{host}: train.ipynb", f"cluster/{namespace}", 7, host, uid)
        entry, _ = ledger.submit(request, holder, kind=REMOTE)
        if notebook == "mnist":
            now = time.time()
            ledger.note_activity(entry.entry_id, KernelActivity("idle", now, now - 12 * 60 - 5))

    take("team-vision", "mnist", GpuRequest(1, 0.5), 0)
    take("team-vision", "gone", GpuRequest(1), 0)
    take("team-speech", "whisper", GpuRequest(1), 1)
    with closing(sqlite3.connect(client.folder / "ledger.db", isolation_level=None)) as db:
        db.execute("UPDATE entries SET granted = ? WHERE granted > 0", (time.time() - 41 * 60 - 5,))


@pytest.mark.runs("docs/how-to/see-who-holds-what.md")
@pytest.mark.usefixtures("held")
def test_the_table_is_what_its_commands_print(commands: dict[str, str]) -> None:
    (_, of_kubectl), (_, shown), (_, in_the_pod) = section("A table")
    for command in (of_kubectl, in_the_pod):
        ran(command)
        done = subprocess.run(
            ["sh", "-euc", command],
            env=commands,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(30),
        )
        assert (done.stderr, done.returncode) == ("", 0)
        assert SECONDS.sub("min ", done.stdout) == SECONDS.sub("min ", shown)
