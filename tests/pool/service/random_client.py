"""A process that uses a pool's service at random, as the commands do. Started by test_random_clients.py.

What it holds is proved as `tests/pool/ledger/random_user.py` does it.
"""

from __future__ import annotations

import os
import random
import sys
import time

sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from bitfusion_client.errors import WaitTimedOut
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.client.pools.pool import Lease, Pool
from bitfusion_pool.client.pools.pool_choice import open_pool
from bitfusion_pool.ledger.entries import PROCESS, Holder
from tests.pool.ledger.random_user import Proof, a_request

LONGEST_S = 2.0  # far less than silence may last: no keeper says that this process lives


def main(operations: int, seed: int, proofs: str, log: str) -> None:
    chance = random.Random(seed)
    held: list[tuple[Pool, Lease, Proof, float]] = []
    out = os.open(log, os.O_WRONLY | os.O_APPEND)

    def give_back(number: int) -> None:
        pool, lease, proof, _ = held.pop(number)
        proof.remove()
        if chance.random() < 0.2:
            lease.lock.close()  # gone without a word
        else:
            pool.release(lease)
        pool.close()

    for _ in range(operations):
        os.write(out, b".")
        if held and held[0][3] + LONGEST_S < time.monotonic():
            give_back(0)
        elif held and (len(held) > 3 or chance.random() < 0.45):
            give_back(chance.randrange(len(held)))
        else:
            # a short wait, because all users may hold GPUs and wait for more at once
            asked, timeout = a_request(chance), chance.choice([0.001, 0.02, 0.1])
            request = GpuRequest(asked.gpus, asked.partial, servers=asked.servers, timeout=timeout)
            pool = open_pool(os.environ)
            begun = time.monotonic()
            try:
                lease = pool.take(request, Holder("random", "tester"), PROCESS, "", lambda *_: None)
            except WaitTimedOut:
                pool.close()
            else:
                held.append((pool, lease, Proof(proofs, lease.entry), begun))
    while held:
        give_back(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
