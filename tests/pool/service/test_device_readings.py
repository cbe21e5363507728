"""When the devices are read, who is held back for that, and for how long."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.inventory.nvidia.cards import Card, CardProcess, Reading
from bitfusion_pool.inventory.nvidia.reading_process import too_slow
from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.service.devices import device_readings
from bitfusion_pool.service.devices.card_reader import CardReader
from bitfusion_pool.service.devices.device_readings import (
    WHILE_HELD_S,
    WHILE_IDLE_S,
    WHILE_WAITING_S,
    DeviceReadings,
    pause_s,
)

REAL = '[[servers]]\n[[servers.devices]]\nuuid = "GPU-1"\nname = "NVIDIA Test"\nmemory_mib = 16000\n'
NOBODY = 2**22 + 1
KEY = ("127.0.0.1:56001", 0)


class Driver(CardReader):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked = 0
        self.answers: asyncio.Event | None = None
        self.used = 0
        self.hangs = False

    async def read(self) -> Reading:
        self.asked += 1
        if self.answers is not None:
            await self.answers.wait()
        if self.hangs:
            raise too_slow(8)
        processes = (CardProcess(NOBODY, self.used),) if self.used else ()
        return Reading("", "", (Card("GPU-1", "NVIDIA Test", 16000, self.used, self.asked % 100, processes),))


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how fast the machine is."""
    monkeypatch.setattr(device_readings, "HOLD_S", 1000.0)
    monkeypatch.setattr(device_readings, "FRESH_S", 1000.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    (tmp_path / "pool").mkdir(mode=0o700)
    (tmp_path / "pool" / "pool.toml").write_text(REAL)
    with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(tmp_path / "pool")}) as ledger:
        yield ledger


@pytest.fixture
def driver() -> Driver:
    return Driver()


def with_readings(
    ledger: Ledger,
    driver: Driver,
    steps: Callable[[DeviceReadings], Awaitable[None]],
    changed: Callable[[], None] = lambda: None,
) -> None:
    """Do the steps of a test beside readings that run."""

    async def both() -> None:
        readings = DeviceReadings(ledger, driver, asyncio.get_running_loop(), changed)
        running = asyncio.ensure_future(readings.run())
        try:
            await steps(readings)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(both())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("states", "is_asked", "seconds"),
    [
        ([], False, WHILE_IDLE_S),
        ([HELD], False, WHILE_HELD_S),
        ([HELD, WAITING], False, WHILE_WAITING_S),
        ([], True, 1000.0),
        ([WAITING], True, 1000.0),
    ],
)
def test_how_often_the_devices_are_read(states: list[str], is_asked: bool, seconds: float) -> None:
    assert pause_s(states, is_asked) == seconds


def test_who_asks_is_answered_after_a_reading_in_order_and_then_at_once(
    ledger: Ledger, driver: Driver
) -> None:
    answered: list[int] = []

    async def steps(readings: DeviceReadings) -> None:
        driver.answers = asyncio.Event()
        for number in range(5):
            readings.once_known(partial(answered.append, number))
        await until(lambda: driver.asked)
        assert answered == []
        driver.answers.set()
        while not answered:
            await asyncio.sleep(0)
        assert answered == [0]  # one in a round of the loop, and who comes now does not overtake
        readings.once_known(lambda: answered.append(5))
        await until(lambda: len(answered) == 6)
        assert answered == [0, 1, 2, 3, 4, 5]
        readings.once_known(lambda: answered.append(6))
        assert answered[-1] == 6
        assert driver.asked == 1

    with_readings(ledger, driver, steps)


def test_a_driver_that_does_not_answer_holds_back_nobody_after_the_first_moment(
    ledger: Ledger, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_readings, "HOLD_S", 0.05)
    monkeypatch.setattr(device_readings, "FRESH_S", 0.0)
    answered: list[str] = []

    async def steps(readings: DeviceReadings) -> None:
        driver.answers = asyncio.Event()
        readings.once_known(lambda: answered.append("first"))
        assert answered == []
        await until(lambda: answered)
        readings.once_known(lambda: answered.append("second"))
        assert answered == ["first", "second"]
        driver.hangs = True
        driver.answers.set()
        await until(lambda: ledger.device_use)
        assert ledger.device_use[KEY].problem == (
            "this machine's NVIDIA GPUs cannot be used: the NVIDIA driver did not answer within 8 s"
        )

    with_readings(ledger, driver, steps)


def test_an_answer_that_fails_keeps_nobody_from_his(
    ledger: Ledger, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    answered: list[int] = []

    async def steps(readings: DeviceReadings) -> None:
        readings.once_known(lambda: answered.append(1 // 0))
        readings.once_known(lambda: answered.append(1))
        await until(lambda: answered)

    with_readings(ledger, driver, steps)
    assert "ZeroDivisionError" in caplog.text


def test_without_real_devices_the_driver_is_never_asked(tmp_path: Path, driver: Driver) -> None:
    answered: list[int] = []

    async def steps(readings: DeviceReadings) -> None:
        readings.once_known(lambda: answered.append(1))
        assert answered == [1]
        await asyncio.sleep(0.01)

    with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(tmp_path / "other")}) as simulated:
        with_readings(simulated, driver, steps)
    assert driver.asked == 0


def test_a_ledger_that_cannot_be_read_holds_nobody_back(
    ledger: Ledger, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> bool:
        raise PoolUnreadable("", "it is damaged", "make a new one")

    answered: list[int] = []

    async def steps(readings: DeviceReadings) -> None:
        monkeypatch.setattr(Ledger, "has_real_devices", property(broken))
        readings.once_known(lambda: answered.append(1))
        assert answered == [1]

    with_readings(ledger, driver, steps)


def test_what_changes_is_told_and_how_busy_a_card_is_does_not_count(
    ledger: Ledger, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_readings, "FRESH_S", 0.0)
    told: list[int] = []

    async def steps(readings: DeviceReadings) -> None:
        for used in (0, 5000, 4900, 4000, 0):
            driver.used = used
            asked = driver.asked
            # one that begins now: the one before may have begun with the old value
            for _ in range(2):
                answered: list[int] = []
                readings.once_known(partial(answered.append, 1))
                await until(partial(bool, answered))
            assert driver.asked > asked
            told.append(ledger.device_use[KEY].foreign_mib)

    changes: list[int] = []
    with_readings(ledger, driver, steps, lambda: changes.append(1))
    assert told == [0, 5000, 5000, 4000, 0]
    assert len(changes) == 4  # the first reading, and three other amounts


def test_a_ledger_that_cannot_be_written_is_logged_and_the_readings_go_on(
    ledger: Ledger, driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: object) -> None:
        raise PoolUnreadable("", "the disk is full", "free some space")

    async def steps(readings: DeviceReadings) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(ledger, "note_device_use", full)
            await until(lambda: "devices cannot be noted" in caplog.text)
        answered: list[int] = []
        monkeypatch.setattr(device_readings, "FRESH_S", 0.0)
        readings.once_known(lambda: answered.append(1))
        await until(lambda: answered and ledger.device_use)

    with caplog.at_level(logging.INFO):
        with_readings(ledger, driver, steps)
