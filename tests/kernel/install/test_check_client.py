"""The doctor on the `bitfusion` command: it fails, hangs, says nothing, or its pool cannot be used."""

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
        ("true", "printed nothing"),
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


EMBEDDED = str(Path(__file__).parents[3] / "bitfusion_pool" / "bin" / "bitfusion")


def test_a_pool_that_can_be_used(pool_folder: Path) -> None:
    findings = {one.subject: one for one in check_client.check_pool(EMBEDDED)}
    folder, ledger = findings["pool folder"], findings["pool ledger"]
    assert (folder.verdict, folder.found) == (PASS, str(pool_folder))
    assert (ledger.verdict, ledger.found) == (PASS, "0 leases, 0 waiting")
    assert findings["pool configuration"].found == "none, the pool is the default one"


def test_which_pool_is_used_and_why(pool_folder: Path) -> None:
    in_use = next(one for one in check_client.check_pool(EMBEDDED) if one.subject == "pool in use")
    assert (in_use.verdict, in_use.found) == (PASS, "your own; BITFUSION_POOL_DIR is set")


def test_a_service_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "socket"
    monkeypatch.setenv("BITFUSION_POOL", str(socket))
    findings = {one.subject: one for one in check_client.check_pool(EMBEDDED)}
    assert findings["pool in use"].found == f"the service at {socket}; BITFUSION_POOL names its socket"
    away = f"pool service at {socket} does not run: No such file or directory"
    own = "for simulated GPUs of your own set BITFUSION_POOL=own"
    cure = f"ask this machine's administrator to start it, or {own}"
    assert findings["pool service"].lines() == [f"[FAIL] pool service: {away}", f"       {cure}"]
    assert "pool folder" not in findings
    listed = check_client.ask_client(EMBEDDED, ["list_gpus"])
    assert (listed.verdict, listed.next_step) == (FAIL, cure)


def test_a_setting_that_names_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITFUSION_POOL", "machine")
    (in_use,) = check_client.check_pool(EMBEDDED)
    assert in_use.verdict == FAIL
    assert in_use.found == (
        'wrong setting BITFUSION_POOL="machine" (from environment): must be own, the path of the socket '
        "of a pool's service, such as /run/bitfusion-pool/socket, or tls://HOST:PORT, a server of "
        "servers.conf"
    )


def test_a_pool_to_which_others_may_write(pool_folder: Path) -> None:
    pool_folder.mkdir()
    pool_folder.chmod(0o777)
    folder = next(one for one in check_client.check_pool(EMBEDDED) if one.subject == "pool folder")
    assert folder.verdict == FAIL
    assert folder.found == (
        f"pool folder {pool_folder} is not yours alone: {pool_folder} can be changed by others (mode 0777); "
        "a pool is one user's own"
    )
    assert folder.next_step.startswith("unset BITFUSION_POOL_DIR; your own pool is /")


def test_what_is_not_quite_right_is_a_warning_with_what_to_do(client: Callable[[str], Path]) -> None:
    client(
        "cat <<'END'\nHealth report for localhost\n[MARGINAL] Check pool ledger: "
        "nobody knows of 2 leases. What to do: bitfusion-pool reap --force LEASE\nEND"
    )
    (finding,) = check_client.check_pool(os.environ["BITFUSION_CLIENT"])
    assert finding.lines() == [
        "[WARN] pool ledger: nobody knows of 2 leases",
        "       bitfusion-pool reap --force LEASE",
    ]


def test_a_pool_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, client: Callable[[str], Path]) -> None:
    client("exec sleep 20")
    monkeypatch.setattr(check_client, "CLIENT_LIMIT", 0.2)
    (finding,) = check_client.check_pool(os.environ["BITFUSION_CLIENT"])
    assert (finding.verdict, finding.found) == (FAIL, "no answer in 0 s")
