"""Transactions: what happens when they are interrupted or cannot be written."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger import ledger as module
from bitfusion_pool.ledger.storage import transaction
from bitfusion_pool.ledger.storage.database import open_database
from tests.pool.holders import Holders, somebody
from tests.pool.pool_client import PoolClient


def test_a_signal_right_after_the_grant_leaves_nothing_behind(
    holders: Holders, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "wake", interrupt)
    with pytest.raises(KeyboardInterrupt):
        holders.ledger.submit(GpuRequest(2), somebody())
    with client.ledger() as other:
        assert other.entries() == []
    assert os.listdir(client.folder / "locks") == []


@pytest.mark.parametrize(("error", "rows"), [(PoolUnreadable("", "no"), 1), (KeyboardInterrupt(), 0)])
def test_a_refusal_is_an_answer_and_anything_else_undoes_what_was_written(
    tmp_path: Path, error: BaseException, rows: int
) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE cleaned (up)")

    def clean_up() -> None:
        with transaction.Transaction(db, str(tmp_path)):
            db.execute("INSERT INTO cleaned VALUES (1)")
            raise error

    with pytest.raises(type(error)):
        clean_up()
    assert len(db.execute("SELECT * FROM cleaned").fetchall()) == rows
    db.close()


class FullDisk:
    """A connection whose commits fail."""

    in_transaction = True

    def __init__(self, db: sqlite3.Connection) -> None:
        self.execute_really = db.execute
        self.close = db.close

    def execute(self, statement: str, *values: tuple[str | int | float, ...]) -> sqlite3.Cursor:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self.execute_really(statement, *values)


def test_a_change_that_cannot_be_written_keeps_the_lock_files(
    holders: Holders, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = holders.submit(GpuRequest(2))
    holders.die(holder)
    with monkeypatch.context() as patch:
        patch.setattr(module, "open_database", lambda folder: FullDisk(open_database(folder)))
        with client.ledger() as ledger, pytest.raises(PoolUnreadable, match="database or disk is full"):
            ledger.reap()
    assert os.listdir(client.folder / "locks") == [holder.entry_id]
    assert holders.ledger.reap() == 1
    assert os.listdir(client.folder / "locks") == []
