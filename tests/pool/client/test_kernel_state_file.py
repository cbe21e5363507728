"""The state file of a kernel: files that say nothing, and how often it is looked at."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.kernel_state.activity import UNKNOWN, KernelActivity
from bitfusion_pool.client.kernel_state_file import KernelStateFile, read_activity, report
from bitfusion_pool.messages.from_client import Report
from tests.support.machine import scaled

SAID = {"version": 1, "state": "running", "since": 5.0, "idle_since": None, "notebook": "digits.ipynb"}
TEXT = json.dumps(SAID)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def link(path: Path) -> None:
    (path.parent / "other").write_text(TEXT)
    path.symlink_to(path.parent / "other")


def hard_link(path: Path) -> None:
    path.write_text(TEXT)
    os.link(path, path.parent / "other")


def of_another_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path.write_text(TEXT)
    os.chown(path, 1234, 1234)


def unreadable(path: Path) -> None:
    path.write_text(TEXT)
    path.chmod(0)
    if not os.geteuid():
        path.unlink()  # root reads everything


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def test_what_the_file_says(path: Path) -> None:
    path.write_text(TEXT)
    assert read_activity(str(path)) == KernelActivity("running", 5.0, None, "digits.ipynb")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "make",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        link,
        hard_link,
        of_another_user,
        unreadable,
        lambda path: path.write_text(""),
        lambda path: path.write_text(TEXT[:-1]),
        lambda path: path.write_text(TEXT + " " * 70_000),
        lambda path: path.write_text("[" * 60_000),
        lambda path: path.write_text("null"),
        lambda path: path.write_text(TEXT.replace("5.0", "NaN")),
        lambda path: path.write_text(TEXT.replace("5.0", "9" * 60_000)),
        lambda path: path.write_bytes(b"\xff" + TEXT.encode()),
        huge,
    ],
    ids=lambda make: make.__name__ if make.__name__ != "<lambda>" else "",
)
def test_a_file_that_says_nothing_is_no_error(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    begin = time.monotonic()
    assert read_activity(str(path)) == UNKNOWN
    assert time.monotonic() - begin < scaled(1)


@pytest.mark.parametrize("name", ["state.json", "", "/nul\0", "/" + "x" * 5000, "/dev/zero", "/dev/stdin"])
def test_a_path_that_leads_nowhere_is_no_error(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(TEXT)
    monkeypatch.chdir(path.parent)  # a keeper stands elsewhere than its wrapper
    assert read_activity(name) == UNKNOWN


def test_a_file_that_changes_all_the_time_is_told_every_other_second(path: Path) -> None:
    file, told = KernelStateFile(str(path)), []
    for step in range(10_000):  # ten seconds, a thousand changes in each
        now = step / 1000
        if now >= file.next_look:
            path.write_text(json.dumps({**SAID, "since": step}))
        activity = file.look(now)
        if activity is not None:
            file.told(activity, now)
            told.append(now)
    assert len(told) <= 6


def test_only_what_is_new_is_told_and_again_where_it_may_not_have_arrived(path: Path) -> None:
    file = KernelStateFile(str(path))
    assert file.look(0.0) is None  # there is none, which is nothing new
    path.write_text(TEXT)
    assert file.look(0.5) is None  # too early
    running = file.look(1.0)
    assert running is not None
    assert file.look(2.0) == running  # was not told
    file.told(running, 2.0)
    assert file.look(4.0) is None
    file.forget()
    assert file.look(5.0) == running
    file.told(running, 5.0)
    path.unlink()
    assert file.look(7.0) == UNKNOWN


def test_a_service_is_told_ages_because_clocks_differ() -> None:
    now = time.time()
    assert report("id", "secret", UNKNOWN).state == ""
    found = report("id", "secret", KernelActivity("idle", now - 5, now - 60, "x"))
    assert found.for_s == pytest.approx(5, abs=2)
    assert found.idle_s == pytest.approx(60, abs=2)
    assert report("id", "secret", KernelActivity("running", now)).idle_s == -1
    assert isinstance(found, Report)
