"""`bitfusion health`: what it prints, and that it is true."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from bitfusion_client.command.client_reports import parse_health
from bitfusion_client.request.gpu_request import GpuRequest
from tests.pool.holders import somebody
from tests.pool.pool_client import COMMAND, PoolClient
from tests.support.machine import scaled
from tests.support.namespaces import with_own_mounts

HEALTHY = """\
Health report for server: 127.0.0.1:56001
=====

System Resources checks:
=====
[PASS    ] Check GPUs: 2 GPUs, 32320 MiB of memory
[INFO    ] GPUs simulated: 2 of 2, programs compute on the CPU
[INFO    ] Tasks running: 1
[INFO    ] Requests waiting: 0

Consistency checks:
=====
[PASS    ] Check GPU memory handed out: nowhere more than there is
[PASS    ] Check lock files: every lease has its own

PASS: 3
INFO: 3
SKIPPED: 0
MARGINAL: 0
FATAL: 0

Health report for localhost
=====

Software Versions checks:
=====
[PASS    ] Check Python version >= 3.10: """


def test_a_healthy_pool(client: PoolClient, everything_taken: subprocess.Popen[str]) -> None:
    done = client.do("health")
    assert done.returncode == 0
    assert done.stdout.startswith(HEALTHY)
    local = parse_health(done.stdout).sections[1]
    shown = [f"{check.tag} {check.text}" for check in local.checks]
    for line in (
        f"PASS Check pool folder: {client.folder}",
        "PASS Check file locks",
        "PASS Check named pipes",
        "PASS Check pool ledger: 1 leases, 0 waiting",
        "PASS Check pool configuration: none, the pool is the default one",
    ):
        assert line in shown
    assert any(line.startswith("PASS Check free space >= 16 MiB: ") for line in shown)
    assert any(" Check ulimit -n >= 4096: " in line for line in shown)
    assert any(" Check file system: " in line for line in shown)


def test_leases_that_no_longer_fit_and_lock_files_that_are_gone(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        client.configure("[[servers]]\n[[servers.devices]]\nmemory_mib = 1000\n")
        (client.folder / "locks" / entry.entry_id).unlink()
        done = client.do("health")
        ledger.release(entry.entry_id)
        lock.close()
    assert done.returncode == 1
    assert "[FATAL   ] Check GPU memory handed out: more than there is on GPU 0\n" in done.stdout
    assert "[MARGINAL] Check leases: GPU 1 is leased but no longer configured\n" in done.stdout
    assert (
        f"[MARGINAL] Check lock files: missing for {entry.entry_id}; see bitfusion-pool reap --force\n"
        in done.stdout
    )


def test_a_damaged_ledger_and_a_wrong_configuration_are_found(client: PoolClient) -> None:
    client.ledger().close()
    (client.folder / "ledger.db").write_bytes(b"damaged" * 1000)
    client.configure("nonsense = 1")
    done = client.do("health")
    why = (
        f"pool ledger {client.folder}/ledger.db is damaged: file is not a database. What to do: "
        f"end the programs that use the pool, then make a new one: "
        f"bitfusion-pool --dir {client.folder} init --force"
    )
    assert done.returncode == 1
    assert f"[FATAL   ] Check pool ledger: {why}\n" in done.stdout
    assert (
        f"[FATAL   ] Check pool configuration: pool configuration {client.folder}/pool.toml is wrong: "
        "unknown key 'nonsense'; known are servers, manners. What to do: correct it\n"
    ) in done.stdout
    assert done.stderr == f"Error: {why}\n"


def test_damage_inside_the_ledger_is_found(client: PoolClient) -> None:
    client.ledger().close()
    db = sqlite3.connect(client.folder / "ledger.db")
    db.execute("PRAGMA writable_schema=ON")
    db.execute("UPDATE sqlite_master SET rootpage=1 WHERE name='shares_by_entry'")
    db.commit()
    db.close()
    done = client.do("health")
    assert done.returncode == 1
    assert "[FATAL   ] Check pool ledger: pool ledger " in done.stdout


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nfs4", "[MARGINAL] Check file system: nfs4 is a network file system, which may lose locks"),
        ("ext4", "[PASS    ] Check file system: ext4"),
    ],
)
def test_a_network_file_system_is_pointed_out(
    client: PoolClient, tmp_path: Path, kind: str, said: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/homes {client.folder.parent} {kind} rw 0 0\n")
    in_its_place = f"mount --bind {mounts} /proc/$$/mounts && exec {COMMAND} health"
    done = subprocess.run(
        with_own_mounts(["sh", "-c", in_its_place]),
        env=client.environ,
        capture_output=True,
        text=True,
        timeout=scaled(20),
        check=False,
    )
    assert said in done.stdout.splitlines(), done
