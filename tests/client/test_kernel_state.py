"""The file with a kernel's state, and the way from a kernel's id to its socket."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kernel_state import proxy_socket, states
from bitfusion_client.kernel_state.proxy_socket import NoKernel
from bitfusion_client.kernel_state.watch import Watch

TOLD = {"version": 1, "state": "idle", "since": 2.0, "idle_since": 2.0, "notebook": "x.ipynb"}


def path(folder: Path) -> str:
    return str(folder / states.FILE_NAME)


def test_what_is_written_is_read_and_each_write_replaces_the_file(tmp_path: Path) -> None:
    assert states.read(path(tmp_path)) is None
    assert states.write(str(tmp_path), TOLD)
    assert states.read(path(tmp_path)) == TOLD
    with open(path(tmp_path), "rb") as before:
        assert states.write(str(tmp_path), {**TOLD, "state": "running"})
        assert json.loads(before.read()) == TOLD  # who reads it just then has all of it
    assert [name.stat().st_mode & 0o777 for name in tmp_path.iterdir()] == [0o600]


def test_nothing_is_written_through_a_link_or_into_a_folder_that_is_gone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "state.new").symlink_to(victim)
    assert not states.write(str(tmp_path), TOLD)
    assert victim.read_text() == "mine"
    (tmp_path / states.FILE_NAME).symlink_to(victim)
    assert states.read(path(tmp_path)) is None
    assert not states.write(str(tmp_path / "gone"), TOLD)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TOLD, {**TOLD, "state": "parked", "since": 9.0, "idle_since": None}),
        ({**TOLD, "state": "parked"}, {**TOLD, "state": "parked"}),
        (None, {"version": 1, "state": "parked", "since": 9.0, "idle_since": None, "notebook": None}),
        (
            {**TOLD, "version": 2},
            {"version": 1, "state": "parked", "since": 9.0, "idle_since": None, "notebook": None},
        ),
    ],
)
def test_a_change_keeps_the_notebook(
    before: dict[str, Any] | None, after: dict[str, Any], tmp_path: Path
) -> None:
    if before is not None:
        states.write(str(tmp_path), before)
    states.change(str(tmp_path), states.PARKED, 9.0)
    assert states.read(path(tmp_path)) == after


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), lambda inner: st.lists(inner)).map(json.dumps)
)
def test_whatever_is_read_is_a_state_or_none(content: bytes | str) -> None:
    assert states.parse(content if isinstance(content, bytes) else content.encode()) is None
    assert states.parse(b"[" * 100_000) is None


@pytest.mark.parametrize("kernel_id", ["5e-1", "0b7c6dd4-60d3-4d7a-8f0e-0d6f4d1f2d1a", "a_b"])
def test_an_id_leads_to_the_connection_file_and_back(kernel_id: str) -> None:
    file = proxy_socket.connection_file(kernel_id, "/run/jupyter")
    assert file == f"/run/jupyter/kernel-{kernel_id}.json"
    assert proxy_socket.kernel_id(file) == kernel_id


@pytest.mark.parametrize(
    "name", ["connection.json", "kernel-.json", "kernel-5e", "kernel-.js", "", "kernel-", ".json"]
)
def test_a_file_that_is_called_otherwise_has_no_id(name: str) -> None:
    assert proxy_socket.kernel_id(name) is None


@pytest.mark.parametrize("kernel_id", ["", "../5e", "a/b", "a.b", "5e\n", "5e\0"])
def test_an_id_that_leads_elsewhere_is_none(kernel_id: str) -> None:
    with pytest.raises(NoKernel, match="is not a kernel id"):
        proxy_socket.connection_file(kernel_id, "/run/jupyter")


def test_the_folder_is_found_by_the_key_alone() -> None:
    (one, other) = proxy_socket.folders({"XDG_RUNTIME_DIR": "/run/user/1"}, b"key")
    assert (os.path.dirname(one), os.path.dirname(other)) == ("/run/user/1", "/tmp")
    assert os.path.basename(one) == os.path.basename(other)
    assert proxy_socket.folders({}, b"key") == [other]
    assert "key" not in os.path.basename(one)
    assert proxy_socket.folders({}, b"another") != [other]
    assert proxy_socket.folders({}, b"") != proxy_socket.folders({}, b"")


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (b'{"error": "no more"}\n', "no more"),
        (b'{"version": 2, "state": "idle"}\n', "it speaks another version"),
        (b"nonsense\n", "it speaks another version"),
        (b"x" * (1 << 21), ""),
        (b"", ""),
    ],
)
def test_a_peer_that_answers_something_else_is_heard_no_longer(answer: bytes, refused: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        folder = Path(os.environ["XDG_RUNTIME_DIR"])
        address = folder / proxy_socket.NAME
        listener.bind(str(address))
        listener.listen(1)
        with Watch(str(folder)) as watcher:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(5)
                peer.recv(100)
                for start in range(0, len(answer), 65536):
                    try:
                        peer.sendall(answer[start : start + 65536])
                    except OSError:
                        break
                    watcher.receive()
                if not answer:
                    peer.close()
                assert watcher.wait(5) == []
        assert (watcher.closed, watcher.refused) == (True, refused)
        address.unlink()
