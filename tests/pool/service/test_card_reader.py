"""Readings that do not block the event loop, and what becomes of those that never end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from bitfusion_pool.inventory.nvidia import reading_process
from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable
from bitfusion_pool.service.devices.card_reader import CardReader
from tests.pool.inventory.nvidia.fake_machine import ONE, FakeMachine, card
from tests.support.machine import scaled

UNUSABLE = "this machine's NVIDIA GPUs cannot be used: "


def read(machine: FakeMachine, limit_s: float = 60.0) -> str:
    """The uuids of the cards, or why there are none."""

    async def once() -> str:
        try:
            reading = await CardReader({**os.environ, **machine.variables}, limit_s).read()
        except NvidiaUnusable as error:
            return str(error.answered)
        return " ".join(one.uuid for one in reading.cards)

    return asyncio.run(once())


def test_a_reading_has_the_cards(tmp_path: Path) -> None:
    assert read(FakeMachine(tmp_path, card(ONE))) == ONE


def test_a_driver_that_hangs_is_given_up(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, card(), hangs={"nvmlInitWithFlags": 600})
    assert read(machine, 0.1) == f"{UNUSABLE}the NVIDIA driver did not answer within 0.1 s"


def test_a_library_that_crashes_is_told(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, card(), dies="nvmlInitWithFlags")
    why = "the NVIDIA library ended the process that asked it (signal 6)"
    assert read(machine) == f"{UNUSABLE}{why}"


def test_a_process_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/none")
    why = "the process that asks the NVIDIA driver cannot be started (No such file or directory)"
    assert read(FakeMachine(tmp_path, card())) == f"{UNUSABLE}{why}"


def test_the_loop_goes_on_meanwhile_and_no_second_process_is_started_beside_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path, card(), hangs={"nvmlInitWithFlags": 600})
    started = []
    start = reading_process.start_reading

    def start_unkillable(environ: dict[str, str]) -> object:
        process = start(environ)
        started.append((process, process.kill))
        process.kill = lambda: None  # type: ignore[method-assign]  # as in the driver, where no signal comes
        return process

    monkeypatch.setattr("bitfusion_pool.service.devices.card_reader.start_reading", start_unkillable)
    monkeypatch.setattr("bitfusion_pool.service.devices.card_reader._END_S", 0.05)

    async def twice() -> int:
        reader = CardReader({**os.environ, **machine.variables}, scaled(0.2))
        rounds = 0
        for _ in range(2):
            reading = asyncio.ensure_future(reader.read())
            while not reading.done():
                rounds += 1
                await asyncio.sleep(0)
            with pytest.raises(NvidiaUnusable, match="did not answer within"):
                reading.result()
        return rounds

    try:
        assert asyncio.run(twice()) > 10
        assert len(started) == 1
    finally:
        for process, kill in started:
            kill()
            process.wait()
