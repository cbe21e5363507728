"""`bitfusion-pool init` and `simulate`."""

from __future__ import annotations

import grp
import os
import subprocess

import pytest

from bitfusion_client.request import GpuRequest
from tests.pool.admin.expected import EMPTY_STATUS
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


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
    assert client.admin("status").stdout == EMPTY_STATUS.format(folder=client.folder)


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
