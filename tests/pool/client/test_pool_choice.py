"""Which pool a command uses, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import PoolUnreadable, WrongSetting
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, servers_text
from bitfusion_pool.access.token_text import PREFIX, new_token
from bitfusion_pool.client.pools import pool_choice
from bitfusion_pool.client.pools.pool_choice import PoolChoice, choose_pool
from tests.pool.pool_client import PoolClient


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """The socket of a machine's pool whose service is away."""
    (tmp_path / "run").mkdir()
    return f"{tmp_path}/run/socket"


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"BITFUSION_POOL": "own"}, "BITFUSION_POOL=own"),
        ({"BITFUSION_POOL_DIR": "/x"}, "BITFUSION_POOL_DIR is set"),
        ({"BITFUSION_POOL_CONFIG": "/x"}, "BITFUSION_POOL_CONFIG is set"),
    ],
)
def test_who_names_the_own_pool_gets_it(machine: str, environ: dict[str, str], why: str) -> None:
    assert choose_pool(environ, machine) == PoolChoice("", why)


def test_a_setting_wins_over_the_machines_pool(machine: str) -> None:
    environ = {"BITFUSION_POOL": "/somewhere//else", "BITFUSION_POOL_DIR": "/x"}
    assert choose_pool(environ, machine) == PoolChoice("/somewhere/else", "BITFUSION_POOL names its socket")


def test_the_machines_pool_is_used_also_while_its_service_is_away(machine: str) -> None:
    folder = machine.rpartition("/")[0]
    assert choose_pool({}, machine) == PoolChoice(machine, f"this machine has a pool, {folder}")


def test_without_any_the_own_pool_is_used(tmp_path: Path) -> None:
    found = choose_pool({"BITFUSION_POOL": ""}, f"{tmp_path}/nowhere/socket")
    assert found == PoolChoice("", "this machine has no pool for all its users")


@pytest.mark.parametrize("value", ["Own", "socket", "host:56001"])
def test_a_setting_that_names_no_pool_is_told(machine: str, value: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        choose_pool({"BITFUSION_POOL": value}, machine)
    assert str(caught.value) == (
        f'wrong setting BITFUSION_POOL="{value}" (from environment): must be own, the path of the socket '
        "of a pool's service, such as /run/bitfusion-pool/socket, or tls://HOST:PORT, a server of "
        "servers.conf"
    )


def network_files(folder: Path, token: str) -> None:
    """The files of a client of two services."""
    folder.mkdir(mode=0o700)
    places = Address("pool-a.example"), Address("192.0.2.7", 56002)
    (folder / "servers.conf").write_text(servers_text(places))
    (folder / "client.yaml").write_text(client_text(token))


def test_network_files_win_over_the_machines_pool_and_say_which_they_are(
    machine: str, tmp_path: Path
) -> None:
    files = tmp_path / ".bitfusion"
    network_files(files, new_token())
    found = choose_pool({"HOME": str(tmp_path)}, machine, f"{tmp_path}/nowhere")
    assert (found.socket, found.only) == ("", "")
    assert found.why == f"{files}/servers.conf and {files}/client.yaml name it"
    assert found.where == "the service at pool-a.example:56001, 192.0.2.7:56002"
    one = choose_pool({"HOME": str(tmp_path), "BITFUSION_POOL": "tls://192.0.2.7:56002"}, machine)
    assert (one.only, one.why) == ("192.0.2.7:56002", "BITFUSION_POOL names it")
    assert one.where == "the service at 192.0.2.7:56002"


@pytest.mark.parametrize(
    "environ", [{"BITFUSION_POOL": "own"}, {"BITFUSION_POOL": "/x"}, {"BITFUSION_POOL_DIR": "/x"}]
)
def test_settings_win_over_network_files(machine: str, tmp_path: Path, environ: dict[str, str]) -> None:
    network_files(tmp_path / ".bitfusion", "whatever")
    assert choose_pool({"HOME": str(tmp_path), **environ}, machine).network is None


def test_files_of_the_real_product_are_an_error_with_a_cure(machine: str, tmp_path: Path) -> None:
    network_files(tmp_path / ".bitfusion", "eyJhbGciOiJIUzI1NiJ9")
    with pytest.raises(PoolUnreadable) as caught:
        choose_pool({"HOME": str(tmp_path)}, machine)
    assert str(caught.value) == (
        f"pool configuration {tmp_path}/.bitfusion/client.yaml is wrong: its token is not from a pool of "
        "this kind (bfpool_…); it seems to be the real product's. What to do: for vSphere Bitfusion use "
        "its own client (BITFUSION_CLIENT names its command); for simulated GPUs of your own set "
        "BITFUSION_POOL=own"
    )
    assert pool_choice._TOKEN == PREFIX


def test_a_named_service_without_files_is_told(machine: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "BITFUSION_POOL": "tls://pool:56001"}
    with pytest.raises(
        PoolUnreadable, match=r"BITFUSION_POOL names pool:56001, and there is no servers.conf"
    ):
        choose_pool(environ, machine, f"{tmp_path}/nowhere")


def test_health_names_the_pool_and_a_wrong_setting(client: PoolClient) -> None:
    assert "[PASS    ] Check pool in use: your own; BITFUSION_POOL_DIR is set\n" in client.do("health").stdout
    wrong = client.do("health", env={"BITFUSION_POOL": "x"})
    assert wrong.returncode == 1
    assert (
        '[FATAL   ] Check pool in use: wrong setting BITFUSION_POOL="x" (from environment): ' in wrong.stdout
    )
    assert wrong.stderr.startswith('Error: wrong setting BITFUSION_POOL="x"')


def test_gpus_stay_in_the_pool_that_gave_them(client: PoolClient, tmp_path: Path) -> None:
    assert client.do("request_gpus", "-n", "1").returncode == 0
    elsewhere = {"BITFUSION_POOL": f"{tmp_path}/nowhere"}
    assert client.do("client", "--", "true", env=elsewhere).returncode == 0
    assert client.do("release_gpus", env=elsewhere).returncode == 0
    assert client.entries("held") == []


def a_pod(folder: Path) -> str:
    """The folder of an injected client whose namespace has no identity."""
    (folder / "pod").mkdir(parents=True)
    (folder / "pod" / "namespace").write_text("team-a")
    (folder / "identity").mkdir()
    return str(folder)


def test_a_pod_without_identity_never_computes_in_a_pool_of_its_own(tmp_path: Path) -> None:
    nowhere = f"{tmp_path}/nowhere"
    pod = a_pod(tmp_path / "bitfusion")
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(PoolUnreadable) as caught:
        choose_pool(environ, f"{nowhere}/socket", nowhere, pod)
    assert str(caught.value) == (
        "pool configuration is missing: namespace team-a has no Secret bitfusion-client, or it has not "
        "reached this pod. What to do: ask your administrator to give the namespace a token of the pool; a "
        "running pod has it two minutes later; for simulated GPUs of your own set BITFUSION_POOL=own"
    )
    assert choose_pool({**environ, "BITFUSION_POOL": "own"}, f"{nowhere}/socket", nowhere, pod).is_own
    network_files(tmp_path / ".bitfusion", new_token())
    assert choose_pool(environ, f"{nowhere}/socket", nowhere, pod).network is not None
