"""A process that uses the pool at random: asks, waits, holds, gives back, is killed at any moment.

Started by test_random_operations.py, also as pid 1 of a pid namespace of its own. While it holds a share it
has one file per device under `held/` locked, named after the share's size: the proof, apart from the ledger,
of what was really handed out.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from bitfusion_client.errors import NoGpusAvailable, WaitTimedOut
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import WAITING, Entry, Holder
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.waiting import wait_for_turn

SIZES = (0.02, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0)


def a_request(chance: random.Random) -> GpuRequest:
    servers = chance.choice([(), (), ("a",), ("b",)])
    return GpuRequest(chance.choice([1, 1, 1, 2]), chance.choice(SIZES), servers=servers)


class Proof:
    """Locked files that say what this process holds."""

    def __init__(self, folder: str, entry: Entry) -> None:
        self.files = []
        for share in entry.shares:
            name = f"{share.server}_{share.number}_{share.memory_mib}_{entry.entry_id}"
            fd = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT)
            fcntl.flock(fd, fcntl.LOCK_EX)
            self.files.append((f"{folder}/{name}", fd))

    def remove(self) -> None:
        for path, fd in self.files:
            os.unlink(path)
            os.close(fd)


def main(operations: int, seed: int, proofs: str, log: str) -> None:
    chance = random.Random(seed)
    held: list[tuple[Entry, LeaseLock, Proof]] = []
    with Ledger(os.environ) as ledger:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for _ in range(operations):
            os.write(out, b".")
            if held and (len(held) > 3 or chance.random() < 0.45):
                entry, lock, proof = held.pop(chance.randrange(len(held)))
                proof.remove()
                if chance.random() < 0.2:
                    lock.close()  # gone without a word
                else:
                    ledger.release(entry.entry_id)
                    lock.remove()
                continue
            wait = chance.random() < 0.5
            try:
                entry, lock = ledger.submit(a_request(chance), Holder("random", "tester"), wait)
            except NoGpusAvailable:
                continue
            if entry.state == WAITING:
                try:
                    # a short wait, because all users may hold GPUs and wait for more at once
                    entry = wait_for_turn(ledger, entry, chance.choice([0.001, 0.02]))
                except WaitTimedOut:
                    lock.close()
                    continue
            held.append((entry, lock, Proof(proofs, entry)))
        for entry, lock, proof in held:
            proof.remove()
            ledger.release(entry.entry_id)
            lock.remove()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
