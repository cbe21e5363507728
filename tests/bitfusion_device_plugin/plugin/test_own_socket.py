"""Which of its two names a plugin takes, beside whatever lies there already."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bitfusion_device_plugin.plugin.own_socket import OwnSocket

ONE, TWO = "one.sock", "two.sock"


class Folder:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._stack = stack

    def put(self, name: str, what: str) -> None:
        path = self.path / name
        if what == "file":
            path.write_text("")
        elif what == "folder":
            path.mkdir()
        elif what == "link to nothing":
            path.symlink_to(self.path / "nothing")
        elif what in ("runs", "hangs", "dead"):
            made = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            made.bind(str(path))
            if what != "dead":
                made.listen(0)
            for _ in range(3 if what == "hangs" else 0):  # its queue is full
                client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                try:
                    client.connect(str(path))
                except BlockingIOError:
                    pass


@pytest.fixture
def folder() -> Iterator[Folder]:
    """With a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="bft-", dir="/tmp") as place, ExitStack() as stack:
        yield Folder(Path(place), stack)


@pytest.mark.parametrize(
    ("one", "two", "chosen", "left"),
    [
        ("", "", ONE, set()),
        ("dead", "", TWO, set()),
        ("", "dead", ONE, set()),
        ("dead", "dead", ONE, {ONE}),
        ("runs", "", ONE, {ONE}),
        ("", "runs", TWO, {TWO}),
        ("dead", "runs", TWO, {ONE, TWO}),
        ("runs", "dead", ONE, {ONE, TWO}),
        ("hangs", "", ONE, {ONE}),
        ("file", "", TWO, set()),
        ("folder", "", TWO, {ONE}),
        ("folder", "dead", TWO, {ONE, TWO}),
        ("link to nothing", "", TWO, set()),
    ],
)
def test_the_name_of_one_that_runs_is_taken_over_else_another_than_that_of_a_dead_one(
    folder: Folder, one: str, two: str, chosen: str, left: set[str]
) -> None:
    folder.put(ONE, one)
    folder.put(TWO, two)
    own = OwnSocket(folder.path, (ONE, TWO))
    own.choose()
    assert own.path.name == chosen
    assert {path.name for path in folder.path.iterdir()} == left


@pytest.mark.parametrize(
    ("own_name", "lies_there", "error"),
    [(ONE, "folder", IsADirectoryError), ("none/one.sock", "", FileNotFoundError)],
)
def test_where_no_socket_can_be_is_known_with_its_reason_before_grpc_tries(
    folder: Folder, own_name: str, lies_there: str, error: type[OSError]
) -> None:
    folder.put(ONE, lies_there)
    own = OwnSocket(folder.path, (own_name, TWO))
    with pytest.raises(error):
        own.check(own.hidden_path())


def test_the_trial_of_a_name_leaves_nothing(folder: Folder) -> None:
    own = OwnSocket(folder.path, (ONE, TWO))
    own.check(own.hidden_path())
    assert not list(folder.path.iterdir())


def test_others_are_all_but_the_one_that_was_shown(folder: Folder) -> None:
    own = OwnSocket(folder.path, (ONE, TWO))
    folder.put(TWO, "dead")
    assert [path.name for path in own.others()] == [TWO]
    hidden = own.hidden_path()
    folder.put(hidden.name, "runs")
    own.show(hidden)
    assert [path.name for path in own.others()] == [TWO]
    own.path.unlink()
    folder.put(ONE, "runs")  # somebody else's
    assert [path.name for path in own.others()] == [ONE, TWO]
