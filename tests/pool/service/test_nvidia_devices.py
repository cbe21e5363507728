"""A service on a machine with NVIDIA GPUs: it hands them out, and is true about what others use of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.command.client_reports import parse_list_gpus
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.magic.commands import RunClient, answer
from bitfusion_pool.messages.from_client import Acquire, Look
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused
from tests.kernel.magic.kernel_view import FakeKernel
from tests.pool.inventory.nvidia.fake_machine import (
    LOST,
    MISMATCH,
    NOT_LOADED,
    ONE,
    PART,
    TWO,
    FakeMachine,
    card,
)
from tests.pool.pool_client import PoolClient, finish
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient
from tests.support.machine import scaled
from tests.support.waiting import wait_until

_numbers = count()
NOBODY = 2**22 + 1  # a process id that Linux never gives
OUTSIDE = f"5000 MiB used outside the pool: a program that cannot be seen here (pid {NOBODY})"
LOST_TEXT = "it is lost: it has fallen off the bus; only a restart of the machine brings it back"
UNUSABLE = "this machine's NVIDIA GPUs cannot be used: "
INSTEAD = "; or hand out simulated GPUs: bitfusion-pool serve --gpus simulated"
SMI = """\
BITFUSION-SMI 4.0.0-00000000   embedded pool
┌─────────────────┬─────┬─────────────┬────────────────────┬──────────┐
│ Server          │ GPU │ Name        │ Memory-Usage       │ GPU-Util │
├─────────────────┼─────┼─────────────┼────────────────────┼──────────┤
│ 127.0.0.1:56001 │ 0   │ NVIDIA Test │ 5000MiB / 16000MiB │ {percent}%      │
│ 127.0.0.1:56001 │ 1   │ NVIDIA Test │ 0MiB / 16000MiB    │          │
└─────────────────┴─────┴─────────────┴────────────────────┴──────────┘
127.0.0.1:56001 GPU 0: {outside}
No running tasks found
Shares of memory are cooperative: PyTorch, TensorFlow and JAX keep to them, other programs may not
"""


@pytest.fixture
def machine(base: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Two cards."""
    machine = FakeMachine(base, card(ONE), card(TWO, percent=None))
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BITFUSION_POOL_GPUS", "auto")
    return machine


@pytest.fixture
def nvidia(base: Path, machine: FakeMachine) -> Iterator[RunningService]:
    """A service that has found them."""
    running = RunningService(base)
    yield running.start()
    running.end()


@pytest.fixture
def user(client: PoolClient, nvidia: RunningService, machine: FakeMachine) -> PoolClient:
    """The `bitfusion` command, which uses the service."""
    client.environ.update(machine.variables)
    client.environ["BITFUSION_POOL"] = nvidia.socket
    return client


def last_error(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def not_started(running: RunningService, *options: str) -> str:
    """What a service says that cannot start."""
    command = [*running.command(), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(20))
    assert done.returncode == 1
    return last_error(done)


def numbers(shown: PoolSnapshot) -> list[str]:
    return [device.uuid for device in shown.servers[0].devices]


def look(running: RunningService) -> PoolSnapshot:
    with running.client() as client:
        return client.ask(Look(), PoolSnapshot)


def become(running: RunningService, machine: FakeMachine, *cards: dict[str, Any]) -> int:
    """Change the machine, and wait until the service has seen it: by how busy the first card is."""
    percent = 10 + next(_numbers) % 90
    machine.become({**cards[0], "percent": percent}, *cards[1:])
    wait_until(lambda: look(running).use[0][2].percent == percent, "the next reading")
    return percent


def logged(running: RunningService, message: str) -> dict[str, object]:
    return wait_until(lambda: [line for line in running.log if line["message"] == message], "the log")[0]


# --- what it hands out ---------------------------------------------------------------------------------


def test_without_a_configuration_it_hands_out_the_cards(user: PoolClient, nvidia: RunningService) -> None:
    started = logged(nvidia, "service started")
    assert (started["gpus"], started["simulated"]) == (2, False)
    done = user.do("run", "-n", "1", "-p", "0.5", "--", "env", "-0")
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == (ONE, "PCI_BUS_ID")
    assert found["BITFUSION_POOL_MEMORY_LIMITS"] == found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4680"
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    (device,) = json.loads(found["BITFUSION_POOL_DEVICES"])
    assert (device["uuid"], device["simulated"], device["memory_mib"]) == (ONE, False, 8000)
    assert "simulated" not in user.do("smi").stdout.lower()


def test_parts_of_a_card_are_handed_out_one_by_one(base: Path, machine: FakeMachine) -> None:
    machine.become(card(ONE, mig=[card(PART, 4864), card(PART.replace("3", "4"), 4864)]))
    running = RunningService(base).start()
    try:
        with running.client() as first, running.client() as second:
            assert first.acquire().server.devices[0].uuid == PART
            second.send(Acquire(GpuRequest(2)))
            assert second.expect(Refused).message.endswith(
                "CUDA gives a program one MIG device only, so they are handed out one by one"
            )
    finally:
        running.end()


def test_a_configuration_or_a_setting_decides_before_the_cards(base: Path, machine: FakeMachine) -> None:
    running = RunningService(base, "--gpus", "simulated").start()
    assert [device.simulated for device in look(running).servers[0].devices] == [True, True]
    running.end()
    running.options = ()
    assert numbers(look(running.start())) == [ONE, TWO]
    running.end()
    running.configure('[[servers]]\n[[servers.devices]]\nname = "Simulated X"\n')
    assert [device.name for device in look(running.start()).servers[0].devices] == ["Simulated X"]
    running.end()


def test_a_machine_without_a_driver_gets_simulated_gpus_and_the_log_says_why(
    base: Path, machine: FakeMachine
) -> None:
    machine.become(library=False)
    running = RunningService(base).start()
    try:
        assert logged(running, "GPUs are simulated")["reason"] == (
            f"{UNUSABLE}there is no NVIDIA driver (no libnvidia-ml.so.1)"
        )
        assert logged(running, "service started")["simulated"] is True
        with SocketClient(running.socket) as client:
            assert client.hello().simulated is True
    finally:
        running.end()
    assert not_started(running, "--gpus", "nvidia") == (
        f"Error: {UNUSABLE}there is no NVIDIA driver (no libnvidia-ml.so.1). What to do: install NVIDIA's "
        f"driver; containers get it from the NVIDIA container toolkit{INSTEAD}"
    )


def test_a_driver_that_is_out_of_order_is_no_reason_for_simulated_gpus(
    base: Path, machine: FakeMachine
) -> None:
    running = RunningService(base)
    machine.become(fails={"nvmlInitWithFlags": MISMATCH})
    assert not_started(running) == (
        f"Error: {UNUSABLE}the NVIDIA driver that is loaded and its library are of different versions. "
        f"What to do: restart the machine, as after every update of the driver{INSTEAD}"
    )
    machine.become(card(ONE, mig=[]))
    assert not_started(running) == (
        f"Error: {UNUSABLE}the NVIDIA driver knows no GPU that can be handed out; GPU 0: it is in MIG mode "
        "without MIG devices; make some: nvidia-smi mig -cgi …. What to do: see what nvidia-smi -L shows on "
        f"this machine{INSTEAD}"
    )


def test_cards_that_were_found_once_are_not_replaced_by_simulated_ones(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    nvidia.end()
    machine.become(card(ONE), card(TWO), fails={"nvmlInitWithFlags": NOT_LOADED})
    nvidia.start()
    assert logged(nvidia, "NVIDIA GPUs cannot be read")["reason"] == (
        f"{UNUSABLE}the NVIDIA driver is not loaded. "
        "What to do: load it: sudo modprobe nvidia; after an update: restart"
    )
    wait_until(lambda: all(use.problem for _, _, use in look(nvidia).use), "the first reading")
    with nvidia.client() as client:
        refused = client.ask(Acquire(GpuRequest(1)), Refused)
        why = f"{UNUSABLE}the NVIDIA driver is not loaded"
        assert refused.message == f"not enough GPUs available: 1 GPUs requested; GPU 0: {why}; GPU 1: {why}"
        machine.become(card(ONE), card(TWO))
        wait_until(lambda: not any(use.problem for _, _, use in look(nvidia).use), "the driver")
        client.acquire(GpuRequest(2))
    assert logged(nvidia, "GPU can be used again")["gpu"] == 0


def test_cards_keep_their_numbers_while_somebody_holds_one(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    with nvidia.client() as holder:
        granted = holder.acquire(GpuRequest(1, filters=(("device.id", "1"),)))
        assert granted.entry.shares[0].number == 1
        nvidia.end()
        machine.become(card(TWO))
        nvidia.start()
        wait_until(
            lambda: [bool(use.problem) for _, _, use in look(nvidia).use] == [True, False], "a reading"
        )
        shown = look(nvidia)
        assert numbers(shown) == [ONE, TWO]
        free = {share.number: share.memory_mib for share in shown.free}
        assert free == {0: 0, 1: 0}
    nvidia.until_entries(0)
    nvidia.end()
    machine.become(card(ONE, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}), card(TWO))
    assert numbers(look(nvidia.start())) == [TWO]
    reason = logged(nvidia, "GPU is not handed out")["reason"]
    assert reason == f"NVIDIA Test {ONE}: {LOST_TEXT}"


# --- what others use -----------------------------------------------------------------------------------


def test_what_others_use_is_shown_and_not_handed_out(
    user: PoolClient, nvidia: RunningService, machine: FakeMachine
) -> None:
    busy = card(ONE, used=5000, processes=[[NOBODY, 5000]])
    percent = become(nvidia, machine, busy, card(TWO, percent=None))
    assert user.do("smi").stdout == SMI.format(outside=OUTSIDE, percent=percent)
    listed = parse_list_gpus(user.do("list_gpus").stdout)[0].gpus[0]
    assert (listed.free_mib, listed.notes, listed.holders) == (11000, (OUTSIDE,), ())
    taken = user.do("run", "-n", "1", "-p", "0.8", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert taken.stdout == f"{TWO}\n"


def test_a_notebook_shows_who_holds_what_and_what_others_use(
    user: PoolClient, nvidia: RunningService, machine: FakeMachine
) -> None:
    asked = answer("pool", FakeKernel())
    assert isinstance(asked, RunClient)
    assert asked.render is not None
    busy = card(ONE, used=5000, processes=[[NOBODY, 5000]])
    lost = card(TWO, fails={"nvmlDeviceGetMemoryInfo_v2": LOST})
    with nvidia.client() as holder, nvidia.client() as waiter:
        held = holder.acquire(GpuRequest(1, 0.5, filters=(("device.id", "0"),)), "digits.ipynb")
        become(nvidia, machine, busy, lost)
        waiter.wait(GpuRequest(1, filters=(("device.id", "0"),)), "later.ipynb")
        listed = user.do(asked.subcommand)
        shown = asked.render(listed.stdout)
    assert listed.returncode == 0, listed.stderr
    who = held.entry.holder.user
    lines = [re.sub(r"since [^)]+\)", "since THEN)", line) for line in shown["text/plain"].splitlines()]
    assert lines == [
        "server                   GPU  free memory              tasks",
        "127.0.0.1:56001          0    3000 of 16000 MiB        1",
        f"     {OUTSIDE}",
        f"     8000 MiB held by {who}: digits.ipynb (1 GPU × 50 %, since THEN)",
        "127.0.0.1:56001          1    0 of 16000 MiB           0",
        f"     {LOST_TEXT}",
        "Waiting:",
        f"     position 1: {who}: later.ipynb (1 GPU, since THEN)",
    ]
    assert "NVIDIA Test</td>" in shown["text/html"]
    assert "simulated" not in shown["text/html"].lower()


def test_a_program_outside_the_pool_is_named_with_its_user(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    become(nvidia, machine, card(ONE, used=5000, processes=[[nvidia.pid, 5000]]), card(TWO))
    name = Path(f"/proc/{nvidia.pid}/comm").read_text().strip()
    owner = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert look(nvidia).use[0][2].text() == (
        f"5000 MiB used outside the pool: {name} of {owner} (pid {nvidia.pid})"
    )


def test_who_waits_for_memory_of_others_reads_why_and_gets_it_when_they_end(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    become(nvidia, machine, card(ONE, used=5000, processes=[[NOBODY, 5000]]), card(TWO))
    with nvidia.client() as client:
        text = client.wait(GpuRequest(1, filters=(("device.id", "0"),))).text
        assert text.endswith(f"; why: GPU 0: {OUTSIDE}, ask for less than whole GPUs, or wait")
        machine.become(card(ONE), card(TWO))
        assert client.expect(Granted).entry.shares[0].memory_mib == 16000


def test_the_status_of_its_folder_is_what_the_service_has_read(
    client: PoolClient, nvidia: RunningService, machine: FakeMachine
) -> None:
    """A command beside the service would take the programs of its users for strangers'."""
    client.environ.update(machine.variables)
    program = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        with nvidia.client() as holder:
            holder.acquire(GpuRequest(1, 0.5))
            used = card(ONE, used=5000, processes=[[program.pid, 5000]])
            become(nvidia, machine, used, card(TWO))
            status = client.admin("--dir", str(nvidia.folder), "status").stdout
            assert "8000" in status
            assert "outside the pool" not in status
            assert look(nvidia).use[0][2].text() == ""
    finally:
        program.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: processes of two users")
def test_two_users_have_half_a_card_each_and_neither_is_a_stranger(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    ann, bob = 54321, 54322
    programs = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=uid) for uid in (ann, bob)]
    clients = []
    try:
        for uid in (ann, bob):
            os.seteuid(uid)
            try:
                clients.append(nvidia.client())
            finally:
                os.seteuid(0)
        request = GpuRequest(1, 0.5, filters=(("device.id", "0"),))
        assert [client.acquire(request).entry.holder.uid for client in clients] == [ann, bob]
        first, second = (program.pid for program in programs)
        become(nvidia, machine, card(ONE, used=16000, processes=[[first, 8000], [second, 8000]]), card(TWO))
        assert [use.text() for _, _, use in look(nvidia).use] == ["", ""]
        # one takes more than his share, and something of a card where he has none
        beyond = card(ONE, used=16000, processes=[[first, 5000], [second, 11000]])
        become(nvidia, machine, beyond, card(TWO, used=700, processes=[[second, 700]]))
        assert [use.text() for _, _, use in look(nvidia).use] == [
            f"1976 MiB used outside the pool: cat of user {bob} (pid {second}, beyond its lease)",
            f"700 MiB used outside the pool: cat of user {bob} (pid {second})",
        ]
        # a service that is started anew knows the same
        nvidia.end(signal.SIGKILL)
        nvidia.start()
        become(nvidia, machine, beyond, card(TWO))
        assert [use.foreign_mib for _, _, use in look(nvidia).use] == [1976, 0]
    finally:
        for client in clients:
            client.close()
        for program in programs:
            program.communicate()


# --- a card or a driver that fails ---------------------------------------------------------------------


def test_a_lost_card_gets_no_new_lease_and_its_holder_keeps_his(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    with nvidia.client() as holder, nvidia.client() as other:
        held = holder.acquire(GpuRequest(1, 0.5, filters=(("device.id", "0"),)))
        machine.become(card(ONE, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}), card(TWO))
        wait_until(lambda: look(nvidia).use[0][2].problem == LOST_TEXT, "the next reading")
        assert logged(nvidia, "GPU cannot be used")["problem"] == LOST_TEXT
        assert other.acquire(GpuRequest(1, 0.5)).entry.shares[0].number == 1
        other.send(Acquire(GpuRequest(2)))
        message = other.expect(Refused).message
        assert message == f"not enough GPUs available: 2 GPUs requested; GPU 0: {LOST_TEXT}"
        assert held.entry.entry_id in [entry.entry_id for entry in look(nvidia).entries]
        machine.become(card(ONE), card(TWO))
        wait_until(lambda: not look(nvidia).use[0][2].problem, "the card is back")
        holder.release(held)


def test_a_driver_that_hangs_delays_nobody_for_longer_than_a_moment(
    nvidia: RunningService, machine: FakeMachine
) -> None:
    machine.become(card(ONE), card(TWO), hangs={"nvmlInitWithFlags": 600})
    children = Path(f"/proc/{nvidia.pid}/task/{nvidia.pid}/children")
    # every client has its answer in time, whether or not it is the one that had to wait for the reading
    wait_until(lambda: look(nvidia) and children.read_text(), "a reading that hangs")
    with nvidia.client() as client:
        granted = client.acquire(GpuRequest(1))
        assert children.read_text()
        client.release(granted)


def test_a_program_that_failed_hears_that_its_card_was_lost(
    user: PoolClient, machine: FakeMachine, base: Path
) -> None:
    (base / "lost").mkdir()
    FakeMachine(base / "lost", card(ONE, fails={"nvmlDeviceGetMemoryInfo_v2": LOST}), card(TWO))
    process = user.start(
        "run", "-n", "1", "--", "sh", "-c", f"cp {base}/lost/machine.json {base}/machine.json; exit 3"
    )
    _, err = finish(process)
    assert process.returncode == 3
    assert err.splitlines()[-1].endswith(f" GPU 0 (NVIDIA Test): {LOST_TEXT}")
