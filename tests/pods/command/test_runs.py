"""Whose GPU pod is whose: known while a process lives, whatever becomes of files, and not a moment longer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from bitfusion_pods.command import runs
from bitfusion_pods.command.runs import Runs
from tests.support.waiting import wait_until

CONTAINER = f"test-{os.getpid()}"
POD = f"digits-0-gpu-{os.getpid()}"
CLAIM = """
import sys, time
from bitfusion_pods.command.runs import Runs
mine = Runs("another")
mine.claim(sys.argv[1])
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.fixture
def another() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", CLAIM, POD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        yield process
        process.kill()


def test_a_claim_ends_with_its_process_whatever_ends_it(another: subprocess.Popen[bytes]) -> None:
    mine = Runs(CONTAINER)
    assert mine.lives(POD)
    another.kill()
    another.wait()
    wait_until(lambda: not mine.lives(POD), "it is dead", 5)


def test_a_pod_that_nobody_has_claimed_is_dead_and_one_that_is_forgotten() -> None:
    mine = Runs(CONTAINER)
    assert not mine.lives(POD)
    mine.claim(POD)
    assert Runs(CONTAINER).lives(POD)
    mine.forget(POD)
    assert not mine.lives(POD)


def test_only_one_has_its_turn() -> None:
    order: list[str] = []

    def second() -> None:
        with Runs(CONTAINER).turn():
            order.append("second")

    with Runs(CONTAINER).turn():
        waiter = threading.Thread(target=second)
        waiter.start()
        waiter.join(0.2)
        order.append("first")
    waiter.join()
    assert order == ["first", "second"]


def test_who_stands_still_in_its_turn_keeps_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LONGEST_TURN", 0.1)
    with Runs(CONTAINER).turn(), Runs(CONTAINER).turn():
        pass
