"""A user's own pool of real cards: made only when asked for, and true about what others use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.command.client_reports import parse_list_gpus
from bitfusion_pool.ledger.device_watch import process_name, read_devices
from tests.pool.inventory.nvidia.fake_machine import LOST, NOT_LOADED, ONE, PART, TWO, FakeMachine, card
from tests.pool.pool_client import PoolClient

MADE = """\
GPU pool in {folder}: 1 servers, 2 GPUs
These are real GPUs, and this pool is yours alone: the pool of another user of this machine would hand out the
same GPUs a second time. Shares of a GPU's memory are cooperative: PyTorch, TensorFlow and JAX keep to them,
other programs may not. `bitfusion-pool simulate` goes back to simulated GPUs.
"""
SMI = """\
BITFUSION-SMI 4.0.0-00000000   embedded pool
┌─────────────────┬─────┬─────────────┬────────────────────┬──────────┐
│ Server          │ GPU │ Name        │ Memory-Usage       │ GPU-Util │
├─────────────────┼─────┼─────────────┼────────────────────┼──────────┤
│ 127.0.0.1:56001 │ 0   │ NVIDIA Test │ 5000MiB / 16000MiB │ 7%       │
│ 127.0.0.1:56001 │ 1   │ NVIDIA Test │ 0MiB / 16000MiB    │          │
└─────────────────┴─────┴─────────────┴────────────────────┴──────────┘
127.0.0.1:56001 GPU 0: 5000 MiB used outside the pool: NAME (pid PID)
No running tasks found
Shares of memory are cooperative: PyTorch, TensorFlow and JAX keep to them, other programs may not
"""
UNUSABLE = (
    "this machine's NVIDIA GPUs cannot be used: the NVIDIA driver is not loaded. "
    "What to do: load it: sudo modprobe nvidia; after an update: restart"
)
LOST_TEXT = "it is lost: it has fallen off the bus; only a restart of the machine brings it back"


@pytest.fixture
def machine(client: PoolClient, tmp_path: Path) -> FakeMachine:
    """Two cards, not yet in the pool."""
    machine = FakeMachine(tmp_path, card(ONE), card(TWO, percent=None))
    client.environ.update(machine.variables)
    return machine


@pytest.fixture
def outsider() -> Iterator[int]:
    """A process that is no part of the pool."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def make(client: PoolClient) -> None:
    assert client.admin("init", "--nvidia").returncode == 0


def last_error(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_real_cards_are_handed_out_only_when_asked_for(client: PoolClient, machine: FakeMachine) -> None:
    assert "simulated" in client.do("smi").stdout
    refused = client.admin("init", "--nvidia")
    assert refused.stderr == (
        f"Error: a ledger already exists: {client.folder}/ledger.db; --force replaces it\n"
    )
    made = client.admin("init", "--nvidia", "--force")
    assert (made.returncode, made.stdout) == (0, MADE.format(folder=client.folder))
    done = client.do("run", "-n", "2", "--", "printenv", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    assert done.stdout == f"{ONE},{TWO}\nPCI_BUS_ID\n"
    assert ", simulated GPUs" in client.admin("simulate").stdout
    back = client.do("run", "-n", "1", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert back.stdout == "\n"


def test_a_lease_of_a_half_tells_the_frameworks(client: PoolClient, machine: FakeMachine) -> None:
    make(client)
    done = client.do("run", "-n", "1", "-p", "0.5", "--", "env", "-0")
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert found["CUDA_VISIBLE_DEVICES"] == ONE
    assert found["BITFUSION_POOL_MEMORY_LIMITS"] == found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4680"
    (device,) = json.loads(found["BITFUSION_POOL_DEVICES"])
    assert (device["uuid"], device["simulated"], device["memory_mib"]) == (ONE, False, 8000)


def test_init_says_why_there_are_no_cards(client: PoolClient, machine: FakeMachine) -> None:
    machine.become(card(), fails={"nvmlInitWithFlags": NOT_LOADED})
    done = client.admin("init", "--nvidia")
    assert (done.returncode, done.stderr) == (1, f"Error: {UNUSABLE}\n")
    machine.become(card(ONE, mig=[]))
    assert client.admin("init", "--nvidia").stderr == (
        "Error: this machine's NVIDIA GPUs cannot be used: the NVIDIA driver knows no GPU that can be handed "
        "out; GPU 0: it is in MIG mode without MIG devices; make some: nvidia-smi mig -cgi …. "
        "What to do: see what nvidia-smi -L shows on this machine\n"
    )
    assert not (client.folder / "pool.toml").exists()


def test_init_says_what_it_leaves_out(client: PoolClient, machine: FakeMachine) -> None:
    machine.become(card(ONE), card(TWO, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}))
    assert f"Not in the pool: NVIDIA Test {TWO}: {LOST_TEXT}\n" in client.admin("init", "--nvidia").stdout
    machine.become(card(ONE), card(TWO, fails={"nvmlDeviceGetUUID": LOST}))
    again = client.admin("init", "--nvidia", "--force").stdout
    assert f"Not in the pool: GPU 1: {LOST_TEXT}\n" in again


def test_a_file_or_the_cards_not_both(client: PoolClient) -> None:
    done = client.admin("init", "--nvidia", "--config", "x")
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr


def test_what_others_use_is_shown_and_not_handed_out(
    client: PoolClient, machine: FakeMachine, outsider: int
) -> None:
    make(client)
    machine.become(card(ONE, used=5000, processes=[[outsider, 5000]]), card(TWO, percent=None))
    name = process_name(outsider)
    expected = SMI.replace("NAME", name).replace("PID", str(outsider))
    assert client.do("smi").stdout == expected
    outside = f"5000 MiB used outside the pool: {name} (pid {outsider})"
    listed = client.do("list_gpus").stdout
    assert parse_list_gpus(listed)[0].gpus[0].free_mib == 11000
    assert parse_list_gpus(listed)[0].gpus[0].notes == (outside,)
    assert f"127.0.0.1:56001 GPU 0: {outside}\n" in client.admin("status").stdout
    device = json.loads(client.admin("status", "--json").stdout)["servers"][0]["devices"][0]
    assert (device["outside_mib"], device["busy_percent"], device["problem"]) == (5000, 7, "")
    taken = client.do("run", "-n", "1", "-p", "0.8", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert taken.stdout == f"{TWO}\n"
    full = client.do(
        "run", "-n", "2", "-p", "0.8", "--", "true", env={"BITFUSION_POOL_MANNERS": "when_full=fail"}
    )
    assert last_error(full) == (
        "Error: not enough GPUs available: 2 GPUs with 12800 MiB of memory each requested, "
        "1 available on one server"
    )


def test_who_waits_for_memory_of_others_reads_why_and_gets_it_when_they_end(
    client: PoolClient, machine: FakeMachine, outsider: int
) -> None:
    make(client)
    machine.become(card(ONE, used=5000, processes=[[outsider, 5000]]), card(TWO))
    process = client.start(
        "run", "-n", "1", "--server_list", "server0", "--filter", "device.id=0", "--", "true"
    )
    assert process.stderr is not None
    line = next(line for line in process.stderr if "Waiting for GPUs" in line)
    machine.become(card(ONE), card(TWO))
    assert client.do("smi").returncode == 0  # whoever looks notes it
    process.communicate()
    assert process.returncode == 0
    outside = f"5000 MiB used outside the pool: {process_name(outsider)} (pid {outsider})"
    assert line.endswith(f"; why: GPU 0: {outside}, ask for less than whole GPUs, or wait\n")


def test_programs_under_a_lease_are_not_others(client: PoolClient, machine: FakeMachine) -> None:
    make(client)
    program = "echo $$; exec sleep 600"
    process = client.start("run", "-n", "1", "-p", "0.5", "--", "sh", "-c", program)
    assert process.stdout is not None
    try:
        child = int(process.stdout.readline())
        machine.become(card(ONE, used=8600, processes=[[child, 8600]]), card(TWO))
        with client.ledger() as ledger:
            read_devices(ledger, {**os.environ, **machine.variables})
            assert [use.text() for use in ledger.device_use.values()] == ["", ""]
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_a_card_that_is_lost_gets_no_new_lease_until_it_is_back(
    client: PoolClient, machine: FakeMachine
) -> None:
    make(client)
    machine.become(card(ONE, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}), card(TWO))
    assert f"   |  |- {LOST_TEXT}\n" in client.do("list_gpus").stdout
    done = client.do("run", "-n", "1", "-p", "0.5", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.stdout == f"{TWO}\n"
    both = client.do("run", "-n", "2", "--", "true")
    assert last_error(both) == f"Error: not enough GPUs available: 2 GPUs requested; GPU 0: {LOST_TEXT}"
    machine.become(card(TWO))
    gone = "the driver no longer shows it: it has fallen off the bus, or its MIG devices were changed"
    assert f"127.0.0.1:56001 GPU 0: {gone}\n" in client.do("smi").stdout
    machine.become(card(ONE), card(TWO))
    assert client.do("run", "-n", "2", "--", "true").returncode == 0


def test_a_program_that_failed_hears_that_its_card_was_lost(
    client: PoolClient, machine: FakeMachine, tmp_path: Path
) -> None:
    make(client)
    lost = tmp_path / "lost"
    lost.mkdir()
    FakeMachine(lost, card(ONE, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}), card(TWO))
    program = f"cp {lost}/machine.json {tmp_path}/machine.json; exit 3"
    done = client.do("run", "-n", "1", "--", "sh", "-c", program)
    assert done.returncode == 3
    assert last_error(done).startswith("[WARN] ")
    assert last_error(done).endswith(f" GPU 0 (NVIDIA Test): {LOST_TEXT}")
    machine.become(card(ONE), card(TWO))
    assert "WARN" not in client.do("run", "-n", "1", "--", "false").stderr


def test_without_a_driver_nothing_is_handed_out_and_all_is_shown(
    client: PoolClient, machine: FakeMachine
) -> None:
    make(client)
    machine.become(card(ONE), fails={"nvmlInitWithFlags": NOT_LOADED})
    done = client.do("run", "-n", "1", "--", "true")
    assert (done.returncode, last_error(done)) == (1, f"Error: {UNUSABLE}")
    listed = client.do("list_gpus")
    assert listed.returncode == 0
    why = "this machine's NVIDIA GPUs cannot be used: the NVIDIA driver is not loaded"
    assert listed.stdout.count(f"|  |- {why}\n") == 2
    assert [gpu.free_mib for gpu in parse_list_gpus(listed.stdout)[0].gpus] == [0, 0]


def test_parts_of_a_card_are_handed_out_one_by_one(client: PoolClient, machine: FakeMachine) -> None:
    parts = [card(PART, 4864), card(PART.replace("3", "4"), 4864)]
    machine.become(card(ONE, mig=parts))
    make(client)
    done = client.do("run", "-n", "1", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.stdout == f"{PART}\n"
    both = client.do("run", "-n", "2", "--", "true")
    assert last_error(both).endswith(
        "CUDA gives a program one MIG device only, so they are handed out one by one"
    )


def test_who_has_no_real_cards_asks_no_driver(client: PoolClient, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "pynvml.py").write_text(f"open({str(asked)!r}, 'w').close()\n")
    environ = {"BITFUSION_POOL_NVML": str(tmp_path)}
    for words in (["run", "-n", "1", "--", "true"], ["smi"], ["list_gpus"]):
        assert client.do(*words, env=environ).returncode == 0
    assert not asked.exists()
