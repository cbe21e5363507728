"""Which pool a command uses, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_pool.client.pool_choice import PoolChoice, choose_pool
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
        f'wrong setting BITFUSION_POOL="{value}" (from environment): must be own, or the path of the socket '
        "of a pool's service, such as /run/bitfusion-pool/socket"
    )


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
