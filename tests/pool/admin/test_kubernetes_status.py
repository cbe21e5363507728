"""`bitfusion-pool status --kubernetes` as it is typed: which pool, files, options, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_pool.admin.kubernetes_status import REPORT
from tests.bitfusion_device_plugin.units_report.raw import node, pod, queue_pod, quota
from tests.pool.pool_client import PoolClient
from tests.support.machine import scaled

ROOT = Path(__file__).resolve().parents[3]
LIST = json.dumps({"kind": "List", "items": [node(), queue_pod(), quota(), pod()]})


def status(environ: dict[str, str], *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bitfusion_pool.admin.cli", "status", "--kubernetes", *words],
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=scaled(30),
    )


@pytest.fixture
def nobodys(tmp_path: Path, client: PoolClient) -> dict[str, str]:
    """The environment of somebody who has named no pool."""
    environ = {**client.environ, "HOME": str(tmp_path)}
    del environ["BITFUSION_POOL_DIR"]
    return environ


def test_from_standard_input_beside_the_pool_of_the_folder(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    done = status(client.environ, "-", stdin=LIST)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "Units of the pool: 200, 50 taken by pods, 150 free\n"
        "Protected against overselling by the queue, kubeflow/bitfusion-queue-7d9f\n"
    )
    assert "a user of the pool's own machine" in done.stdout
    assert re.search(r"│   200 │ \d+ s │      │      1 │", done.stdout)


def test_kubectl_is_asked_and_answers_for_programs(nobodys: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat <<'EOF'\n{LIST}\nEOF\n")
    (tmp_path / "kubectl").chmod(0o755)
    nobodys["PATH"] = f"{tmp_path}:{nobodys['PATH']}"
    done = status(nobodys, "--json", "--context", "c", "--kubeconfig", "k")
    data = json.loads(done.stdout)
    assert (done.returncode, data["taken"], data["pods"][0]["pool"]) == (0, 50, None)
    assert data["no_pool"].startswith("only your own pool is named here, and no pod uses it")
    assert not (tmp_path / ".local").exists()  # no pool was made for it


def test_a_pool_that_is_away_is_a_line_of_the_report(nobodys: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(LIST)
    nobodys["BITFUSION_POOL"] = "/nowhere/socket"
    done = status(nobodys, str(file))
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith("The pool itself was not asked who holds what: ")
    assert "/nowhere" in last
    assert RESOURCE_UNITS not in done.stdout


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (
            ("-",),
            "",
            "Error: kubectl's output is empty. What to do: pass the output of: kubectl get "
            "nodes,pods,resourcequotas --all-namespaces -o json\n",
        ),
        (
            ("-", "--context", "c"),
            LIST,
            "Error: --context and --kubeconfig are for kubectl, which is not asked when a file is read\n",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    nobodys: dict[str, str], words: tuple[str, ...], stdin: str, said: str
) -> None:
    done = status(nobodys, *words, stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.parametrize("content", ["", "[1]", "{}"])
def test_the_report_by_itself_wants_what_the_pool_says(tmp_path: Path, content: str) -> None:
    file = tmp_path / "status.json"
    file.write_text(content)
    done = subprocess.run(
        [sys.executable, ROOT / REPORT, "--pool", file], capture_output=True, text=True, timeout=scaled(30)
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {file} cannot be read: ")


def test_options_of_kubectl_without_it_are_refused(client: PoolClient) -> None:
    done = client.admin("status", "--context", "c")
    assert (done.returncode, done.stderr) == (
        1,
        "Error: --context and --kubeconfig belong to status --kubernetes\n",
    )
