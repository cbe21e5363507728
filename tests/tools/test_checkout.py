"""What labels and archives say about this folder's state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.clones import IDENTITY, git
from tools import checkout


@pytest.mark.parametrize(
    ("remote", "told"),
    [
        ("https://example.com/team/project.git", "https://example.com/team/project"),
        ("https://ada:secret@example.com/team/project", "https://example.com/team/project"),
        ("git@example.com:team/project.git", "https://example.com/team/project"),
        ("ssh://git@example.com:2222/team/project.git", "https://example.com/team/project"),
        ("/srv/git/project.git", ""),
        ("../project", ""),
        ("file:///srv/project", ""),
        ("", ""),
    ],
)
def test_a_remote_is_told_as_an_address_without_credentials(remote: str, told: str) -> None:
    assert checkout.address(remote) == told


def test_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nversion = "1.2"\n')
    without = checkout.read(tmp_path)
    assert without == checkout.Checkout("1.2", int(project.stat().st_mtime))
    git(tmp_path, "init", "--quiet")
    assert checkout.read(tmp_path) == without, "there is no commit yet"
    git(tmp_path, "add", ".")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1700000000 +0100")
    git(tmp_path, *IDENTITY, "commit", "--quiet", "--message=one")
    clean = checkout.read(tmp_path)
    revision = git(tmp_path, "rev-parse", "HEAD")
    assert clean == checkout.Checkout("1.2", 1700000000, revision)
    assert clean.created == "2023-11-14T22:13:20Z"
    (tmp_path / "mine.yaml").write_text("an admin's own file changes no image\n")
    assert checkout.read(tmp_path).revision == revision
    project.write_text('version = "1.3"\n')
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    assert checkout.read(tmp_path) == checkout.Checkout("1.3", 5, f"{revision}-dirty")
