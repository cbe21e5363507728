"""`bitfusion-pool init` and `simulate`."""

from __future__ import annotations

import os
import subprocess

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, REMOTE
from tests.pool.admin.expected import EMPTY_STATUS
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def test_init_makes_a_pool_once(client: PoolClient) -> None:
    made = client.admin("init")
    assert (made.returncode, made.stdout) == (0, f"GPU pool in {client.folder}: 1 servers, 2 GPUs\n")
    again = client.admin("init")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        f"Error: a ledger already exists: {client.folder}/ledger.db; --force replaces it\n"
    )


def test_init_repairs_a_damaged_ledger(client: PoolClient) -> None:
    client.admin("init")
    (client.folder / "ledger.db").write_text("damaged")
    status = client.admin("status")
    assert (status.returncode, status.stderr) == (
        1,
        f"Error: pool ledger {client.folder}/ledger.db is damaged: file is not a database. What to do: "
        "end the programs that use the pool, then make a new one: "
        f"bitfusion-pool --dir {client.folder} init --force\n",
    )
    assert client.admin("init", "--force").returncode == 0
    assert client.admin("status").stdout.startswith(EMPTY_STATUS.format(folder=client.folder))


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
        f"Error: pool configuration {file} is wrong: unknown key 'gpus'; known are servers, manners. "
        "What to do: correct it\n"
    )


def test_init_names_the_reservations_that_a_new_ledger_would_forget(client: PoolClient) -> None:
    client.do("request_gpus", "1")
    (entry,) = client.entries(HELD)
    done = client.admin("init", "--force")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: request_gpus keeps GPUs of this pool: {entry.entry_id}; "
        f"end each with bitfusion-pool --dir {client.folder} reap --force LEASE\n"
    )
    assert client.entries(HELD) == [entry]
    assert client.admin("--dir", str(client.folder), "reap", "--force", entry.entry_id).returncode == 0
    assert client.admin("init", "--force").returncode == 0


def test_init_names_the_leases_of_clients_on_other_machines(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, _ = ledger.submit(GpuRequest(1), somebody(), kind=REMOTE)
    done = client.admin("init", "--force")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: clients on other machines hold GPUs of this pool or wait for them: {entry.entry_id}; "
        f"end each with bitfusion-pool --dir {client.folder} reap --force LEASE\n"
    )
    assert client.admin("--dir", str(client.folder), "reap", "--force", entry.entry_id).returncode == 0
    assert client.admin("init", "--force").returncode == 0


def test_init_does_not_mind_a_reservation_that_is_over(client: PoolClient) -> None:
    client.do("request_gpus", "1", env={"BITFUSION_POOL_MANNERS": "auto_release=0"})
    assert client.admin("init", "--force").returncode == 0
    assert client.do("client", "--", "true").stderr.splitlines()[-1].endswith("not used for too long")


def test_only_the_user_may_enter_the_pool(client: PoolClient) -> None:
    before = os.umask(0)
    try:
        client.admin("simulate")
        client.do("request_gpus", "1")
    finally:
        os.umask(before)
    for path in (client.folder, client.folder / "locks", client.folder / "bells"):
        assert path.stat().st_mode & 0o7777 == 0o700
    for path in (client.folder / "ledger.db", client.folder / "pool.toml", *client.folder.glob("locks/*")):
        assert path.stat().st_mode & 0o7777 == 0o600
    client.do("release_gpus")


def test_simulate_replaces_the_devices_and_keeps_leases(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(1, 0.5), somebody())
        done = client.admin(
            "simulate", "--servers", "2", "--gpus", "3", "--memory", "15109", "--name", "Tesla T4"
        )
        assert done.returncode == 0
        assert done.stdout.count("Tesla T4 (simulated)") == 6
        assert "│ 127.0.0.2:56001 │" in done.stdout
        assert "│     8080 │  15109 │" in done.stdout
        ledger.release(entry.entry_id)
        lock.close()
    wrong = client.admin("simulate", "--gpus", "300")
    assert wrong.stderr == "Error: servers[0]: a server has at most 256 devices\n"
    usage = client.admin("simulate", "--gpus", "none")
    assert usage.returncode == 2
    assert "must be a whole number, at least 1: 'none'" in usage.stderr
