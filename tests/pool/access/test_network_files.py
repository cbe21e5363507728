"""servers.conf and client.yaml: found where the real client looks, read, or refused by file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.file_contents import NetworkServer, parse_client, parse_servers
from bitfusion_pool.access.network_files import MAX_BYTES, NetworkClient, read_network_client
from bitfusion_pool.access.plain_yaml import WrongYaml

NO_LIST = "there must be a list below 'servers:', with '- addresses:' for each server"

# as people have published them, the token replaced
SERVERS = "servers:\n- addresses:\n  - 10.202.122.248:56001\n"
CLIENT = """\
version: ""
ssl: true
cacertpath: /etc/bitfusion/tls/ca.crt
keypath: /etc/bitfusion/tls/bitfusion.key
certpath: /etc/bitfusion/tls/bitfusion.crt
dbcertpath: ""
min-tls-version: ""
timeout: 3s
authconfig:
  enabled: true
  username: ""
  password: ""
  dbusername: ""
  dbpassword: ""
  token: abc.DEF-123_x
network: {}
dispatcher:
  enabled: true
  rdma:
    rsocket: true
    hops: 2
  srs:
    auto_release_timeout: 10m
  cache_store:
    client_root: /root/.bitfusion/cache
    client_cleanup_threshold_MB: 5120
"""


class Machine:
    """A home, and the folder for all users."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.user = self.home / ".bitfusion"
        self.system = folder / "etc"
        self.user.mkdir(parents=True)
        self.system.mkdir()

    def read(self) -> NetworkClient | None:
        return read_network_client({"HOME": str(self.home)}, str(self.system))

    def found(self) -> NetworkClient:
        client = self.read()
        assert client is not None
        return client

    def refusal(self) -> PoolUnreadable:
        with pytest.raises(PoolUnreadable) as error:
            self.read()
        return error.value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_the_files_there_is_no_network_pool(machine: Machine) -> None:
    (machine.user / "requested_gpus").write_text("")
    assert machine.read() is None


def test_the_real_clients_files_are_read(machine: Machine) -> None:
    (machine.system / "servers.conf").write_text(SERVERS)
    (machine.system / "client.yaml").write_text(CLIENT)
    client = machine.found()
    assert client.servers == (NetworkServer((Address("10.202.122.248"),)),)
    assert (client.token.reveal(), client.timeout_s) == ("abc.DEF-123_x", 3.0)
    assert client.authority == "/etc/bitfusion/tls/ca.crt"
    assert client.servers_file == f"{machine.system}/servers.conf"
    assert client.client_file == f"{machine.system}/client.yaml"


def test_each_of_the_users_files_comes_before_the_systems(machine: Machine) -> None:
    (machine.system / "servers.conf").write_text(SERVERS)
    (machine.system / "client.yaml").write_text(CLIENT)
    (machine.user / "servers.conf").write_text("servers:\n- addresses: \n  - mine:1\n")
    client = machine.found()
    assert client.servers == (NetworkServer((Address("mine", 1),)),)
    assert client.client_file == f"{machine.system}/client.yaml"
    (machine.user / "client.yaml").write_text("authconfig:\n  token: 'mine'\n")
    client = machine.found()
    assert client.token.reveal() == "mine"
    assert client.client_file == f"{machine.user}/client.yaml"


def test_the_certificate_is_found_beside_the_token(machine: Machine) -> None:
    (machine.user / "servers.conf").write_text(SERVERS)
    (machine.user / "client.yaml").write_text("cacertpath: ca.crt\nauthconfig:\n  token: x\n")
    assert machine.found().authority == f"{machine.user}/ca.crt"  # missing: named as it should be
    (machine.user / "client.yaml").write_text("cacertpath: /nowhere/ca.crt\nauthconfig:\n  token: x\n")
    assert machine.found().authority == "/nowhere/ca.crt"
    (machine.user / "ca.crt").write_text("")
    assert machine.found().authority == f"{machine.user}/ca.crt"
    named = machine.home / "other.crt"
    named.write_text("")
    (machine.user / "client.yaml").write_text(f"cacertpath: {named}\nauthconfig:\n  token: x\n")
    assert machine.found().authority == str(named)


@pytest.mark.parametrize("name", ["servers.conf", "client.yaml"])
def test_one_file_without_the_other_is_no_network_pool_and_no_other_either(
    machine: Machine, name: str
) -> None:
    other = {"servers.conf": "client.yaml", "client.yaml": "servers.conf"}[name]
    (machine.user / name).write_text("")
    assert str(machine.refusal()) == (
        f"pool configuration is not complete: there is {machine.user}/{name}, and no {other} in ~/.bitfusion "
        f"nor in {machine.system}. What to do: put the {other} that came with the token beside it; "
        f"or move {machine.user}/{name} away to use no network pool"
    )


@pytest.mark.parametrize(
    ("servers", "client", "wrong", "why"),
    [
        ("servers:\n- a b\n", CLIENT, "servers.conf", "line 2: '- addresses:' is expected here"),
        (SERVERS, "ssl: true\n", "client.yaml", "line 1: there is no token below 'authconfig:'"),
        (
            SERVERS,
            "a: x\nb\n",
            "client.yaml",
            "line 2: not 'key: value', with a space after the colon",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_file(
    machine: Machine, servers: str, client: str, wrong: str, why: str
) -> None:
    (machine.user / "servers.conf").write_text(servers)
    (machine.user / "client.yaml").write_text(client)
    error = machine.refusal()
    assert str(error) == (
        f"pool configuration {machine.user}/{wrong} is wrong: {why}. "
        "What to do: correct the line, or ask your administrator for new files"
    )
    assert isinstance(error_from_output([f"Error: {error}"], 1), PoolUnreadable)  # for the kernel


def test_a_file_that_cannot_be_read_is_told_with_its_cure(machine: Machine) -> None:
    (machine.user / "servers.conf").write_text(SERVERS)
    (machine.user / "client.yaml").write_bytes(b"\xff\xfe")
    assert "client.yaml is wrong: it is not text in UTF-8" in str(machine.refusal())
    (machine.user / "client.yaml").write_text("#" * (MAX_BYTES + 1))
    assert f"client.yaml is wrong: it has more than {MAX_BYTES} characters" in str(machine.refusal())
    (machine.user / "client.yaml").unlink()
    os.mkfifo(machine.user / "client.yaml")
    assert "client.yaml is wrong: it is a named pipe" in str(machine.refusal())
    (machine.user / "client.yaml").unlink()
    (machine.user / "client.yaml").symlink_to("nowhere")
    assert "client.yaml is wrong: No such file or directory" in str(machine.refusal())


def test_a_folder_that_others_may_change_is_not_trusted(machine: Machine) -> None:
    (machine.user / "servers.conf").write_text(SERVERS)
    (machine.user / "client.yaml").write_text(CLIENT)
    machine.user.chmod(0o777)
    assert str(machine.refusal()) == (
        f"pool configuration {machine.user}/servers.conf is wrong: {machine.user} can be changed by others "
        "(mode 0777). What to do: make a copy of your own of what you trust, where nobody else can change it"
    )


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("servers:\n- addresses:\n  - a:1\n  - b:2\n- addresses: \n  - c\n", [["a:1", "b:2"], ["c:56001"]]),
        # client 3.5: as its documents print it, and as YAML
        ("servers:\n- reachable:a:1\n  addresses:\n  - b:2\n  - a:1\n", [["a:1", "b:2"]]),
        ("servers:\n- reachable: a:1\n  addresses:\n  - a:1\n", [["a:1"]]),
        ("servers:\n- addresses:\n  - a:1\n  reachable:b:1\r\n", [["b:1", "a:1"]]),
        ("servers:\n- reachable:a:1\n", [["a:1"]]),
        ("servers:\n- addresses:\n  - unreachable:1\n", [["unreachable:1"]]),
        ("other: 1\nservers:\n- name: x\n  addresses:\n  - a:1\n", [["a:1"]]),
    ],
)
def test_servers_are_read(text: str, servers: list[list[str]]) -> None:
    assert [[str(address) for address in one.addresses] for one in parse_servers(text)] == servers


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.1:56001\n", "line 1: not 'key: value', with a space after the colon: 10.0.0.1:56001"),
        ("- a:1\n", "line 1: 'servers:' is expected here"),
        ("a: 1\n", f"line 1: {NO_LIST}"),
        (
            "a: 1\nservers: x\n",
            f"line 2: {NO_LIST}",
        ),
        (
            "servers: []\n",
            f"line 1: {NO_LIST}",
        ),
        ("servers:\n- name: x\n", "line 2: this server has no addresses"),
        ("servers:\n- addresses: []\n", "line 2: this server has no addresses"),
        ("servers:\n- addresses: a:1\n", "line 2: addresses must be a list, a line '- HOST:PORT' for each"),
        ("servers:\n- addresses:\n  - a:0\n", 'line 3: wrong port in "a:0": must be 1 to 65535'),
        ("servers:\n- addresses:\n  - b: 1\n", "line 3: an address must be a text on one line"),
        (
            "servers:\n- addresses:\n" + "  - a:1\n" * 17,
            "line 2: this server has more than 16 addresses",
        ),
        (
            "servers:\n" + "- reachable: a:1\n" * 65,
            "line 1: there are more than 64 servers",
        ),
    ],
)
def test_wrong_servers_are_refused_by_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="line") as error:
        parse_servers(text)
    assert str(error.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a\n", "line 1: 'authconfig:' is expected here"),
        ("a: 1\nauthconfig: x\n", "line 2: 'token:' is expected here"),
        ("authconfig:\n  token: ''\n", "line 2: there is no token below 'authconfig:'"),
        (
            "authconfig:\n  token: my secret\n",
            "line 2: this is not a token: tokens have ASCII letters, digits and signs, without spaces",
        ),
        (
            f"authconfig:\n  token: {'x' * 5000}\n",
            "line 2: this is not a token: tokens have ASCII letters, digits and signs, without spaces",
        ),
        ("ssl: false\n", "line 1: ssl must be true: the token never goes over an open connection"),
        (
            "timeout: 1d\nauthconfig:\n  token: x\n",
            'line 1: wrong timeout "1d": must be a duration from 0.1s to 60s, such as 3s',
        ),
        (
            "timeout: 2m\nauthconfig:\n  token: x\n",
            'line 1: wrong timeout "2m": must be a duration from 0.1s to 60s, such as 3s',
        ),
        ("cacertpath: []\nauthconfig:\n  token: x\n", "line 1: cacertpath must be a text on one line"),
    ],
)
def test_a_wrong_client_file_is_refused_by_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="line") as error:
        parse_client(text)
    assert str(error.value) == why


def test_no_error_and_no_repr_shows_the_token(machine: Machine) -> None:
    for broken in ("token: 's3cret", "token: @s3cret", "token: s3cret: x", 'token: "s3cret" y', "s3cret"):
        with pytest.raises(ValueError, match="line 2") as error:
            parse_client(f"authconfig:\n  {broken}\n")
        assert "s3cret" not in str(error.value)
    (machine.user / "servers.conf").write_text(SERVERS)
    (machine.user / "client.yaml").write_text("authconfig:\n  token: s3cret\n")
    assert "s3cret" not in repr(machine.found())


@given(st.text(alphabet="servradch: -\n'\"1.", max_size=60))
def test_any_text_is_read_or_refused_by_line(text: str) -> None:
    for parse in (parse_servers, parse_client):
        for begin in ("", "servers:\n- addresses:\n", "authconfig:\n"):
            try:
                parse(begin + text)
            except WrongYaml:
                pass
