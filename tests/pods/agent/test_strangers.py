"""Whoever else comes to an agent's port: not let in, and the program and its client notice nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pods.agent import strangers
from bitfusion_pods.stream.frames import Kind
from bitfusion_pods.stream.handshake import LIMIT
from tests.pods.agent.agent_client import AgentClient, RunningAgent
from tests.pods.stream.sides import Keys
from tests.support.machine import scaled
from tests.support.rounds import rounds

ROOT = Path(__file__).parents[3]
LONGEST_DELAY_S = 0.1
MOST_GROWTH_KIB = 4096


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def agent(keys: Keys, tmp_path: Path) -> Iterator[RunningAgent]:
    made = RunningAgent(keys, tmp_path, {})
    yield made
    made.end()


def resident_kib(agent: RunningAgent) -> int:
    """The memory of process 1 of the pod."""
    status = Path(f"/proc/{process_1(agent)}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def process_1(agent: RunningAgent) -> int:
    """As this namespace numbers it."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return int(children[0])


def flood(keys: Keys, port: int, count: int) -> subprocess.Popen[str]:
    words = ["-m", "tests.pods.agent.stranger_flood", str(keys.folder), str(port), str(count)]
    return subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(550)
@pytest.mark.parametrize("count", [400, pytest.param(rounds(2_500, 10_000), marks=pytest.mark.long)])
def test_strangers_of_all_kinds_are_refused_and_hold_up_nobody(
    agent: RunningAgent, keys: Keys, count: int
) -> None:
    client = AgentClient(agent)
    client.spawn("cat")
    client.until(Kind.SPAWNED)
    first = flood(keys, agent.port, 60)  # after which the agent has what it needs
    first.communicate(timeout=scaled(60))
    before, longest, here, number = resident_kib(agent), [0.0], [0.0], 0
    plain = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert plain.stdin is not None
    assert plain.stdout is not None
    attack = flood(keys, agent.port, count)
    while attack.poll() is None:
        number += 1
        words = b"<%d>" % number
        began = time.perf_counter()
        os.write(client.stdin, words)
        client.until_said(words)
        longest.append(time.perf_counter() - began)
        began = time.perf_counter()  # what this machine takes for that, at the same time
        plain.stdin.write(words)
        plain.stdout.read(len(words))
        here.append(time.perf_counter() - began)
        client.out = dict.fromkeys(client.out, b"")
        client.turn(0.005)
    said, _ = attack.communicate()
    plain.communicate()
    growth = resident_kib(agent) - before
    print(
        f"{said.strip()}; {number} echoes, the longest {max(longest) * 1000:.0f} ms, of a program here "
        f"{max(here) * 1000:.0f} ms; "
        f"the agent's memory {before} KiB, + {growth} KiB"
    )
    assert attack.returncode == 0
    few = len(longest) // 20  # in which this machine may stand still
    assert sorted(longest)[-1 - few] < scaled(LONGEST_DELAY_S) + max(here)
    assert max(longest) < scaled(LIMIT) + max(here)
    assert growth < MOST_GROWTH_KIB
    assert len(agent.log) < 3 * strangers.LINES + count * strangers.LINES / 100
    client.cut()
    client.connect()  # who has the key gets in at once
    os.write(client.stdin, b"still here")
    client.until_said(b"still here")
    client.close()


@pytest.mark.timeout(60)
def test_the_client_gets_in_while_silent_strangers_hold_all_places(agent: RunningAgent, keys: Keys) -> None:
    silent = [agent.dial() for _ in range(2 * strangers.MOST)]
    began = time.monotonic()
    client = AgentClient(agent)
    assert len(os.listdir(f"/proc/{process_1(agent)}/fd")) < strangers.MOST + 10
    client.spawn("echo", "ran")
    client.until_said(b"ran")
    assert time.monotonic() - began < scaled(LIMIT)  # no stranger's time is over
    for each in silent:
        each.close()
    client.close()
