"""What counts as used outside the pool, and what is left to hand out."""

from __future__ import annotations

import pytest

from bitfusion_pool.inventory.nvidia.cards import Card, CardProcess, Reading
from bitfusion_pool.inventory.nvidia.device_use import (
    DeviceUse,
    less_what_is_used,
    steady_use,
    unreadable_use,
    usable_servers,
    use_from_json,
    use_of_devices,
    use_to_json,
)
from bitfusion_pool.inventory.servers import Device, Server

OURS, THEIRS = 100, 200
REAL = Device(0, "NVIDIA Test", 16000, simulated=False, uuid="GPU-1")
SERVER = Server("local", "127.0.0.1", 56001, (REAL,))
SIMULATED = Server("other", "127.0.0.2", 56001, (Device(0, "x", 16160),))
KEY = (SERVER.key, 0)
Processes = list[tuple[int, int | None]]


def owner_of(pid: int) -> str:
    return {OURS: "ada", OURS + 1: "ada", THEIRS: "bob"}.get(pid, "")


def use(used: int, processes: Processes, leased: tuple[int, ...] = (), theirs: int = 0) -> DeviceUse:
    card = Card("GPU-1", "NVIDIA Test", 16000, used, 7, tuple(CardProcess(*one) for one in processes))
    names = {7: "Xorg", 8: "python", 9: "blender", 10: "game", OURS: "a", OURS + 1: "a", THEIRS: "b"}
    found = use_of_devices(
        (SERVER, SIMULATED),
        Reading("", "", (card,)),
        {KEY: {"ada": leased, **({"bob": (theirs,)} if theirs else {})} if leased else {}},
        owner_of,
        lambda pid: names.get(pid, ""),
    )
    assert set(found) == {KEY}
    return found[KEY]


@pytest.mark.parametrize(
    ("used", "processes", "leased", "foreign", "programs"),
    [
        (0, [], (), 0, ""),
        (900, [], (), 0, ""),  # what no process explains and CUDA itself may take
        (300, [(7, 300)], (), 300, "Xorg (pid 7)"),
        (8600, [(OURS, 8600)], (8000,), 0, ""),  # a lease and its context
        (8900, [(OURS, 8600), (7, 300)], (8000,), 300, "Xorg (pid 7)"),
        (5000, [(33, 5000)], (), 5000, "a program that cannot be seen here (pid 33)"),
        (5000, [(7, None)], (), 5000, "Xorg (pid 7)"),  # its memory is not told
        (5000, [], (), 5000, "programs that cannot be seen here"),  # another container's
        (8500, [], (8000,), 0, ""),  # a lease in a container
        (12000, [], (8000,), 2976, "programs that cannot be seen here"),
        (
            40,
            [(7, 10), (8, 10), (9, 10), (10, 10)],
            (),
            40,
            "Xorg (pid 7), python (pid 8), blender (pid 9), 1 more",
        ),
        (99999, [(7, 99999)], (), 16000, "Xorg (pid 7)"),
    ],
)
def test_used_outside_the_pool(
    used: int, processes: Processes, leased: tuple[int, ...], foreign: int, programs: str
) -> None:
    assert use(used, processes, leased) == DeviceUse(foreign, programs, 7)


@pytest.mark.parametrize(
    ("used", "processes", "foreign", "programs"),
    [
        (15000, [(OURS, 8500), (THEIRS, 6500)], 0, ""),  # each with its context
        (
            11000,
            [(OURS, 8500), (OURS + 1, 2500)],
            1976,
            "a (pid 100, beyond its lease), a (pid 101, beyond its lease)",
        ),
        (12000, [(THEIRS, 12000)], 12000 - 7024, "b (pid 200, beyond its lease)"),  # not out of ada's
        (15000, [(OURS, 8000), (THEIRS, None)], 0, ""),  # bob's memory is not told, and fits
        (15000, [(OURS, 8000)], 0, ""),  # bob's process is not told at all
        (9000, [(7, 1000), (OURS, 8000)], 1000, "Xorg (pid 7)"),
    ],
)
def test_each_owner_may_use_what_he_has_leased_and_no_more(
    used: int, processes: Processes, foreign: int, programs: str
) -> None:
    assert use(used, processes, (8000,), 6000) == DeviceUse(foreign, programs, 7)


def test_who_has_leased_another_device_is_a_stranger_here() -> None:
    assert use(3000, [(OURS, 3000)]) == DeviceUse(3000, "a (pid 100)", 7)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (DeviceUse(5000, "x", 7), DeviceUse(4900, "y", 8), DeviceUse(5000, "y", 8)),
        (DeviceUse(5000, "x"), DeviceUse(4744, "x"), DeviceUse(4744, "x")),
        (DeviceUse(5000, "x"), DeviceUse(5001, "x"), DeviceUse(5001, "x")),
        (DeviceUse(100, "x"), DeviceUse(), DeviceUse()),
        (DeviceUse(problem="lost"), DeviceUse(5, "x"), DeviceUse(5, "x")),
        (DeviceUse(5, "x"), DeviceUse(problem="lost"), DeviceUse(problem="lost")),
        (None, DeviceUse(5, "x"), DeviceUse(5, "x")),
    ],
)
def test_small_changes_of_others_memory_are_not_told(
    before: DeviceUse | None, now: DeviceUse, told: DeviceUse
) -> None:
    assert steady_use({KEY: before} if before else {}, {KEY: now}) == {KEY: told}


def test_a_card_that_is_gone_or_lost_has_a_problem() -> None:
    gone = use_of_devices((SERVER,), Reading("", "", ()), {}, owner_of, str)
    assert gone[KEY].text() == (
        "the driver no longer shows it: it has fallen off the bus, or its MIG devices were changed"
    )
    lost = Card("GPU-1", "x", 0, problem="it is lost")
    found = use_of_devices((SERVER,), Reading("", "", (lost,)), {}, owner_of, str)
    assert found == {KEY: DeviceUse(problem="it is lost")}
    assert usable_servers((SERVER, SIMULATED), found)[0].devices == ()
    assert usable_servers((SERVER, SIMULATED), found)[1] == SIMULATED
    assert usable_servers((SERVER,), {}) == (SERVER,)


@pytest.mark.parametrize(
    ("before", "found", "left"),
    [
        (16000, DeviceUse(), 16000),
        (16000, DeviceUse(300, "Xorg"), 15700),
        (100, DeviceUse(300, "Xorg"), -200),
        (16000, DeviceUse(problem="it is lost"), 0),
        (-5, DeviceUse(problem="it is lost"), -5),
    ],
)
def test_what_is_left_to_hand_out(before: int, found: DeviceUse, left: int) -> None:
    free = {KEY: before}
    less_what_is_used(free, {KEY: found, ("gone", 3): DeviceUse(5, "x")})
    assert free == {KEY: left}


def test_what_the_ledger_keeps_comes_back() -> None:
    found = {KEY: DeviceUse(300, "Xorg (pid 7)", None, "")} | unreadable_use((SIMULATED,), "x")
    assert use_from_json(use_to_json(found)) == found
    assert unreadable_use((SERVER,), "the driver is not loaded") == {
        KEY: DeviceUse(problem="the driver is not loaded")
    }
