"""What a kernel says in its state file, seen at the pool: in one's own, through a socket, and over TLS."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import prepare_folder, read_authority, write_client_files
from bitfusion_pool.ledger.storage.database import BUSY_S
from tests.pool import pool_client
from tests.pool.client.network_user import network_user
from tests.pool.pool_client import COMMAND, PoolClient, finish, until_told_to_wait
from tests.pool.service.running_service import RunningService
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.files import replace_text
from tests.support.waiting import wait_until

LIMIT_S = 15.0
SLEEPER = "sh", "-c", "echo begun; exec sleep 600"
OWN, SOCKET, TLS = "own", "socket", "tls"
OLD_SERVICE = """
import sys
from bitfusion_pool.messages import from_client
known = [one for one in from_client.MESSAGES if one is not from_client.Report]
from_client._LINES = from_client.lines_of(tuple(known))
from bitfusion_pool.admin.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A service of the version before this message, as far as its clients see."""


class OldService(RunningService):
    def command(self) -> list[str]:
        words = super().command()
        return [sys.executable, "-c", OLD_SERVICE, *words[3:]]


class Seen:
    """A notebook's kernel, as far as its state file goes, and what the pool shows of it."""

    def __init__(self, user: PoolClient, base: Path) -> None:
        self.user = user
        self.path = base / "kernel.json"
        self.env = {"BITFUSION_KERNEL_STATE": str(self.path), "BITFUSION_LABEL": "digits.ipynb"}

    def says(self, state: str, seconds: float = 5.0, notebook: str = "digits.ipynb") -> None:
        """The kernel is in this state for so long; computing nothing, if it is idle."""
        since = time.time() - seconds
        idle = since if state == "idle" else None
        said = {"version": 1, "state": state, "since": since, "idle_since": idle, "notebook": notebook}
        replace_text(self.path, json.dumps({**said, "of a later version": []}))

    def holder(self, gpus: str = "1") -> subprocess.Popen[str]:
        """A command that holds so many GPUs until it is killed; it does now."""
        process = self.user.start("run", "-n", gpus, "--", *SLEEPER, env=self.env)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def kernel(self, of: str = "leases") -> dict[str, Any] | None:
        """That of the one lease, or of the one that waits."""
        (entry,) = json.loads(self.user.admin("status", "--json").stdout)[of]
        found: dict[str, Any] | None = entry["kernel"]
        return found

    def until(self, state: str | None, of: str = "leases") -> None:
        def look() -> bool:
            kernel = self.kernel(of)
            return state == (None if kernel is None else kernel["state"])

        wait_until(look, lambda: f"{state}; it is {self.kernel(of)}", LIMIT_S)


@pytest.fixture(params=[OWN, SOCKET, TLS])
def seen(request: pytest.FixtureRequest, client: PoolClient, base: Path) -> Iterator[Seen]:
    with ExitStack() as stack:
        if request.param == SOCKET:
            service = RunningService(base)
            stack.callback(service.end)
            client.environ["BITFUSION_POOL"] = service.start().socket
        elif request.param == TLS:
            far = NetworkService(base)
            stack.callback(far.end)
            far.start()
            stack.callback(far.until_entries, 0)  # else a keeper goes on to tell it of the end
            folder = prepare_folder(f"{network_user(client).environ['HOME']}/.bitfusion", False)
            server = Address(HOST, far.port)
            write_client_files(folder, [server], far.token("ada"), read_authority(far.authority))
        yield Seen(client, base)


@pytest.mark.parametrize(
    "seen",
    # what comes through a socket is also seen below
    [OWN, pytest.param(SOCKET, marks=pytest.mark.long), TLS],
    indirect=True,
)
def test_the_row_of_a_holder_follows_what_its_kernel_does(seen: Seen) -> None:
    said_at = time.time()
    seen.says("idle", 725.0, "renamed\x1b[2J.ipynb")
    holder = seen.holder()
    seen.until("idle")
    kernel = seen.kernel()
    assert kernel is not None
    passed_s = time.time() - said_at
    assert 724 <= kernel["idle_seconds"] <= 726 + passed_s
    assert -1 <= kernel["idle_since"] - (said_at - 725) <= 1 + passed_s
    assert kernel["notebook"] == "renamed\\x1b[2J.ipynb"
    text = seen.user.admin("status").stdout
    shown = r"│ digits.ipynb: renamed\\x1b\[2J.ipynb │ .* │ idle 12 min \d\d s │ it ends"
    assert re.search(shown, text), text
    seen.says("running")
    seen.until("running")
    assert "│ digits.ipynb │ 1 GPU" in seen.user.admin("status").stdout
    seen.path.unlink()
    seen.until(None)
    os.killpg(holder.pid, 9)
    finish(holder)


def test_a_request_that_waits_says_so_too(seen: Seen) -> None:
    env, seen.env = seen.env, {}
    holder = seen.holder("2")
    seen.says("waiting", notebook="later.ipynb")
    waiter = seen.user.start("run", "-n", "1", "--", "true", env=env)
    until_told_to_wait(waiter)
    seen.until("waiting", "waiting")
    assert "│ digits.ipynb: later.ipynb │" in seen.user.admin("status").stdout
    assert seen.kernel() is None  # nobody says anything of the other
    for process in (waiter, holder):
        os.killpg(process.pid, 9)
        finish(process)


def test_a_command_whose_package_goes_while_its_program_runs_goes_on(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen.says("running")
    command, site = Path(COMMAND), tmp_path / "site"
    for name in ("bitfusion_client", "bitfusion_pool"):
        shutil.copytree(command.parents[2] / name, site / name)
    monkeypatch.setattr(pool_client, "COMMAND", str(site / command.relative_to(command.parents[2])))
    program = f"sleep 0.5; rm -r '{site}'; sleep 3.5; exit 4"
    done = seen.user.do("run", "-n", "1", "--", "sh", "-c", program, env=seen.env)
    assert (done.returncode, "Error" in done.stderr) == (4, False), done.stderr
    assert "Released GPUs on 1 servers" in done.stderr


@pytest.mark.parametrize("seen", [SOCKET, TLS], indirect=True)
def test_nothing_is_said_of_a_kernel_that_nobody_asks_about(seen: Seen) -> None:
    """As with a client of the version before, which has no word for it."""
    seen.env = {}
    holder = seen.holder()
    assert seen.kernel() is None
    assert "Kernel" not in seen.user.admin("status").stdout
    os.killpg(holder.pid, 9)
    finish(holder)


@pytest.mark.parametrize("seen", [OWN], indirect=True)
@pytest.mark.parametrize("level", ["debug", "info"])
def test_a_service_that_is_to_tell_much_logs_it(seen: Seen, base: Path, level: str) -> None:
    service = RunningService(base, "--log-level", level)
    seen.user.environ["BITFUSION_POOL"] = service.start().socket
    said_at = time.time()
    try:
        seen.says("idle", 60.0)
        holder = seen.holder()
        seen.until("idle")
        os.killpg(holder.pid, 9)
        finish(holder)
        service.until_entries(0)
        said = [line for line in service.log if line["message"] == "kernel said what it does"]
    finally:
        service.end()
    if level == "info":
        assert said == []
    else:
        assert {"state": "idle", "notebook": "digits.ipynb", "level": "debug"}.items() <= said[0].items()
        idle_s = said[0]["idle_s"]
        assert isinstance(idle_s, float)
        assert 59 <= idle_s <= 61 + time.time() - said_at


@pytest.mark.parametrize("seen", [OWN], indirect=True)
def test_a_service_of_the_version_before_passes_over_it(seen: Seen, base: Path) -> None:
    service = OldService(base)
    seen.user.environ["BITFUSION_POOL"] = service.start().socket
    try:
        seen.says("running")
        done = seen.user.do("run", "-n", "1", "--", "sh", "-c", "sleep 2.5; exit 4", env=seen.env)
        assert done.returncode == 4
        assert "Released GPUs on 1 servers" in done.stderr
        assert service.entries() == []
    finally:
        service.end()


@pytest.mark.parametrize("seen", [OWN], indirect=True)
def test_a_service_that_was_started_anew_hears_what_comes_after(seen: Seen, base: Path) -> None:
    service = RunningService(base)
    seen.user.environ["BITFUSION_POOL"] = service.start().socket
    try:
        seen.says("running")
        holder = seen.holder()
        seen.until("running")
        service.end()
        service.start()
        seen.until("running")
        for state in ("idle", "running"):
            seen.says(state)
            seen.until(state)
        os.killpg(holder.pid, 9)
        finish(holder)
        service.until_entries(0)
    finally:
        service.end()


@pytest.mark.parametrize("seen", [OWN], indirect=True)
def test_a_ledger_that_somebody_keeps_locked_delays_no_signal(seen: Seen) -> None:
    seen.says("running")
    program = "trap 'echo ended; exit 3' TERM; echo begun; while :; do sleep 0.05; done"
    holder = seen.user.start("run", "-n", "1", "--", "sh", "-c", program, env=seen.env)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "begun\n"
    with closing(sqlite3.connect(seen.user.folder / "ledger.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        for state in ("idle", "running"):
            seen.says(state)
            time.sleep(1.2)  # it looks, and cannot write
        begin = time.monotonic()
        holder.terminate()
        assert holder.stdout.readline() == "ended\n"
        assert time.monotonic() - begin < BUSY_S / 2  # it did not wait for the lock
        db.execute("ROLLBACK")
    _, err = finish(holder)
    assert (holder.returncode, "Released GPUs" in err) == (3, True)
