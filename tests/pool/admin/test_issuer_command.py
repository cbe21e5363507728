"""`bitfusion-pool token … --issuer-files`: tokens from a pool on the network, in files or for programs."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from bitfusion_pool.access.network_files import read_client_folder
from bitfusion_pool.access.token_text import PATTERN, new_token
from bitfusion_pool.admin.cli import main
from bitfusion_pool.messages.from_client import IssueToken, RevokeToken
from bitfusion_pool.messages.from_service import TokenIssued, TokensRevoked
from bitfusion_pool.messages.pool_values import IssuedToken
from tests.pool.client.fake_network_service import FakeNetworkService
from tests.pool.service.tls_client import HOST, NetworkService

TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def network(place: Path) -> Iterator[NetworkService]:
    running = NetworkService(place)
    running.start()
    yield running
    running.end()


@pytest.fixture(scope="module")
def issuer(network: NetworkService, place: Path) -> Path:
    """The three files of an issuer, with the administrator's words looked at."""
    folder = place / "issuer"
    done = administrate(
        network,
        *("create", "cluster", "--issuer", "--may-issue-gpus", "2", "--may-issue-share", "0.5"),
        *("--may-issue-units", "300"),
        *("--may-issue-for", "36h", "--may-issue-names", "5"),
        *("--files", str(folder), "--server", f"{HOST}:{network.port}"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    bounds = "2 GPUs, 50 % of each, 300 units"
    told = rf"token for cluster, until {TIME}: issues tokens for 5 names and 36 hours: {bounds}\n"
    assert re.match(told, done.stdout)
    return folder


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command within this process: a start costs more than most of what it does here."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def token(issuer: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as an issuer calls it: it has no pool."""
    return run("token", *words, "--issuer-files", str(issuer))


def administrate(network: NetworkService, *words: str) -> subprocess.CompletedProcess[str]:
    """The command of the pool's administrator."""
    return run("--dir", str(network.folder), "token", *words)


def test_files_of_a_new_token_are_what_a_client_reads(
    issuer: Path, network: NetworkService, tmp_path: Path
) -> None:
    folder = tmp_path / "for team-a"
    done = token(issuer, "create", "team-a", "--gpus", "1", "--expires", "12h", "--files", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"token [0-9a-f]{{12}} for cluster/team-a, until {TIME}: 1 GPUs, 50 % of each, 300 units\n"
        r"wrote servers\.conf, client\.yaml \(it holds the token\) and ca\.crt to "
        rf"{re.escape(str(folder))}\n",
        done.stdout,
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    client = read_client_folder(str(folder))
    assert [str(server.addresses[0]) for server in client.servers] == [f"{HOST}:{network.port}"]
    with network.remote(client.token.reveal()):
        pass


def test_a_program_gets_the_files_and_their_end_and_renews_lists_and_revokes(
    issuer: Path, network: NetworkService
) -> None:
    made = json.loads(token(issuer, "create", "team-b", "--json").stdout)
    assert set(made) == {"name", "id", "created", "expires", "limits", "files"}
    assert (made["name"], made["limits"]) == (
        "cluster/team-b",
        {"gpus": 2, "share": 0.5, "leases": None, "waiting": None, "units": 300},
    )
    assert made["expires"] - made["created"] == 36 * 3600
    assert set(made["files"]) == {"servers.conf", "client.yaml", "ca.crt"}
    found = PATTERN.search(made["files"]["client.yaml"])
    assert found
    with network.remote(found[0]):
        pass
    again = json.loads(token(issuer, "renew", "team-b", "--keep", made["id"], "--json").stdout)
    assert again["id"] != made["id"]
    rows = json.loads(token(issuer, "list", "--json").stdout)
    assert {row["id"] for row in rows if row["name"] == "cluster/team-b"} == {made["id"], again["id"]}
    assert "│ cluster/team-b │" in token(issuer, "list").stdout
    assert token(issuer, "revoke", "team-b").stdout == "revoked 2 tokens of cluster/team-b\n"
    rows = json.loads(token(issuer, "list", "--json").stdout)
    assert not [row for row in rows if row["name"] == "cluster/team-b"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create", "x", "--gpus", "3", "--json"), "this issuer gives at most gpus 2, and 3 were asked for"),
        (
            ("create", "x", "--units", "301", "--json"),
            "this issuer gives at most units 300, and 301 were asked",
        ),
        (
            ("create", "x", "--units", "5k", "--json"),
            'wrong setting --units="5k": must be a whole number from 0',
        ),
        (("create", "x", "--expires", "2d", "--json"), "this issuer's tokens last at most 36 hours"),
        (("create", "x", "--expires", "soon", "--json"), "wrong setting --expires"),
        (("create", "a/b", "--json"), "must be at most 63 letters, digits"),
        (("create", "x"), "with --issuer-files say where the new token goes: --files FOLDER, or --json"),
        (("create", "x", "--json", "--replace"), "--replace does not go with --issuer-files"),
        (("create", "x", "--json", "--issuer"), "--issuer does not go with --issuer-files"),
        (("revoke", "a/b"), "must be at most 63 letters, digits"),
    ],
)
def test_a_mistake_has_its_sentence(issuer: Path, words: tuple[str, ...], why: str) -> None:
    done = token(issuer, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_units_are_limited_for_a_name_and_lowered_on_request(issuer: Path) -> None:
    made = json.loads(token(issuer, "create", "team-u", "--units", "0", "--json").stdout)
    assert made["limits"]["units"] == 0
    assert re.search(r"cluster/team-u .* 50 % of each, 0 units ", token(issuer, "list").stdout)
    words = ("renew", "team-u", "--gpus", "9", "--units", "500", "--json")
    assert "this issuer gives at most gpus 2, and 9 were asked for" in token(issuer, *words).stderr
    lowered = json.loads(token(issuer, *words, "--lower").stdout)
    assert (lowered["limits"]["gpus"], lowered["limits"]["units"]) == (2, 300)
    assert token(issuer, "revoke", "team-u").returncode == 0


@pytest.mark.parametrize("action", ["create", "renew"])
def test_a_service_that_knows_no_units_is_told_and_its_token_goes_nowhere(
    tmp_path: Path, action: str
) -> None:
    service = FakeNetworkService(tmp_path / "service")
    row = IssuedToken("0123456789ab", "cluster/x", 0.0, 3600.0, gpus=2)  # as it answers: without the field
    service.answer = lambda message: (
        TokenIssued(new_token(), row)
        if isinstance(message, IssueToken)
        else TokensRevoked("cluster/x", 1)
        if isinstance(message, RevokeToken)
        else None
    )
    service.start()
    try:
        service.write_files(tmp_path)
        done = token(tmp_path / ".bitfusion", action, "x", "--units", "50", "--json")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"Error: the service of pool {service.place} is older than limits in units, and passed over "
            "--units. What to do: update the service first and ask again, or leave --units out\n"
        )
        # one that was made by this is ended; the tokens that a name had before are not
        assert [type(one) for one in service.heard if isinstance(one, RevokeToken)] == [RevokeToken] * (
            action == "create"
        )
        assert token(tmp_path / ".bitfusion", action, "x", "--json").returncode == 0
    finally:
        service.stop()


def test_files_that_are_no_issuers_or_no_service_are_told(issuer: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert token(issuer, "create", "team-c", "--files", str(plain)).returncode == 0
    assert "the token of cluster/team-c issues no tokens" in token(plain, "list").stderr
    assert "servers.conf is wrong: No such file" in token(tmp_path / "none", "list").stderr
    (plain / "servers.conf").write_text(f'servers:\n- addresses:\n  - "{HOST}:1"\n')
    done = token(plain, "list")
    assert done.returncode == 1
    assert "connection refused" in done.stderr
    assert "none of the servers responded correctly" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--may-issue-gpus", "2"), "--may-issue-gpus goes with --issuer"),
        (("--issuer", "--gpus", "2"), "an issuer holds no GPUs; what its names get is said by --may-issue-…"),
        (("--issuer", "--may-issue-gpus", "0"), 'wrong setting --may-issue-gpus="0": must be a whole number'),
        (
            ("--issuer", "--may-issue-units", "-1"),
            'wrong setting --may-issue-units="-1": must be a whole number',
        ),
        (
            ("--issuer", "--units", "50"),
            "an issuer holds no GPUs; what its names get is said by --may-issue-…",
        ),
        (("--issuer", "--may-issue-names", "501"), "must be a whole number from 1 to 500"),
        (("--issuer", "--may-issue-for", "900d"), "must be hours or days such as 12h or 30d, at most 730d"),
        (("--json",), "--json goes with --issuer-files"),
    ],
)
def test_the_administrators_mistakes_have_theirs(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = run("--dir", str(tmp_path), "token", "create", "x", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr


def test_a_revoked_issuers_tokens_stay_unless_they_are_revoked_too(
    issuer: Path, network: NetworkService, place: Path
) -> None:
    folder = place / "second"
    words = ("create", "second", "--issuer", "--files", str(folder))
    assert administrate(network, *words, "--server", f"{HOST}:{network.port}").returncode == 0
    for number in range(2):
        assert token(folder, "create", f"n{number}", "--json").returncode == 0
    token(folder, "renew", "n0", "--json")
    listed = json.loads(administrate(network, "list", "--json").stdout)
    assert [row["issuer"] for row in listed if row["name"] == "second/n1"] == ["second"]
    assert [row["may_issue"]["names"] for row in listed if row["name"] == "second"] == [200]
    assert administrate(network, "revoke", "second/n0").stdout.count("of second/n0\n") == 2
    told = administrate(network, "revoke", "second").stdout
    assert told.endswith(
        "of second\n1 tokens that it has issued stay good until they end; "
        "with --issued they are revoked, too\n"
    )
    assert "was revoked" in token(folder, "list").stderr
    id_of_issuer = told.split()[2]
    assert administrate(network, "revoke", id_of_issuer, "--issued").stdout.endswith("of second/n1\n")
    assert "is revoked already" in administrate(network, "revoke", id_of_issuer).stderr
