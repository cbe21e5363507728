"""Where identities come from: the command's answers, and everything that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitfusion_device_plugin.identity import sources
from bitfusion_device_plugin.identity.sources import FilesSource, IssuerSource, NoIdentity

FILES = {"servers.conf": "servers:\n", "client.yaml": "token\n", "ca.crt": "PEM\n"}
ANSWER = {"name": "c/team-a", "id": "id1", "created": 100.0, "expires": 400.0, "files": FILES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def source(folder: Path, shell: str) -> IssuerSource:
    """One whose command is a line of shell, which gets the real one's words."""
    return IssuerSource(str(folder), ("/bin/sh", "-c", shell, "command"), lambda: 1000.0)


def answering(folder: Path, answer: object) -> IssuerSource:
    (folder / "answer").write_text(json.dumps(answer))
    return source(folder, f"cat {folder}/answer")


def test_an_identity_is_renewed_after_two_thirds_of_its_life_by_our_own_clock(folder: Path) -> None:
    found = answering(folder, ANSWER).identity("team-a", {}, "")
    assert found.lowered == {}
    assert (found.files, found.token_id, found.renew_at, found.expires_at) == (FILES, "id1", 1200.0, 1300.0)


def test_the_command_gets_names_and_limits_and_no_secret(folder: Path) -> None:
    told = folder / "words"
    asked = source(folder, f'echo "$@" > {told}; env >> {told}; exit 1')
    with pytest.raises(NoIdentity):
        asked.identity("team-a", {"gpus": 2.0, "share": 0.5, "units": 0.0}, "id0")
    words, *environment = told.read_text().splitlines()
    assert words == (
        f"token renew team-a --json --lower --keep=id0 --gpus=2 --share=0.5 --units=0 --issuer-files={folder}"
    )
    assert {line.partition("=")[0] for line in environment} <= {"PATH", "LANG", "PWD", "SHLVL", "_", "OLDPWD"}


@pytest.mark.parametrize(
    ("given", "lowered"),
    [
        ({"gpus": 2, "share": None, "units": 300}, {}),
        ({"gpus": 2, "share": None, "units": 150}, {"units": 150.0}),
        ({"gpus": 1, "share": 0.5, "units": 0}, {"gpus": 1.0, "units": 0.0}),
    ],
)
def test_what_the_issuer_gives_less_of_is_known(
    folder: Path, given: dict[str, float | None], lowered: dict[str, float]
) -> None:
    asked = answering(folder, {**ANSWER, "limits": given})
    assert asked.identity("team-a", {"gpus": 2.0, "units": 300.0}, "").lowered == lowered


@pytest.mark.parametrize("given", [None, {}, {"units": None}, {"units": 301}, {"gpus": 1}])
def test_a_token_without_the_limit_that_was_asked_for_is_handed_to_nobody(
    folder: Path, given: dict[str, float | None] | None
) -> None:
    answer = ANSWER if given is None else {**ANSWER, "limits": given}
    with pytest.raises(NoIdentity, match="the answer from bitfusion-pool is not of this version"):
        answering(folder, answer).identity("team-a", {"units": 300.0}, "")


def test_tokens_in_force_are_known_by_namespace(folder: Path) -> None:
    rows = [{"name": "c/a", "id": "1"}, {"name": "c/b", "id": "2"}, {"name": "c/a", "id": "3"}]
    assert answering(folder, rows).in_force() == {"a": frozenset({"1", "3"}), "b": frozenset({"2"})}


@pytest.mark.parametrize(("printed", "count"), [("revoked 2 tokens of c/a", 2), ("", 0)])
def test_revoked_tokens_are_counted(folder: Path, printed: str, count: int) -> None:
    assert source(folder, f"echo {printed}").revoke("a") == count


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("echo 'Error: the pool says no. What to do: ask' >&2; exit 1", "the pool says no. What to do: ask"),
        ("exit 3", "no reason given"),
        ("echo nonsense", "the answer from bitfusion-pool is not JSON"),
        ("echo []", "the answer from bitfusion-pool is not of this version"),
        ("echo '{}'", "the answer from bitfusion-pool is not of this version"),
        ("sleep 60", "bitfusion-pool gave no answer in 0.2 s"),
        ("head -c 5000000 /dev/zero", "the answer from bitfusion-pool is too long"),
    ],
)
def test_what_is_no_answer_is_told_in_one_line(
    folder: Path, shell: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in shell:
        monkeypatch.setattr(sources, "COMMAND_S", 0.2)
        shell = f"exec {shell}"
    with pytest.raises(NoIdentity) as caught:
        source(folder, shell).identity("team-a", {}, "")
    assert str(caught.value) == why


def test_a_command_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(NoIdentity, match="/nowhere/bitfusion-pool cannot be run: No such file"):
        IssuerSource(str(folder), ("/nowhere/bitfusion-pool",)).revoke("a")


def test_files_that_are_handed_out_are_as_they_are_and_have_no_end(folder: Path) -> None:
    handed = FilesSource(str(folder))
    found = handed.identity("team-a", {"gpus": 1.0}, "")
    assert (found.files, found.token_id, found.renew_at) == (FILES, "", None)
    assert (handed.revoke("team-a"), handed.in_force()) == (0, None)
    before = handed.fingerprint()
    (folder / "client.yaml").write_text("another")
    assert handed.fingerprint() != before


def test_an_issuers_own_new_token_changes_nothing_and_a_new_authority_does(folder: Path) -> None:
    asked = source(folder, "exit 1")
    before = asked.fingerprint()
    (folder / "client.yaml").write_text("another")
    assert asked.fingerprint() == before
    (folder / "ca.crt").write_text("another")
    assert asked.fingerprint() != before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "ca.crt cannot be read: No such file or directory"),
        (b"", "ca.crt is empty, or has more than 65536 bytes"),
        (b"x" * 65537, "ca.crt is empty, or has more than 65536 bytes"),
        (b"\xff", "ca.crt is not text in UTF-8"),
    ],
)
def test_files_that_cannot_be_used_are_told(folder: Path, content: bytes | None, why: str) -> None:
    file = folder / "ca.crt"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(NoIdentity, match=why):
        FilesSource(str(folder)).fingerprint()
