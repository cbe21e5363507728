"""A connection to a service that is busy, or says nothing."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pool.client.connections import service_connection
from bitfusion_pool.client.connections.connection import ANSWER_S
from bitfusion_pool.client.connections.service_connection import ServiceConnection
from bitfusion_pool.client.connections.service_errors import ServiceAway
from bitfusion_pool.messages.from_client import Alive
from tests.support.machine import scaled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    """A service that takes no connection, and has room for one."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen(0)
        yield made


@pytest.fixture
def signals() -> Iterator[None]:
    """Ten a second, for which this process has a handler."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    ending = threading.Event()

    def send() -> None:
        while not ending.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    yield
    ending.set()
    sender.join()
    signal.signal(signal.SIGUSR1, before)


def test_a_full_queue_of_connections_is_waited_for_no_longer_than_an_answer(
    path: Path, listening: socket.socket
) -> None:
    first = ServiceConnection(str(path))
    with pytest.raises(ServiceAway) as caught:
        ServiceConnection(str(path))
    first.close()
    assert str(caught.value).startswith(f"pool service at {path} gave no answer in {ANSWER_S:g} s. What")


@pytest.mark.usefixtures("signals")
def test_signals_meanwhile_change_nothing_of_that(path: Path, listening: socket.socket) -> None:
    """Python returned from the connect that a signal interrupted as if it were connected."""
    first = ServiceConnection(str(path))
    with pytest.raises(ServiceAway) as caught:
        ServiceConnection(str(path))
    first.close()
    assert str(caught.value).startswith(f"pool service at {path} gave no answer in {ANSWER_S:g} s. What")


@pytest.mark.usefixtures("signals")
def test_signals_meanwhile_do_not_keep_it_from_its_turn(
    path: Path, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_connection, "ANSWER_S", scaled(10))
    first = ServiceConnection(str(path))
    turn = threading.Timer(0.5, lambda: listening.accept()[0].close())
    turn.start()
    second = ServiceConnection(str(path))
    turn.join()
    served, _ = listening.accept()
    served.sendall(Alive().format())
    assert isinstance(second.receive(), Alive)
    for each in (first, second, served):
        each.close()


def test_a_time_that_has_passed_is_not_waited_for(path: Path, listening: socket.socket) -> None:
    connection = ServiceConnection(str(path))
    with pytest.raises(ServiceAway) as caught:
        connection.receive(-1.0)
    connection.close()
    assert "gave no answer in 0 s" in str(caught.value)
