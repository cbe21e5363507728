"""History before a kernel exists, compared with IPython's own manager on the same file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShellABC
from traitlets.config import Config

from bitfusion_kernel.offline.history import history_file, history_reply

INPUTS = ["import os", "x = 1", "%time x", "x = 1", "print('ä')", "x = 2", "import sys"]


class Shell:
    """As much of a shell as the manager asks for."""

    def push(self, *args: object, **kwargs: object) -> None:
        """Variables of the user's namespace."""


InteractiveShellABC.register(Shell)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "a b?#%" / "history.sqlite")
    os.mkdir(os.path.dirname(path))
    for round_ in range(3):
        manager = _manager(path)
        for number, text in enumerate(INPUTS[round_:], 1):
            manager.store_inputs(number, text.replace("%time", "time"), text)
            manager.output_hist_reprs[number] = f"out {number}"
            manager.db_log_output = number % 2 == 0
            manager.store_output(number)
        manager.writeout_cache()
        _close(manager)
    return path


def _manager(path: str) -> HistoryManager:
    config = Config()
    config.HistoryManager.hist_file = path
    return HistoryManager(shell=Shell(), config=config)  # type: ignore[arg-type]  # registered, see above


def _close(manager: HistoryManager) -> None:
    manager.end_session()
    if manager.save_thread is not None:
        manager.save_thread.stop()
    manager.db.close()


def _ipykernel_answer(path: str, content: dict[str, Any]) -> list[Any]:
    """What `IPythonKernel.do_history` does, on a fresh session."""
    manager = _manager(path)
    try:
        raw, output = content["raw"], content["output"]
        if content["hist_access_type"] == "tail":
            found = manager.get_tail(content["n"], raw=raw, output=output, include_latest=True)
        elif content["hist_access_type"] == "range":
            found = manager.get_range(
                content["session"], content["start"], content.get("stop"), raw=raw, output=output
            )
        else:
            found = manager.search(
                content["pattern"], raw=raw, output=output, n=content.get("n"), unique=content["unique"]
            )
        return [_plain(line) for line in found]
    finally:
        _close(manager)


def _plain(line: tuple[int, int, Any]) -> list[Any]:
    text = line[2]
    return [line[0], line[1], list(text) if isinstance(text, tuple) else text]


def _ours(path: str, content: dict[str, Any]) -> list[Any]:
    reply = history_reply(content, [f"--HistoryManager.hist_file={path}"], {})
    assert reply["status"] == "ok"
    lines = reply["history"]
    assert isinstance(lines, list)
    return lines


REQUESTS: list[dict[str, Any]] = [
    {"hist_access_type": "tail", "n": 3},
    {"hist_access_type": "tail", "n": 100},
    {"hist_access_type": "tail", "n": 10},
    *(
        {"hist_access_type": "range", "session": session, "start": start, "stop": stop}
        for session in (0, 1, 2, -1, -2, 9)
        for start, stop in ((0, None), (1, 3), (1, None), (0, 1), (2, 2), (-1, None))
    ),
    *(
        {"hist_access_type": "search", "pattern": pattern, "n": n, "unique": unique}
        for pattern in ("*", "x*", "?mport*", "nothing", "*ä*")
        for n in (None, 2)
        for unique in (False, True)
    ),
]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("output", [True, False])
def test_answers_as_ipykernel(file: str, raw: bool, output: bool) -> None:
    for request in REQUESTS:
        content = {**request, "raw": raw, "output": output}
        # the manager begins a session of its own, which would shift ours: ask us first
        ours = _ours(file, content)
        before = Path(file).read_bytes()
        assert ours == _ipykernel_answer(file, content), content
        Path(file).write_bytes(before)


def test_only_reads(file: str) -> None:
    before = Path(file).read_bytes()
    os.chmod(file, 0o400)
    folder = sorted(os.listdir(os.path.dirname(file)))
    assert _ours(file, {"hist_access_type": "tail", "n": 2})
    assert Path(file).read_bytes() == before
    assert sorted(os.listdir(os.path.dirname(file))) == folder


def test_a_file_that_another_locks_is_an_empty_history(file: str) -> None:
    database = sqlite3.connect(file)
    database.execute("BEGIN EXCLUSIVE")
    try:
        assert _ours(file, {"hist_access_type": "tail", "n": 2}) == []
    finally:
        database.rollback()
        database.close()


def test_what_cannot_be_read_is_empty(tmp_path: Path, file: str) -> None:
    missing = str(tmp_path / "missing.sqlite")
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 100)
    for path in (missing, str(broken), str(tmp_path), ":memory:"):
        assert _ours(path, {"hist_access_type": "tail", "n": 2}) == []
    assert not os.path.exists(missing)
    for content in (
        {},
        {"hist_access_type": "tail", "n": "x"},
        {"hist_access_type": "search", "pattern": []},
    ):
        assert _ours(file, content) == []


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ([], {"IPYTHONDIR": "/i"}, "/i/profile_default/history.sqlite"),
        (["--profile=a"], {"IPYTHONDIR": "/i"}, "/i/profile_a/history.sqlite"),
        (["--profile", "a"], {"IPYTHONDIR": "/i"}, "/i/profile_a/history.sqlite"),
        (["--ipython-dir=/j"], {"IPYTHONDIR": "/i"}, "/j/profile_default/history.sqlite"),
        (["--ProfileDir.location=/p"], {}, "/p/history.sqlite"),
        (["--HistoryManager.hist_file=/h"], {"IPYTHONDIR": "/i"}, "/h"),
        (["--HistoryManager.hist_file=:memory:"], {}, None),
        (["--HistoryManager.enabled=False"], {}, None),
    ],
)
def test_finds_the_file(options: list[str], environ: dict[str, str], expected: str | None) -> None:
    assert history_file(options, environ) == expected
