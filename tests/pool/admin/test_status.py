"""`bitfusion-pool status`: tables and JSON."""

from __future__ import annotations

import json
import re
import subprocess

from bitfusion_client.request.gpu_request import GpuRequest
from tests.pool.admin.expected import EMPTY_STATUS
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def test_status_shows_who_holds_and_who_waits(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(1, memory_mib=5461), somebody("train.py"))
        text = client.admin("status").stdout
        data = json.loads(client.admin("status", "--json").stdout)
        ledger.release(entry.entry_id)
        lock.close()
    assert "│ ████████████ │   16,160 │ 16,160 │" in text
    assert "│ boss.ipynb │ 2 GPUs  │ 127.0.0.1:56001 GPU 0 1 │" in text
    assert "│        1 │ tester │ train.py │ 1 GPU × 5461 MiB │" in text
    assert data["folder"] == str(client.folder)
    assert data["simulated"] is True
    assert data["servers"] == [
        {
            "name": "local",
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
    assert (waiting["place"], waiting["user"], waiting["label"]) == (1, "tester", "train.py")
    assert waiting["request"] == {"gpus": 1, "memory_mib": 5461}


def test_status_shows_until_when_a_reservation_lives(client: PoolClient) -> None:
    client.do("request_gpus", "1")
    assert re.search(r"\b9m\d+s unused\b", client.admin("status").stdout)
    client.do("release_gpus")


def test_status_of_an_idle_pool(client: PoolClient) -> None:
    done = client.admin("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(EMPTY_STATUS.format(folder=client.folder))
