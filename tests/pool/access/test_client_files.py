"""The three files of a client: read as they were meant, also by a YAML library; nobody else gets them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import yaml

from bitfusion_client.errors import ClientFailed
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import (
    client_text,
    prepare_folder,
    read_authority,
    servers_text,
    write_client_files,
)
from bitfusion_pool.access.file_contents import NetworkServer
from bitfusion_pool.access.network_files import read_network_client
from bitfusion_pool.access.token_text import new_token
from tests.support.certificates import certified

SERVERS = (Address("10.0.0.1"), Address("2001:db8::1", 7), Address("pool.example.org"))
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


def test_what_is_written_is_what_a_client_reads(tmp_path: Path) -> None:
    folder, token = tmp_path / ".bitfusion", new_token()
    path = prepare_folder(str(folder), force=False)
    write_client_files(path, SERVERS, token, "PEM\n")
    client = read_network_client({"HOME": str(tmp_path)}, str(tmp_path / "none"))
    assert client is not None
    assert client.servers == tuple(NetworkServer((server,)) for server in SERVERS)
    assert client.token.reveal() == token
    assert client.authority == f"{folder}/ca.crt"
    assert (folder / "ca.crt").read_text() == "PEM\n"


def test_a_yaml_library_reads_the_same() -> None:
    servers = yaml.safe_load(servers_text(SERVERS))
    assert servers == {"servers": [{"addresses": [str(server)]} for server in SERVERS]}
    client = yaml.safe_load(client_text("bfpool_x"))
    assert client["authconfig"]["token"] == "bfpool_x"
    assert client["ssl"] is True


def test_the_files_are_their_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = prepare_folder(f"{tmp_path}/a", force=False)
        write_client_files(path, SERVERS, new_token(), "PEM\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(path)} == {0o600}
    assert len(os.listdir(path)) == 3


def test_the_mode_of_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    prepare_folder(str(tmp_path), force=False)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["servers.conf", "client.yaml", "ca.crt"])
def test_no_file_is_replaced_unless_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(ClientFailed) as error:
        prepare_folder(str(tmp_path), force=False)
    assert str(error.value) == f"there is {tmp_path}/{name} already; --force replaces it"
    assert prepare_folder(str(tmp_path), force=True) == str(tmp_path)


@only_root
def test_a_token_is_not_written_where_another_user_has_a_say(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 54321, 54321)
    (tmp_path / "link").symlink_to(tmp_path)
    os.chown(tmp_path / "link", 54321, 54321, follow_symlinks=False)
    for folder in (theirs, theirs / "new", tmp_path / "link"):
        with pytest.raises(ClientFailed, match="belongs to user 54321: a token must not be written there"):
            prepare_folder(str(folder), force=True)
    assert list(theirs.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientFailed, match=f"cannot make the folder {tmp_path}/file/x: Not a directory"):
        prepare_folder(f"{tmp_path}/file/x", force=False)
    with pytest.raises(ClientFailed, match=f"cannot make the folder {tmp_path}/file: File exists"):
        prepare_folder(f"{tmp_path}/file", force=False)


def test_only_certificates_are_given_to_clients(tmp_path: Path) -> None:
    pair = certified("test", authority=True)
    file = tmp_path / "ca.crt"
    file.write_bytes(pair.certificate.strip())
    assert read_authority(str(file)) == pair.certificate.decode()
    file.write_bytes(pair.certificate + pair.key)
    with pytest.raises(ClientFailed, match="holds a private key, which no client may get"):
        read_authority(str(file))
    for wrong in ("", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        file.write_text(wrong)
        with pytest.raises(ClientFailed, match="holds no certificate in PEM"):
            read_authority(str(file))
    with pytest.raises(ClientFailed, match=f"cannot read {tmp_path}: Is a directory"):
        read_authority(str(tmp_path))
    with pytest.raises(ClientFailed, match="No such file or directory"):
        read_authority(f"{tmp_path}/none")
