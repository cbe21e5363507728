"""pool.toml: what it may contain, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.inventory.configuration import parse_configuration, read_configuration
from tests.pool.pool_client import PoolClient

FULL = """
[[servers]]
name = "one"
address = "10.0.0.1"
port = 56002
dispatcher_port = 55002
uuid = "u-1"
hostname = "bf-one"
has_rdma = true
cuda_version = "11.4"
driver_version = "470.1"

[[servers.devices]]
name = "Tesla T4"
memory_mib = 15109
count = 2

[[servers.devices]]
name = "Tesla P4"

[[servers]]
address = "10.0.0.2"

[manners]
stream = "stdout"
slow = 0.5
backup_warning = true
"""


def test_everything_that_can_be_described() -> None:
    found = parse_configuration(FULL)
    servers = found.servers
    first, second = servers
    assert first.key == "10.0.0.1:56002"
    assert (first.name, first.hostname, first.uuid, first.dispatcher_port) == ("one", "bf-one", "u-1", 55002)
    assert (first.has_rdma, first.cuda_version, first.driver_version) == (True, "11.4", "470.1")
    assert [(one.number, one.name, one.memory_mib) for one in first.devices] == [
        (0, "Tesla T4", 15109),
        (1, "Tesla T4", 15109),
        (2, "Tesla P4", 16160),
    ]
    assert [one.shown_name for one in first.devices][1:] == ["Tesla T4 (simulated)", "Tesla P4 (simulated)"]
    assert (second.name, second.key, second.hostname, second.devices) == (
        "server1",
        "10.0.0.2:56001",
        "server1",
        (),
    )
    assert found.emulation == {"stream": "stdout", "slow": "0.5", "backup_warning": "on"}


def test_a_server_without_a_uuid_keeps_the_same_one() -> None:
    text = '[[servers]]\naddress = "10.0.0.9"\n'
    assert parse_configuration(text).servers[0].uuid == parse_configuration(text).servers[0].uuid != ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("server = 1", "unknown key 'server'; known are servers, manners"),
        ("servers = 1", "servers must be a list of tables [[servers]]"),
        ("servers = [1]", "servers[0] must be a table"),
        ("manners = 1", "manners must be a table [manners]"),
        (
            '[manners]\nstream = "up"',
            'invalid value "up" for manners.stream: must be stderr or stdout or split',
        ),
        ("[[servers]]\nport = 0", "servers[0]: port must be at least 1, not 0"),
        ("[[servers]]\nport = 65536", "servers[0]: ports go up to 65535"),
        ('[[servers]]\nport = "x"', "servers[0]: port must be a whole number, not 'x'"),
        ("[[servers]]\nport = true", "servers[0]: port must be a whole number, not True"),
        ("[[servers]]\nhas_rdma = 1", "servers[0]: has_rdma must be true or false, not 1"),
        ("[[servers]]\nname = 1", "servers[0]: name must be a text, not 1"),
        ('[[servers]]\nname = ""', "servers[0]: name must be one line of text, not ''"),
        ('[[servers]]\nname = "a\\nb"', "servers[0]: name must be one line of text, not 'a\\nb'"),
        ('[[servers]]\naddress = "a;b"', "servers[0]: address must not contain blanks, ; or ,: 'a;b'"),
        ("[[servers]]\ndevices = 1", "servers[0]: devices must be a list of tables, not 1"),
        ("[[servers]]\n[[servers.devices]]\ncount = 257", "servers[0]: a server has at most 256 devices"),
        (
            "[[servers]]\n[[servers.devices]]\nmemory_mib = -1",
            "servers[0].devices[0]: memory_mib must be at least 1, not -1",
        ),
        (
            "[[servers]]\n[[servers.devices]]\nsize = 1",
            "servers[0].devices[0]: unknown key 'size'; known are name, memory_mib, count, uuid",
        ),
        (
            '[[servers]]\n[[servers.devices]]\nuuid = "GPU-1,2"\nname = "x"\nmemory_mib = 1',
            "servers[0].devices[0]: uuid must be as nvidia-smi -L shows it, GPU-… or MIG-…, not 'GPU-1,2'",
        ),
        (
            '[[servers]]\n[[servers.devices]]\nuuid = "0"\nname = "x"\nmemory_mib = 1',
            "servers[0].devices[0]: uuid must be as nvidia-smi -L shows it, GPU-… or MIG-…, not '0'",
        ),
        (
            '[[servers]]\n[[servers.devices]]\nuuid = "GPU-1"\nname = "x"',
            "servers[0].devices[0]: a device with a uuid needs memory_mib, too",
        ),
        (
            '[[servers]]\n[[servers.devices]]\nuuid = "GPU-1"\nname = "x"\nmemory_mib = 1\ncount = 2',
            "servers[0].devices[0]: a device with a uuid is one device; count must not be there",
        ),
        (
            "[[servers]]\n" + '[[servers.devices]]\nuuid = "GPU-1"\nname = "x"\nmemory_mib = 1\n' * 2,
            "servers[0]: two devices have the same uuid",
        ),
        (
            '[[servers]]\n[[servers.devices]]\nuuid = "GPU-1"\nname = "x"\nmemory_mib = 1\n'
            "[[servers.devices]]",
            "servers[0]: real devices (uuid) and simulated ones need a server each",
        ),
        ("[[servers]]\n[[servers]]", "two servers have the address 127.0.0.1:56001"),
    ],
)
def test_a_mistake_is_reported_with_its_key(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_configuration(text)
    assert str(caught.value) == problem


@given(st.text())
def test_any_text_is_read_or_refused_with_a_value_error(text: str) -> None:
    try:
        parse_configuration(text)
    except ValueError:
        pass


def test_a_file_that_cannot_be_read_or_understood_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(PoolUnreadable) as caught:
        read_configuration(str(missing))
    assert (
        str(caught.value)
        == f"pool configuration {missing} is wrong: No such file or directory. What to do: correct it"
    )
    broken = tmp_path / "broken.toml"
    broken.write_text("servers = [")
    with pytest.raises(PoolUnreadable, match=f"^pool configuration {broken} is wrong: .+"):
        read_configuration(str(broken))


def test_a_configuration_named_in_the_environment_must_exist(client: PoolClient) -> None:
    path = client.folder / "nowhere.toml"
    done = client.do("list_gpus", env={"BITFUSION_POOL_CONFIG": str(path)})
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: pool configuration {path} is wrong: No such file or directory. "
        "What to do: correct it, or unset BITFUSION_POOL_CONFIG\n"
    )
