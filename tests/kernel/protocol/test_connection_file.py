"""Reading Jupyter's connection file and writing the kernel's."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from bitfusion_kernel.protocol import connection_file
from bitfusion_kernel.protocol.connection_file import CHANNELS, BadConnectionFile, ConnectionInfo

PORTS = {f"{channel}_port": 5000 + number for number, channel in enumerate(CHANNELS)}


def _written(folder: Path, content: Any) -> str:
    path = folder / "connection.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_addresses_of_tcp_and_ipc() -> None:
    tcp = ConnectionInfo({**PORTS, "ip": "10.0.0.1"})
    assert tcp.address("iopub") == "tcp://10.0.0.1:5001"
    ipc = ConnectionInfo({**PORTS, "transport": "ipc", "ip": "/run/k"})
    assert ipc.address("shell") == "ipc:///run/k-5000"


def test_a_file_of_jupyter_is_read(tmp_path: Path) -> None:
    info = connection_file.read(
        _written(tmp_path, {**PORTS, "key": "secret", "kernel_name": "k", "curve_publickey": None})
    )
    assert (info.key, info.kernel_name, info.signature_scheme) == (b"secret", "k", "hmac-sha256")
    assert info.curve_publickey == info.curve_secretkey == b""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not one: "),
        ("{", "is not one: "),
        ([1], "is not one: "),
        ("null", "is not one: "),
        ({"shell_port": "x"}, "is not one: "),
        ({"shell_port": [1]}, "is not one: "),
        ({}, "names no ports; Jupyter writes them before it starts us"),
        ({**PORTS, "hb_port": 0}, "names no ports; Jupyter writes them before it starts us"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_path(tmp_path: Path, content: Any, words: str) -> None:
    path = _written(tmp_path, content)
    with pytest.raises(BadConnectionFile) as error:
        connection_file.read(path)
    assert str(error.value).startswith(f"connection file {path} {words}")


def test_a_file_of_other_bytes_than_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadConnectionFile, match="is not one"):
        connection_file.read(str(path))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadConnectionFile) as error:
        connection_file.read(str(tmp_path / "none.json"))
    assert str(error.value) == f"connection file {tmp_path}/none.json: No such file or directory"


def test_the_kernels_file_is_private_and_keeps_key_and_scheme(tmp_path: Path) -> None:
    outer = ConnectionInfo({**PORTS, "key": "k€y", "signature_scheme": "hmac-sha512"})
    path, info = connection_file.write_private(str(tmp_path), "kernel-1", "kernel-5e.json", outer)
    assert path == f"{tmp_path}/kernel-5e.json"
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert connection_file.read(path).__dict__ == info.__dict__
    assert (info.key, info.signature_scheme, info.transport) == (outer.key, "hmac-sha512", "ipc")
    assert len({info.address(channel) for channel in CHANNELS}) == 5
    assert info.address("hb") == f"ipc://{tmp_path}/kernel-1-5"


@pytest.mark.parametrize("name", ["proxy", "launcher-1", "kernel-1-1", "kernel-1-1.json", "caf\udce9.json"])
def test_the_kernels_file_is_called_as_jupyters_and_is_in_no_sockets_way(tmp_path: Path, name: str) -> None:
    outer = ConnectionInfo({**PORTS, "key": "k"})
    path, info = connection_file.write_private(str(tmp_path), "kernel-1", name, outer)
    assert Path(path).name == (name if "." in name else f"{name}.json")
    sockets = {info.address(channel) for channel in CHANNELS}
    assert f"ipc://{path}" not in sockets | {f"ipc://{tmp_path}/{ours}" for ours in ("proxy", "launcher-1")}
