"""`bitfusion-pool status`: tables and JSON."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.kernel_state.states import STATES
from bitfusion_client.request.gpu_request import GpuRequest
from tests.pool.admin.expected import EMPTY_STATUS
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "pool-commands.md"


def test_status_shows_who_holds_and_who_waits(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(1, memory_mib=5461), somebody("train.py"))
        text = client.admin("status").stdout
        data = json.loads(client.admin("status", "--json").stdout)
        ledger.release(entry.entry_id)
        lock.close()
    assert "│ ████████████ │    16160 │  16160 │" in text
    assert "│ boss.ipynb │ 2 GPUs  │ 127.0.0.1:56001 GPU 0 1 │" in text
    assert "│        1 │ tester │ train.py │ 1 GPU × 5461 MiB │" in text
    assert data["folder"] == str(client.folder)
    assert data["simulated"] is True
    assert data["servers"] == [
        {
            "name": "server0",
            "address": "127.0.0.1:56001",
            "tasks": 1,
            "devices": [
                {
                    "id": number,
                    "name": "Simulated Tesla V100-PCIE-16GB",
                    "memory_mib": 16160,
                    "free_mib": 0,
                    "simulated": True,
                }
                for number in (0, 1)
            ],
        }
    ]
    (lease,) = data["leases"]
    assert (lease["label"], lease["kind"], lease["expires"]) == ("boss.ipynb", "process", None)
    assert lease["request"] == {"gpus": 2}
    assert lease["devices"] == [
        {"server": "127.0.0.1:56001", "id": number, "memory_mib": 16160} for number in (0, 1)
    ]
    assert lease["pid"] == everything_taken.pid
    (waiting,) = data["waiting"]
    assert (waiting["position"], waiting["user"], waiting["label"]) == (1, "tester", "train.py")
    assert waiting["request"] == {"gpus": 1, "memory_mib": 5461}


def test_every_field_for_programs_is_documented_and_no_other(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    with client.ledger() as ledger:
        (entry,) = ledger.entries()
        ledger.note_activity(entry.entry_id, KernelActivity("idle", 5.0, 4.0, "x.ipynb"))
    data = json.loads(client.admin("status", "--json").stdout)
    page = DOCS.read_text(encoding="utf-8").split("| field | |")[1]
    of_all, of_one = page.split("| field of a lease or request | |")
    assert _named(of_all) == set(data)
    assert _named(of_one.split("\n## ")[0]) == set(data["leases"][0])
    (row,) = (line for line in of_one.splitlines() if line.startswith("| `kernel`"))
    shown = data["leases"][0]["kernel"]
    assert {*shown, *STATES} == set(re.findall("`(\\w+)`", row)) - {"kernel"}
    assert shown["idle_seconds"] > shown["seconds"] > 0


def _named(table: str) -> set[str]:
    """What the first column names."""
    rows = (line for line in table.splitlines() if line.startswith("| `"))
    return {name for row in rows for name in re.findall("`(\\w+)`", row.split(" | ")[0])}


def test_status_shows_until_when_a_reservation_lives(client: PoolClient) -> None:
    client.do("request_gpus", "1")
    assert re.search(r"\b9 min \d\d s unused\b", client.admin("status").stdout)
    client.do("release_gpus")


def test_status_of_an_idle_pool(client: PoolClient) -> None:
    done = client.admin("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(EMPTY_STATUS.format(folder=client.folder))
