"""tokens.json: hashes only, changed under a lock, looked at again at each question, never half believed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_pool.access.token_file import TokenFile, change_tokens, read_tokens
from bitfusion_pool.access.token_rules import TokenLimits
from bitfusion_pool.access.tokens import Grant, Tokens, WrongToken

NOW = 1_800_000_000.0


def issue(folder: Path, name: str) -> str:
    text = ""

    def change(tokens: Tokens) -> Tokens:
        nonlocal text
        changed, text = tokens.with_new(name, NOW + 1000, TokenLimits(), NOW)
        return changed

    change_tokens(str(folder), change)
    return text


def test_without_a_file_there_are_no_tokens(tmp_path: Path) -> None:
    assert read_tokens(str(tmp_path)).all == ()
    assert TokenFile(str(tmp_path)).tokens().all == ()


def test_the_file_is_its_users_alone(tmp_path: Path) -> None:
    issue(tmp_path, "ada")
    for name in ("tokens.json", "tokens.lock"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["tokens.json", "tokens.lock"]


def test_a_service_sees_every_change_at_once(tmp_path: Path) -> None:
    service = TokenFile(str(tmp_path))
    service.tokens()
    for round in range(20):
        text = issue(tmp_path, f"user{round}")
        assert isinstance(service.tokens().check(text, NOW), Grant)
        change_tokens(str(tmp_path), lambda tokens: tokens.without(tokens.all[-1], NOW))
        refusal = service.tokens().check(text, NOW)
        assert isinstance(refusal, WrongToken)
        assert refusal.code == "token_revoked"
    (tmp_path / "tokens.json").unlink()
    assert service.tokens().all == ()


def test_commands_at_once_lose_no_token(tmp_path: Path) -> None:
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda name=f"user{number}": texts.append(issue(tmp_path, name)))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tokens = read_tokens(str(tmp_path))
    assert len(texts) == 16
    assert all(isinstance(tokens.check(text, NOW), Grant) for text in texts)


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    issue(tmp_path, "ada")
    before = (tmp_path / "tokens.json").read_text()

    def change(tokens: Tokens) -> Tokens:
        raise ClientFailed("", "no")

    with pytest.raises(ClientFailed):
        change_tokens(str(tmp_path), change)
    assert (tmp_path / "tokens.json").read_text() == before


def test_a_damaged_file_lets_nobody_in_and_is_told(tmp_path: Path) -> None:
    service = TokenFile(str(tmp_path))
    issue(tmp_path, "ada")
    service.tokens()
    path = tmp_path / "tokens.json"
    whole = path.read_text()
    path.write_text(whole[:-20])
    for _ in range(2):  # not only the first time
        with pytest.raises(PoolUnreadable) as error:
            service.tokens()
    assert str(error.value) == (
        f"pool configuration {path} is damaged: it is not JSON. What to do: put a copy back, or move it "
        f"away and issue new tokens: mv {path} {path}.damaged"
    )
    path.write_bytes(b"\xff")
    with pytest.raises(PoolUnreadable, match="is damaged: it is not text in UTF-8"):
        service.tokens()
    path.write_text(whole)
    assert len(service.tokens().all) == 1


def test_what_others_put_there_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    (tmp_path / "tokens.json").symlink_to("other")
    with pytest.raises(PoolUnreadable, match="is a symbolic link, not a file of yours"):
        read_tokens(str(tmp_path))
    (tmp_path / "tokens.json").unlink()
    os.mkfifo(tmp_path / "tokens.lock")
    with pytest.raises(PoolUnreadable, match="is a named pipe, not a file of yours"):
        issue(tmp_path, "ada")
