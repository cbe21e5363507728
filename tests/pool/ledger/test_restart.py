"""What the ledger knows of the machine's clock and of its restarts."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger import liveness
from bitfusion_pool.ledger.entries import HELD, RESERVED
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient

ANOTHER = "00000000-0000-0000-0000-000000000000\n"


def test_a_reservation_does_not_mind_that_the_time_is_set(
    client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.do("request_gpus", "1")
    real = time.time
    for shift in (-1e6, 1e6):
        monkeypatch.setattr(time, "time", lambda shift=shift: real() + shift)
        with client.ledger() as ledger:
            assert ledger.reap() == 0
            (entry,) = ledger.entries()
            assert ledger.is_alive(entry)
    monkeypatch.undo()
    started = liveness.clock()
    monkeypatch.setattr(time, "clock_gettime", lambda _: started + 601)
    with client.ledger() as ledger:
        assert ledger.reap() == 1


def test_programs_read_until_when_a_reservation_lives_as_time_of_day(client: PoolClient) -> None:
    client.do("request_gpus", "1")
    (lease,) = json.loads(client.admin("status", "--json").stdout)["leases"]
    assert 0 < lease["expires"] - time.time() <= 600
    client.do("release_gpus")


def test_a_restart_of_the_machine_ends_every_lease(client: PoolClient) -> None:
    client.do("request_gpus", "2")
    (client.folder / "boot").write_text(ANOTHER)
    assert client.entries(HELD) == []
    assert list((client.folder / "locks").iterdir()) == []
    assert client.do("run", "-n", "2", "--", "true").returncode == 0


@pytest.mark.parametrize("half", [b"", b"SQLite format 3\0" + bytes(4080), b"\xff" * 8192])
def test_what_a_power_cut_left_of_the_ledger_is_not_read(client: PoolClient, half: bytes) -> None:
    client.do("request_gpus", "2")
    (client.folder / "boot").write_text(ANOTHER)
    (client.folder / "ledger.db").write_bytes(half)
    (client.folder / "ledger.db-wal").write_bytes(half)
    assert client.do("run", "-n", "2", "--", "true").returncode == 0


@pytest.mark.parametrize("note", [ANOTHER, None])
def test_a_ledger_whose_leases_live_is_of_this_boot_whatever_is_noted(
    client: PoolClient, note: str | None
) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
    path = client.folder / "boot"
    path.unlink() if note is None else path.write_text(note)
    assert [one.entry_id for one in client.entries(HELD)] == [entry.entry_id]
    lock.close()
    with client.ledger() as ledger:
        ledger.reap()
    assert client.do("run", "-n", "2", "--", "true").returncode == 0


def test_a_reservation_of_the_version_before_keeps_its_time(client: PoolClient) -> None:
    with client.ledger() as ledger:
        holder, lock = ledger.submit(GpuRequest(1), somebody())
        reserved, other = ledger.submit(GpuRequest(1), somebody(), kind=RESERVED)
    other.close()
    (client.folder / "boot").unlink()
    with closing(sqlite3.connect(client.folder / "ledger.db", isolation_level=None)) as db:
        db.execute("UPDATE entries SET expires = ? WHERE number = 2", (time.time() + 300,))
    with client.ledger() as ledger:
        entry = ledger.entry(reserved.entry_id)
        assert entry is not None
        assert entry.expires_at == pytest.approx(liveness.clock() + 300, abs=60)
        for one in (holder, reserved):
            ledger.release(one.entry_id)
    lock.close()


def test_a_machine_that_does_not_say_when_it_started_has_one_start(
    client: PoolClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(liveness, "_BOOT_ID", str(tmp_path / "masked"))
    with client.ledger() as ledger:
        reserved, lock = ledger.submit(GpuRequest(2), somebody(), kind=RESERVED)
        ledger.renew(reserved.entry_id, 600)
    lock.close()
    with client.ledger() as ledger:
        assert ledger.entry(reserved.entry_id) is not None
        ledger.release(reserved.entry_id)
