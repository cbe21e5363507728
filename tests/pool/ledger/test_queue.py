"""The queue with many waiters: strictly in order, nobody lost, little to do while nothing happens."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from bitfusion_client.request import GpuRequest
from bitfusion_pool.ledger.waiting import wait_for_turn
from tests.pool.pool_client import PoolClient, somebody, until

MANY = 200


class Waiters:
    """Threads that each queue with a ledger of their own; `served` is in the order of their turns."""

    def __init__(self, client: PoolClient) -> None:
        self.client = client
        self.queued: list[str] = []
        self.served: list[str] = []
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def add(self, request: GpuRequest) -> None:
        ready = threading.Event()
        thread = threading.Thread(target=self._wait, args=(request, ready))
        thread.start()
        self.threads.append(thread)
        assert ready.wait(20)

    def _wait(self, request: GpuRequest, ready: threading.Event) -> None:
        try:
            with self.client.ledger() as ledger:
                entry, lock = ledger.submit(request, somebody())
                self.queued.append(entry.entry_id)
                ready.set()
                wait_for_turn(ledger, entry, 50)
                self.served.append(entry.entry_id)
                ledger.release(entry.entry_id)
                lock.close()
        except BaseException as error:
            self.failures.append(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join()
        assert self.failures == []


def test_two_hundred_waiters_are_served_strictly_in_order(client: PoolClient) -> None:
    waiters = Waiters(client)
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        for _ in range(MANY):
            waiters.add(GpuRequest(2))
        time.sleep(1.5)
        before = time.process_time()
        time.sleep(1)
        busy = time.process_time() - before
        ledger.release(entry.entry_id)
        lock.close()
        waiters.join()
        assert ledger.entries() == []
    assert waiters.served == waiters.queued
    assert len(waiters.served) == MANY
    assert busy < 0.5, f"{MANY} idle waiters used {busy:.0%} of a core"
    assert os.listdir(client.folder / "locks") == os.listdir(client.folder / "bells") == []


def test_commands_of_several_sizes_are_served_in_order(client: PoolClient, tmp_path: Path) -> None:
    order = tmp_path / "order"
    boss = client.start("run", "-n", "2", "--", "sleep", "60")
    client.until_held()
    waiting = []
    for number in range(12):
        gpus = str(1 + number % 2)
        program = f"echo {number} >> {order}"
        waiting.append(client.start("run", "-n", gpus, "-p", "0.9", "--", "sh", "-c", program))
        client.until_waiting(number + 1)
    os.killpg(boss.pid, signal.SIGKILL)
    boss.communicate()
    for process in waiting:
        process.communicate(timeout=20)
        assert process.returncode == 0
    # two that fit side by side may write in either order
    numbers = [int(line) for line in order.read_text().split()]
    assert sorted(numbers) == list(range(12))
    assert all(abs(number - place) <= 1 for place, number in enumerate(numbers))


def test_the_next_gets_the_gpus_of_a_killed_holder_at_once(client: PoolClient) -> None:
    holder = client.start("run", "-n", "2", "--", "sleep", "60")
    client.until_held()
    waiter = client.start("run", "-n", "1", "--", "date", "+%s.%N")
    client.until_waiting(1)
    time.sleep(0.1)
    killed = time.time()
    os.killpg(holder.pid, signal.SIGKILL)
    out, _ = waiter.communicate(timeout=20)
    holder.communicate()
    assert float(out) - killed < 2  # 100 ms is the aim, which the benchmark measures


def test_waiters_that_die_in_the_queue_do_not_stop_it(client: PoolClient) -> None:
    processes: list[subprocess.Popen[str]] = [client.start("run", "-n", "2", "--", "sleep", "60")]
    client.until_held()
    for number in range(8):
        processes.append(client.start("run", "-n", "2", "--", "true"))
        client.until_waiting(number + 1)
    for process in [*processes[1:8:2], processes[2], processes[0]]:
        os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.communicate(timeout=20)
    assert [process.returncode for process in processes] == [-9, -9, -9, -9, 0, -9, 0, -9, 0]
    until(lambda: client.admin("reap") and not client.entries("held") and not client.entries("waiting"))
