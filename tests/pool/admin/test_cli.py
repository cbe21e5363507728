"""`bitfusion-pool`: status, init, simulate, reap."""

from __future__ import annotations

import grp
import json
import os
import subprocess

import pytest

from bitfusion_client.request import GpuRequest
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.text_table import bar, box
from tests.pool.pool_client import PoolClient, somebody

EMPTY = """\
GPU pool in {folder}, simulated GPUs

┌───────────────────────┬─────┬────────────────────────────────┬──────────────┬──────────┬────────┐
│ Server                │ GPU │ Name                           │ Memory       │ used MiB │ of MiB │
├───────────────────────┼─────┼────────────────────────────────┼──────────────┼──────────┼────────┤
│ local 127.0.0.1:56001 │   0 │ Simulated Tesla V100-PCIE-16GB │ ░░░░░░░░░░░░ │        0 │ 16,160 │
│ local 127.0.0.1:56001 │   1 │ Simulated Tesla V100-PCIE-16GB │ ░░░░░░░░░░░░ │        0 │ 16,160 │
└───────────────────────┴─────┴────────────────────────────────┴──────────────┴──────────┴────────┘

Nobody holds a GPU.
"""


def test_status_of_an_idle_pool(client: PoolClient) -> None:
    done = client.admin("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == EMPTY.format(folder=client.folder)


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
    assert "│ boss.ipynb │ 2 GPUs, partial 1 │ 127.0.0.1:56001 GPU 0 1 │" in text
    assert "│        1 │ tester │ train.py │ 1 GPUs, 5461 MiB │" in text
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
    assert "9m5" in client.admin("status").stdout
    client.do("release_gpus")


def test_a_lease_without_lock_file_is_pointed_out_and_can_be_ended(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
    lock.remove()
    assert client.admin("status").stdout.endswith(
        "\nThe lock files of these were deleted; nobody can tell whether they still run:\n"
        f"  {entry.entry_id}\n"
        "Once you know that they have ended: bitfusion-pool reap --force LEASE\n"
    )
    assert client.admin("reap", "--force", entry.entry_id).stdout == f"ended lease {entry.entry_id}\n"
    assert client.entries(HELD) == []
    again = client.admin("reap", "--force", entry.entry_id)
    assert (again.returncode, again.stderr) == (1, f"Error: there is no lease {entry.entry_id}\n")


def test_reap_takes_back_what_the_dead_left_and_tidies_the_folder(client: PoolClient) -> None:
    with client.ledger() as ledger:
        _, lock = ledger.submit(GpuRequest(2), somebody())
    lock.close()
    (client.folder / "locks" / "leftover").touch()
    os.mkfifo(client.folder / "bells" / "leftover")
    done = client.admin("reap")
    assert done.stdout == "released 1 leases and queue positions, removed 1 leftover lock files\n"
    assert os.listdir(client.folder / "locks") == os.listdir(client.folder / "bells") == []


def test_init_makes_a_pool_once(client: PoolClient) -> None:
    made = client.admin("init")
    assert (made.returncode, made.stdout) == (0, f"GPU pool in {client.folder}: 1 servers, 2 GPUs\n")
    again = client.admin("init")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        f"Error: there is a ledger already: {client.folder}/ledger.db; --force replaces it\n"
    )


def test_init_repairs_a_damaged_ledger(client: PoolClient) -> None:
    client.admin("init")
    (client.folder / "ledger.db").write_text("damaged")
    status = client.admin("status")
    assert (status.returncode, status.stderr) == (
        1,
        f"Error: pool ledger {client.folder}/ledger.db is unreadable: file is not a database\n",
    )
    assert client.admin("init", "--force").returncode == 0
    assert client.admin("status").stdout == EMPTY.format(folder=client.folder)


def test_init_does_not_forget_those_who_run(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    done = client.admin("init", "--force")
    assert done.returncode == 1
    assert done.stderr == "Error: 1 programs hold GPUs of this pool or wait for them; end them first\n"
    client.until_held()


def test_init_takes_a_configuration(client: PoolClient, tmp_path: object) -> None:
    file = f"{tmp_path}/mine.toml"
    with open(file, "w") as out:
        out.write("[[servers]]\n[[servers.devices]]\ncount = 5\n")
    assert (
        client.admin("init", "--config", file).stdout == f"GPU pool in {client.folder}: 1 servers, 5 GPUs\n"
    )
    with open(file, "w") as out:
        out.write("gpus = 5\n")
    done = client.admin("init", "--force", "--config", file)
    assert done.stderr == (
        f"Error: pool configuration {file} is wrong: unknown key 'gpus'; known are servers, manners\n"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to a group it is no member of")
def test_init_can_keep_the_pool_to_a_group(client: PoolClient) -> None:
    group = grp.getgrgid(1)
    assert client.admin("init", "--group", group.gr_name).returncode == 0
    for path in (client.folder, client.folder / "locks", client.folder / "bells"):
        assert (path.stat().st_mode & 0o7777, path.stat().st_gid) == (0o2770, 1)
    found = (client.folder / "ledger.db").stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, 1)
    done = client.admin("init", "--force", "--group", "nobody-knows-it")
    assert done.stderr == "Error: there is no group nobody-knows-it\n"


def test_simulate_replaces_the_devices_and_keeps_leases(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(1, 0.5), somebody())
        done = client.admin(
            "simulate", "--servers", "2", "--gpus", "3", "--memory", "15109", "--name", "Tesla T4"
        )
        assert done.returncode == 0
        assert done.stdout.count("Tesla T4 (simulated)") == 6
        assert "│ server2 127.0.0.2:56001 │" in done.stdout
        assert "│    8,080 │ 15,109 │" in done.stdout
        ledger.release(entry.entry_id)
        lock.close()
    wrong = client.admin("simulate", "--gpus", "300")
    assert wrong.stderr == "Error: servers[0]: a server has at most 256 devices\n"
    usage = client.admin("simulate", "--gpus", "none")
    assert usage.returncode == 2
    assert "must be a whole number, at least 1: 'none'" in usage.stderr


def test_another_pool_may_be_named(client: PoolClient, tmp_path: object) -> None:
    assert client.admin("--dir", f"{tmp_path}/other", "status").stdout.startswith(
        f"GPU pool in {tmp_path}/other"
    )


def test_a_table_is_as_wide_as_its_texts() -> None:
    assert box(("a", "b"), [("1", "22"), ("333", "4")], frozenset((1,))) == (
        "┌─────┬────┐\n│ a   │  b │\n├─────┼────┤\n│ 1   │ 22 │\n│ 333 │  4 │\n└─────┴────┘\n"
    )


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [(0, 10, "░░░░"), (1, 100, "█░░░"), (5, 10, "██░░"), (12, 10, "████"), (0, 0, "░░░░")],
)
def test_a_bar_shows_what_is_in_use(used: int, total: int, shown: str) -> None:
    assert bar(used, total, 4) == shown
