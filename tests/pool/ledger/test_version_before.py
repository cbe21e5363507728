"""A user's own ledger is one that the version before reads and writes: kernels go on after an update.

Both were also tried together with its code: in one queue, each waiting for the other, beside a service.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from bitfusion_client.request.gpu_request import GpuRequest
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient

# as that version made them and names them in its statements
TABLES = {
    "meta": "key value",
    "servers": "position name address port dispatcher_port uuid hostname has_rdma cuda_version "
    "driver_version",
    "devices": "server number name memory_mib simulated uuid",
    "entries": "number entry_id state kind gpus partial memory_mib filters servers possible label user pid "
    "host uid asked granted expires",
    "shares": "entry server device memory_mib",
}
META = {"inventory", "configuration", "manners", "device use"}


def test_a_ledger_of_ones_own_has_what_the_version_before_knows_and_no_more(client: PoolClient) -> None:
    with client.ledger() as ledger:
        _, lock = ledger.submit(GpuRequest(2), somebody())
        waiting, its_lock = ledger.submit(GpuRequest(1), somebody())
        assert ledger.queue_position(waiting).position == 1
        with closing(sqlite3.connect(client.folder / "ledger.db")) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (1,)
            names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            tables = {name: db.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in names}
            meta = {key for (key,) in db.execute("SELECT key FROM meta")}
            rows = db.execute("SELECT state, kind, expires FROM entries ORDER BY number").fetchall()
        lock.close()
        its_lock.close()
    tables.pop("sqlite_sequence")
    assert {name: " ".join(column[1] for column in columns) for name, columns in tables.items()} == TABLES
    assert meta <= META
    assert rows == [("held", "process", None), ("waiting", "process", None)]
    assert sorted(path.name for path in client.folder.iterdir() if path.is_dir()) == ["bells", "locks"]
