"""`bitfusion-pool token`: issue, list, revoke; no secret is shown twice, every mistake has its sentence."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path

import pytest

from bitfusion_pool.access.network_files import read_network_client
from bitfusion_pool.access.token_file import read_tokens
from bitfusion_pool.access.token_text import PATTERN
from bitfusion_pool.access.tokens import Grant, WrongToken
from tests.pool.pool_client import PoolClient
from tests.support.certificates import certified


@pytest.fixture
def authority(tmp_path: Path) -> str:
    file = tmp_path / "authority.crt"
    file.write_bytes(certified("test", authority=True).certificate)
    return str(file)


def create(client: PoolClient, *words: str) -> str:
    done = client.admin("token", "create", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(client: PoolClient, *words: str) -> str:
    done = client.admin("token", *words)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def secret_in(text: str) -> str:
    found = PATTERN.search(text)
    assert found
    return found[0]


def test_a_token_is_shown_once_and_works_until_it_is_revoked(client: PoolClient) -> None:
    shown = create(client, "ada", "--expires", "90d", "--gpus", "2", "--share", "0.5", "--leases", "4")
    secret = secret_in(shown)
    date = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(
        rf"token for ada, until {date}: 2 GPUs, 50 % of each, 4 leases\n"
        rf"{secret}\nIt is shown this once; the pool keeps a hash of it\.\n",
        shown,
    )
    grant = read_tokens(str(client.folder)).check(secret, time.time())
    assert isinstance(grant, Grant)
    listed = client.admin("token", "list").stdout + client.admin("token", "list", "--json").stdout
    assert grant.token_id in listed
    assert secret[7:20] not in listed
    assert all(
        secret[7:20] not in file.read_text(errors="replace")
        for file in client.folder.rglob("*")
        if file.is_file()
    )
    assert client.admin("token", "revoke", "ada").stdout == f"revoked token {grant.token_id} of ada\n"
    assert isinstance(read_tokens(str(client.folder)).check(secret, time.time()), WrongToken)
    assert refusal(client, "revoke", "ada") == (
        "Error: there is no token ada; `bitfusion-pool token list` shows them\n"
    )
    assert refusal(client, "revoke", grant.token_id) == (
        f"Error: token {grant.token_id} of ada is revoked already\n"
    )


def test_tokens_are_listed_as_a_table_and_for_programs(client: PoolClient) -> None:
    assert client.admin("token", "list").stdout == (
        "There are no tokens; `bitfusion-pool token create NAME` issues one.\n"
    )
    create(client, "ada", "--gpus", "2")
    create(client, "bob")
    client.admin("token", "revoke", "bob")
    create(client, "eve", "--units", "150")
    table = client.admin("token", "list").stdout
    assert re.search(r"│ ada  │ [0-9a-f]{12} │ good    │ 20\S+Z │ 2 GPUs    │", table)
    assert re.search(r"│ bob  │ [0-9a-f]{12} │ revoked │ 20\S+Z │ no limits │", table)
    rows = json.loads(client.admin("token", "list", "--json").stdout)
    assert [(row["name"], row["state"], row["limits"]["gpus"]) for row in rows] == [
        ("ada", "good", 2),
        ("bob", "revoked", None),
        ("eve", "good", None),
    ]
    assert [row["limits"]["units"] for row in rows] == [None, None, 150]
    assert re.search(r"│ eve  │ [0-9a-f]{12} │ good    │ 20\S+Z │ 150 units │", table)
    assert set(rows[0]) == {"name", "id", "state", "created", "expires", "revoked", "limits"}


def test_the_files_are_what_a_client_reads(client: PoolClient, tmp_path: Path, authority: str) -> None:
    folder = tmp_path / "for ada"
    shown = create(
        client, "ada", "--files", str(folder), "--ca", authority,
        "--server", "pool.example.org", "--server", "10.0.0.2:7",
    )  # fmt: skip
    assert not PATTERN.search(shown)
    assert shown.partition("\n")[2] == (
        f"wrote servers.conf, client.yaml (it holds the token) and ca.crt to {folder}\n"
        "On the client's machine they go to ~/.bitfusion of one user, or to /etc/bitfusion for all.\n"
        "In Kubernetes a Secret of them, mounted at /etc/bitfusion:\n"
        "  kubectl create secret generic bitfusion-client --namespace=NAMESPACE "
        f"--from-file='{folder}'\n"
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = read_network_client({"HOME": "/nowhere"}, str(folder))
    assert found is not None
    assert [str(server.addresses[0]) for server in found.servers] == ["pool.example.org:56001", "10.0.0.2:7"]
    assert Path(found.authority).read_bytes() == Path(authority).read_bytes()
    grant = read_tokens(str(client.folder)).check(found.token.reveal(), time.time())
    assert isinstance(grant, Grant)


def test_a_name_has_one_token_until_it_is_replaced(
    client: PoolClient, tmp_path: Path, authority: str
) -> None:
    first = secret_in(create(client, "ada"))
    assert re.fullmatch(
        r"Error: ada has a token, [0-9a-f]{12}, until 20\S+Z; --replace revokes it and issues another\n",
        refusal(client, "create", "ada"),
    )
    second = secret_in(create(client, "ada", "--replace"))
    tokens = read_tokens(str(client.folder))
    assert isinstance(tokens.check(first, time.time()), WrongToken)
    assert isinstance(tokens.check(second, time.time()), Grant)


def test_no_token_is_issued_where_its_files_cannot_be_written(
    client: PoolClient, tmp_path: Path, authority: str
) -> None:
    words = ("create", "ada", "--files", str(tmp_path), "--ca", authority, "--server", "pool")
    (tmp_path / "client.yaml").write_text("mine")
    assert refusal(client, *words) == (
        f"Error: there is {tmp_path}/client.yaml already; --force replaces it\n"
    )
    (tmp_path / "client.yaml").unlink()
    (tmp_path / "ca.crt").mkdir()
    assert refusal(client, *words, "--force") == f"Error: cannot write {tmp_path}/ca.crt: Is a directory\n"
    assert read_tokens(str(client.folder)).all == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("a b",), 'wrong setting NAME="a b": must be at most 63 letters, digits and . _ @ - of ASCII'),
        (("ada", "--expires", "soon"), 'wrong setting --expires="soon": must be hours or days such as 12h'),
        (("ada", "--gpus", "0"), 'wrong setting --gpus="0": must be a whole number from 1 to 100000'),
        (("ada", "--share", "50%"), 'invalid value "50%" for --share: must be greater than 0.0'),
        (("ada", "--server", "a:b"), 'wrong setting --server="a:b": must be 1 to 65535'),
        (("ada", "--files", "x"), "--files and --server go together, and --ca with them"),
        (("ada", *("--server", "a") * 17), "at most 16 times --server"),
    ],
)
def test_a_wrong_option_has_its_sentence(client: PoolClient, words: tuple[str, ...], why: str) -> None:
    error = refusal(client, "create", *words)
    assert error.startswith(f"Error: {why}")
    assert error.count("\n") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_another_users_pool_is_not_touched(client: PoolClient) -> None:
    client.folder.mkdir(exist_ok=True)
    os.chown(client.folder, 54321, 54321)
    for words in (("create", "ada"), ("list",), ("revoke", "ada")):
        assert refusal(client, *words) == (
            f"Error: pool folder {client.folder} is not yours alone: {client.folder} belongs to user 54321. "
            "What to do: run this as the user whose pool it is: sudo -u USER bitfusion-pool …\n"
        )
    assert list(client.folder.iterdir()) == []
