"""Wake-ups: from another process's point of view, without a pipe, cleaned up."""

from __future__ import annotations

import os
from pathlib import Path

from bitfusion_pool.ledger.files.pool_folder import WAKE_UPS, ensure_subfolder
from bitfusion_pool.ledger.files.wake_up import WakeUp, remove_leftover_pipes, wake


def test_a_waiter_is_woken_once_by_any_number_of_calls(tmp_path: Path) -> None:
    ensure_subfolder(str(tmp_path), WAKE_UPS)
    wake_up = WakeUp(str(tmp_path), "entry")
    wake_up.open()
    wake(str(tmp_path), "entry")
    wake(str(tmp_path), "entry")
    assert wake_up.wait(600)
    assert not wake_up.wait(0)
    wake_up.close()
    assert os.listdir(tmp_path / "bells") == []


def test_waking_somebody_who_is_gone_does_nothing(tmp_path: Path) -> None:
    ensure_subfolder(str(tmp_path), WAKE_UPS)
    wake(str(tmp_path), "entry")
    assert os.listdir(tmp_path / "bells") == []


def test_without_a_pipe_a_waiter_just_sleeps(tmp_path: Path) -> None:
    wake_up = WakeUp(str(tmp_path / "missing" / "too"), "entry")
    wake_up.open()
    assert not wake_up.wait(0.01)
    wake_up.close()


def test_pipes_of_unknown_entries_are_deleted(tmp_path: Path) -> None:
    ensure_subfolder(str(tmp_path), WAKE_UPS)
    for name in ("known", "unknown"):
        os.mkfifo(tmp_path / "bells" / name)
    remove_leftover_pipes(str(tmp_path), {"known"})
    assert os.listdir(tmp_path / "bells") == ["known"]
