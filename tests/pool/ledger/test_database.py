"""The ledger's files: damage, versions, permissions."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bitfusion_client.errors import (
    BitfusionError,
    PoolUnreadable,
)
from bitfusion_client.request import GpuRequest
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def _truncate(folder: Path) -> str:
    (folder / "ledger.db").write_bytes(b"not a ledger" * 100)
    return "file is not a database"


def _older(folder: Path) -> str:
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    return "it has version 99, this program reads 1"


def _no_tables(folder: Path) -> str:
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("DROP TABLE meta")
    db.close()
    return "no such table: meta"


def _a_file_in_place(folder: Path) -> str:
    (folder / "ledger.db").unlink()
    (folder / "ledger.db").mkdir()
    return "unable to open database file"


@pytest.mark.parametrize("damage", [_truncate, _older, _no_tables, _a_file_in_place])
def test_a_damaged_ledger_is_one_clear_error_line(client: PoolClient, damage: object) -> None:
    client.ledger().close()
    assert callable(damage)
    why = damage(client.folder)
    path = client.folder / "ledger.db"
    with pytest.raises(PoolUnreadable) as caught:
        client.ledger()
    assert str(caught.value) == f"pool ledger {path} is unreadable: {why}"
    done = client.do("run", "-n", "1", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: pool ledger {path} is unreadable: {why}\n"


def test_a_folder_that_cannot_be_made_is_an_error_too(client: PoolClient) -> None:
    client.folder.write_text("a file")
    with pytest.raises(BitfusionError) as caught:
        client.ledger()
    assert str(caught.value) == f"pool ledger {client.folder}/ledger.db is unreadable: Not a directory"


def test_everybody_may_use_the_default_pool(ledger: Ledger, client: PoolClient) -> None:
    entry, lock = ledger.submit(GpuRequest(1), somebody())
    assert client.folder.stat().st_mode & 0o7777 == 0o777
    assert (client.folder / "ledger.db").stat().st_mode & 0o777 == 0o666
    assert (client.folder / "locks" / entry.entry_id).stat().st_mode & 0o777 == 0o666
    ledger.release(entry.entry_id)
    lock.close()
