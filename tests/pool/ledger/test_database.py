"""The ledger's file: made once, by whoever comes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bitfusion_pool.ledger.files.pool_folder import ensure_folder
from tests.pool.pool_client import PoolClient, finish

AT_ONCE = 12
OPEN = """
import sys
sys.path.insert(0, sys.argv[1])
from bitfusion_pool.ledger.storage.database import open_database
sys.stdin.read()
open_database(sys.argv[2]).execute("SELECT count(*) FROM entries").fetchone()
"""


def test_many_commands_at_once_make_one_ledger(client: PoolClient) -> None:
    folder = ensure_folder(str(client.folder), client.environ)
    root = str(Path(__file__).parents[3])
    processes = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", OPEN, root, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(AT_ONCE)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    for process in processes:
        assert finish(process) == ("", "")
        assert process.returncode == 0
    assert sorted(os.listdir(folder)) == ["bells", "boot", "ledger.db", "locks"]


def test_half_a_ledger_that_a_killed_command_left_is_no_ledger(client: PoolClient) -> None:
    folder = ensure_folder(str(client.folder), client.environ)
    draft = Path(folder, "ledger.db.0123456789abcdef")
    draft.write_bytes(b"half")
    assert client.do("run", "-n", "1", "--", "true").returncode == 0
    client.admin("reap")
    assert draft.exists()  # perhaps somebody is still writing it
    os.utime(draft, (1, 1))
    client.admin("reap")
    assert not draft.exists()
