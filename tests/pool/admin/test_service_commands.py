"""`bitfusion-pool` where the pool is a service's: the same one as that of `bitfusion`; what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.version import PACKAGE, VERSION
from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.snapshot import take_snapshot
from bitfusion_pool.messages.from_service import Granted
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient, finish
from tests.pool.service.conftest import base, service
from tests.pool.service.running_service import RunningService

__all__ = ["base", "service"]

BOTH = GpuRequest(2)


@pytest.fixture
def user(client: PoolClient, service: RunningService) -> PoolClient:
    """Whose commands use the service."""
    del client.environ["BITFUSION_POOL_DIR"]
    client.environ["BITFUSION_POOL"] = service.socket
    return client


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    return done.stderr.removeprefix("Error: ").rstrip("\n")


def test_status_is_that_of_the_service(user: PoolClient, service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH, "digits.ipynb")
        place = waiter.wait(GpuRequest(1, 0.5), "train.py")
        text = user.admin("status").stdout
        data = json.loads(user.admin("status", "--json").stdout)
    assert text.startswith(
        f"GPU pool of the service at {service.socket}, {PACKAGE} {VERSION}, simulated GPUs\n"
    )
    assert "│ digits.ipynb │ 2 GPUs  │ 127.0.0.1:56001 GPU 0 1 │" in text
    assert "│ train.py │ 1 GPU × 50 % │" in text
    assert f"│ {place.entry} │" in text
    assert (data["folder"], data["of_service"], data["left_out"]) == (service.socket, True, 0)
    assert data["software"] == VERSION
    assert [lease["label"] for lease in data["leases"]] == ["digits.ipynb"]
    assert [(one["id"], one["position"]) for one in data["waiting"]] == [(place.entry, 1)]
    assert "BITFUSION_POOL_DIR" not in user.environ
    assert not user.folder.exists()  # nothing of an own pool was made


def test_a_folder_that_is_named_is_shown_whatever_the_environment_says(
    user: PoolClient, service: RunningService
) -> None:
    done = user.admin("--dir", str(service.folder), "status")
    assert done.stdout.startswith(f"GPU pool in {service.folder}, simulated GPUs\n")


def test_end_ends_what_waits_and_tells_the_client_of_what_is_held(
    user: PoolClient, service: RunningService
) -> None:
    with service.client() as holder, service.client() as waiter, service.client() as next_one:
        granted = holder.acquire(BOTH)
        place = waiter.wait(BOTH)
        next_one.wait(BOTH)
        assert user.admin("end", place.entry).stdout == f"ended {place.entry}\n"
        lease = granted.entry.entry_id
        done = user.admin("end", lease)
        assert done.stdout == (
            f"{lease} ends: its client has been told, and its GPUs are free as soon as no process uses them "
            "any more\n"
        )
        assert [entry.state for entry in service.entries()] == [HELD, WAITING]
        holder.drop_locks()
        next_one.expect(Granted)


def test_end_and_reap_are_answered_in_words(user: PoolClient, service: RunningService) -> None:
    nothing = "there is no lease or request nothing. What to do: `bitfusion-pool status` shows them"
    assert refused(user.admin("end", "nothing")) == nothing
    assert refused(user.admin("reap", "--force", "nothing")) == nothing
    assert refused(user.admin("end", "x" * 5000)).startswith("there is no lease or request xxx")
    assert refused(user.admin("end", "\x1b[31m")).startswith(r"there is no lease or request \x1b[31m")
    done = user.admin("reap")
    assert (done.returncode, done.stdout) == (
        0,
        f"nothing to do: the service at {service.socket} releases what dead programs left by itself, within "
        "a second; `bitfusion-pool end ID` ends a lease or a request\n",
    )


def test_an_own_pool_is_not_set_up_where_commands_use_a_service(
    user: PoolClient, service: RunningService, tmp_path: Path
) -> None:
    words = (
        f"your commands use the pool of the service at {service.socket} (BITFUSION_POOL names its socket), "
        "which its administrator sets up. What to do: for your own pool set BITFUSION_POOL=own; as the "
        "service's account name its folder: --dir FOLDER"
    )
    for command in (("init",), ("init", "--force"), ("simulate", "--gpus", "3")):
        assert refused(user.admin(*command)) == words
    assert not user.folder.exists()
    assert not list(tmp_path.rglob("pool.toml"))
    user.environ |= {"BITFUSION_POOL": "own", "BITFUSION_POOL_DIR": str(user.folder)}
    assert user.admin("init").returncode == 0


def test_init_is_refused_while_a_service_has_the_folder_and_simulate_is_followed(
    user: PoolClient, service: RunningService
) -> None:
    folder = str(service.folder)
    words = (
        f"a service runs with the pool in {folder}. What to do: end it first: systemctl stop bitfusion-pool; "
        "`simulate` and changes of pool.toml need no end"
    )
    assert refused(user.admin("--dir", folder, "init", "--force")) == words
    with service.client() as client, service.client() as waiter:
        client.acquire(BOTH)
        waiter.wait(GpuRequest(1))
        assert user.admin("--dir", folder, "simulate", "--gpus", "3").returncode == 0
        waiter.expect(Granted)
        assert '"id": 2' in user.admin("status", "--json").stdout
    service.end(signal.SIGTERM)
    assert user.admin("--dir", folder, "init", "--force").returncode == 0


def test_a_service_that_is_away_is_an_error_of_every_command(
    user: PoolClient, service: RunningService
) -> None:
    service.end()
    for command in (("status",), ("end", "x"), ("reap",), ("reap", "--force", "x")):
        assert refused(user.admin(*command)).startswith(f"pool service at {service.socket} does not run: ")


def test_end_in_ones_own_pool_ends_what_no_program_uses(client: PoolClient) -> None:
    holder = client.start("run", "-n", "2", "--", "sleep", "600")
    client.until_held()
    (held,) = client.entries(HELD)
    waiter = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    (waiting,) = client.entries(WAITING)
    assert client.admin("end", waiting.entry_id).stdout == f"ended {waiting.entry_id}\n"
    _, err = finish(waiter)
    assert "somebody ended this request while it waited" in err
    assert refused(client.admin("end", held.entry_id)) == (
        f"a program uses {held.entry_id}: sleep 600, process {holder.pid}. "
        "What to do: end that program; its GPUs are free then"
    )
    os.killpg(holder.pid, signal.SIGTERM)
    finish(holder)
    client.do("request_gpus", "-n", "1")
    (reserved,) = client.entries(HELD)
    assert client.admin("end", reserved.entry_id).stdout == f"ended {reserved.entry_id}\n"
    with client.ledger() as ledger:
        entry, lock = ledger.submit(BOTH, somebody())
        lock.remove()
        assert take_snapshot(ledger).without_lock_file == (entry.entry_id,)
        assert client.admin("end", entry.entry_id).returncode == 0
