"""Many processes use a service at random and are killed at random, by both lives that a lease can have.

As tests/pool/ledger/test_random_operations.py does it without a service: two holders never get more of a
device than it has, seen in the ledger, and in the locked files by which they themselves say what they have.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import prepare_folder, read_authority, write_client_files
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.ledger.test_random_operations import POOL, really_held
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.rounds import rounds
from tests.support.waiting import wait_until

CLIENT = str(Path(__file__).with_name("random_client.py"))
EACH = 100
KILLS = 6
AT_ONCE = 6
SILENT_S = 8.0
TIMES = "--closed-s=0.3", "--heartbeat-s=0.1", f"--silent-s={SILENT_S}"
UNLIMITED = "--waiting-per-user=0", "--messages-per-user=100000"


def environment(service: NetworkService, home: Path, by_words: bool) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BITFUSION")}
    if not by_words:
        return {**environ, "BITFUSION_POOL": service.socket}
    folder = prepare_folder(str(home / ".bitfusion"), False)
    server = Address(HOST, service.port)
    write_client_files(folder, [server], service.token("ada"), read_authority(service.authority))
    return {**environ, "HOME": str(home), "BITFUSION_POOL": f"tls://{server}"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("operations", [400, pytest.param(rounds(3_000, 5_000), marks=pytest.mark.long)])
@pytest.mark.parametrize("by_words", [False, True], ids=["by lock", "by words"])
def test_nobody_ever_gets_what_somebody_else_has(
    base: Path, tmp_path: Path, by_words: bool, operations: int
) -> None:
    service = NetworkService(base, *TIMES, *UNLIMITED)
    service.configure(POOL)
    service.start()
    environ = environment(service, tmp_path, by_words)
    proofs, log = tmp_path / "held", tmp_path / "operations"
    proofs.mkdir()
    log.touch()
    chance = random.Random(20)
    running: list[subprocess.Popen[bytes]] = []
    started = killed = 0

    def enough() -> bool:
        return log.stat().st_size >= operations and killed >= KILLS

    try:
        with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(service.folder)}) as ledger:
            total = {
                (one.key, each.number): each.memory_mib for one in ledger.servers for each in one.devices
            }
            while not enough() or running:
                while len(running) < AT_ONCE and not enough():
                    started += 1
                    words = [sys.executable, "-I", "-S", CLIENT, str(EACH), str(started)]
                    running.append(subprocess.Popen([*words, str(proofs), str(log)], env=environ))
                held = really_held(proofs)
                assert all(memory <= total[place] for place, memory in held.items()), held
                free = ledger.free_memory()
                assert all(0 <= free[place] <= total[place] for place in total), free
                if running and chance.random() < 0.03:
                    chance.choice(running).kill()
                    killed += 1
                for process in [process for process in running if process.poll() is not None]:
                    assert process.returncode in (0, -9), process.returncode
                    running.remove(process)
                time.sleep(0.02)
            wait_until(lambda: ledger.entries() == [], ledger.entries, SILENT_S + 10)
            assert ledger.free_memory() == total
    finally:
        for process in running:
            process.kill()
            process.wait()
        service.end()
