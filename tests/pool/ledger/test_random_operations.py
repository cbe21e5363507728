"""Many processes, some in pid namespaces of their own, use one pool at random and are killed at random.

Two holders never get more of a device than it has: seen in the ledger, and in the locked files by which the
holders themselves say what they have.
"""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pool.pool_client import PoolClient
from tests.support.waiting import wait_until

USER = str(Path(__file__).with_name("random_user.py"))
NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
POOL = """
[[servers]]
name = "a"
address = "10.0.0.1"
[[servers.devices]]
count = 2
[[servers]]
name = "b"
address = "10.0.0.2"
[[servers.devices]]
count = 1
memory_mib = 8000
[[servers.devices]]
count = 1
"""
EACH = 500
KILLS = 6
AT_ONCE = 6


def namespaces_work() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def really_held(proofs: Path) -> Counter[tuple[str, int]]:
    """What living processes say they hold, by device; a file that is not locked is a dead process's.

    All listed files existed at one moment, so whoever has its file locked a little later held its share then.
    """
    found: Counter[tuple[str, int]] = Counter()
    for name in os.listdir(proofs):
        server, number, memory, _ = name.split("_")
        try:
            fd = os.open(proofs / name, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found[server, int(number)] += int(memory)
        finally:
            os.close(fd)
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("operations", [1_000, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("namespaces", [False, True], ids=["one pid namespace", "several pid namespaces"])
def test_nobody_ever_gets_what_somebody_else_has(
    client: PoolClient, tmp_path: Path, namespaces: bool, operations: int
) -> None:
    if namespaces and not namespaces_work():
        pytest.skip("this machine does not allow pid namespaces")
    client.configure(POOL)
    proofs = tmp_path / "held"
    proofs.mkdir()
    log = tmp_path / "operations"
    log.touch()
    chance = random.Random(20)
    running: list[subprocess.Popen[bytes]] = []
    started = killed = 0
    with client.ledger() as ledger:
        total = {
            (server.key, one.number): one.memory_mib for server in ledger.servers for one in server.devices
        }

        def enough() -> bool:
            return log.stat().st_size >= operations and killed >= KILLS

        while not enough() or running:
            while len(running) < AT_ONCE and not enough():
                started += 1
                words = [sys.executable, "-I", "-S", USER, str(EACH), str(started), str(proofs), str(log)]
                if namespaces and started % 2:
                    words = [*NAMESPACE, *words]
                running.append(subprocess.Popen(words, env=client.environ))
            held = really_held(proofs)
            assert all(memory <= total[place] for place, memory in held.items()), held
            free = ledger.free_memory()
            assert all(0 <= free[place] <= total[place] for place in total), free
            if running and chance.random() < 0.3:
                chance.choice(running).kill()
                killed += 1
            ended = [process for process in running if process.poll() is not None]
            for process in ended:
                assert process.returncode in (0, -9, 137), process.returncode
                running.remove(process)
            time.sleep(0.02)

        def is_empty() -> bool:
            ledger.reap()
            return ledger.entries() == []

        # what is killed with its namespace may need a moment to end
        wait_until(is_empty)
        assert ledger.free_memory() == total
        assert ledger.check_integrity() == "0 leases, 0 waiting"

    def is_clean() -> bool:
        assert client.admin("reap").returncode == 0
        return os.listdir(client.folder / "locks") == os.listdir(client.folder / "bells") == []

    wait_until(is_clean)  # one that had no entry yet may still be about to end
