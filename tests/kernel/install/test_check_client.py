"""The doctor on the `bitfusion` command: it fails, hangs, says nothing, or its pool's folder is closed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_kernel.install import check_client
from bitfusion_kernel.install.finding import FAIL, PASS

Report = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: no more'; exit 1", "no more"),
        ("echo 'Error: no more'", "no more"),
        ("exit 3", "FAIL"),
        ("true", "said nothing"),
    ],
)
def test_client_does_not_answer(
    spec: Path,
    client: Callable[[str], Path],
    script: str,
    words: str,
    report: Report,
) -> None:
    client(script)
    status, said = report()
    assert status == (0 if script == "true" else 1)
    assert words in said


def test_client_hangs(monkeypatch: pytest.MonkeyPatch, client: Callable[[str], Path]) -> None:
    client("exec sleep 20")
    monkeypatch.setattr(check_client, "CLIENT_LIMIT", 0.2)
    finding = check_client.ask_client(os.environ["BITFUSION_CLIENT"], ["version"])
    assert finding.verdict == FAIL
    assert "no answer" in finding.found


def test_client_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check_client.check_client("/no/such/bitfusion")
    assert finding.verdict == FAIL
    assert finding.next_step


def test_pool_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_client.check_pool_folder(str(tmp_path)).verdict == PASS
    assert check_client.check_pool_folder(str(tmp_path / "new")).verdict == PASS
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = check_client.check_pool_folder(str(tmp_path))
    assert finding.verdict == FAIL
    assert "BITFUSION_POOL_DIR" in finding.next_step
