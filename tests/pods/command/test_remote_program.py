"""A program in namespaces of its own behaves as one here: output, input, signals, end, lost connections."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pods import signals
from bitfusion_pods.command.remote_program import RESUME, TELL_AFTER, RemoteProgram
from bitfusion_pods.spawn import Spawn, Started, spawn_from_json
from bitfusion_pods.stream.frames import Kind, ProtocolError
from tests.pods.command.pods import Pods, pods_in
from tests.pods.stream.sides import CLIENT, POD, Keys
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with pods_in(tmp_path) as made:
        yield made


def finish(process: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[bytes, bytes]:
    return process.communicate(data, timeout=scaled(30))


@pytest.mark.parametrize(
    ("program", "status", "out"),
    [
        ("echo said; exit 7", 7, b"said\n"),
        ("kill -KILL $$", 137, b""),
        ("echo $HOSTNAME $CUDA_VISIBLE_DEVICES; ls $XDG_RUNTIME_DIR | wc -l", 0, b"the-pod GPU-7\n0\n"),
        ("no-such-command", 127, b""),
    ],
)
def test_it_ends_as_the_program_does(pods: Pods, program: str, status: int, out: bytes) -> None:
    process = pods.start("sh", "-c", program)
    said, told = finish(process)
    assert (process.returncode, said) == (status, out), (told, pods.log())
    assert "the client has left" in pods.log()


def test_a_program_that_is_not_there_is_told_as_by_a_shell(pods: Pods) -> None:
    process = pods.start("no-such-command")
    _, told = finish(process)
    assert process.returncode == 127
    assert b'exec: "no-such-command": executable file not found in $PATH' in told


@pytest.mark.parametrize("megabytes", [20])
def test_input_comes_back_as_output_with_the_same_checksum(pods: Pods, megabytes: int) -> None:
    data = os.urandom(megabytes << 20)
    process = pods.start("cat", stdin=subprocess.PIPE)
    said, told = finish(process, data)
    assert process.returncode == 0, told
    assert len(said) == len(data), pods.log()
    assert hashlib.sha256(said).digest() == hashlib.sha256(data).digest()


def test_a_reader_that_has_enough_ends_the_program(pods: Pods) -> None:
    process = pods.start("yes")
    assert process.stdout is not None
    assert process.stdout.read(4) == b"y\ny\n"
    process.stdout.close()
    process.wait(scaled(20))
    assert process.returncode == 128 + signal.SIGPIPE
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_program(pods: Pods, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    process = pods.start(
        "sh", "-c", f"trap 'echo heard; exit 3' {name}; echo runs; while :; do sleep 0.02; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"runs\n"
    process.send_signal(number)
    said, _ = finish(process)
    assert (process.returncode, said) == (3, b"heard\n")


def test_a_cut_connection_is_made_anew_and_nothing_is_lost(pods: Pods) -> None:
    lines = "for n in $(seq 3000); do echo line $n; [ $((n % 300)) -eq 0 ] && sleep 0.1; done"
    process = pods.start("sh", "-c", lines)
    assert process.stdout is not None
    first = process.stdout.readline()
    for _ in range(4):
        time.sleep(0.15)
        pods.relay.cut()
    said, told = finish(process)
    assert process.returncode == 0, (told, pods.log())
    assert first + said == b"".join(b"line %d\n" % number for number in range(1, 3001))
    heard = [line.partition(":")[0] for line in pods.heard()]  # of a loss for which the machine took its time
    assert heard == ["lost", "back"] * (len(heard) // 2)


def test_an_outage_is_told_and_its_end_too(pods: Pods) -> None:
    process = pods.start("sh", "-c", "echo runs; read word; echo $word", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"runs\n"
    pods.relay.refuse = "reset"
    pods.relay.cut()
    wait_until(pods.heard, "the loss", 10)
    pods.relay.refuse = ""
    wait_until(lambda: "back" in pods.heard(), "its end", 10)
    said, _ = finish(process, b"done\n")
    assert (process.returncode, said) == (0, b"done\n")
    assert [line.partition(":")[0] for line in pods.heard()] == ["lost", "back"]


@pytest.mark.slow
@pytest.mark.long  # a silence is known by its length
@pytest.mark.parametrize("fault", ["silent to pod", "silent to client", "half-open"])
def test_a_network_that_is_half_away_for_a_while_costs_no_byte(pods: Pods, fault: str) -> None:
    lines = "for n in $(seq 200); do read word; echo $word; sleep 0.1; done"
    process = pods.start("sh", "-c", lines, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    words = b"".join(b"line %d\n" % number for number in range(200))
    process.stdin.write(words)
    first = process.stdout.readline()
    began = time.monotonic()
    if fault == "half-open":
        pods.relay.refuse = fault
        pods.relay.cut()
    else:
        pods.relay.silent = fault.removeprefix("silent ")
    wait_until(pods.heard, "the loss", 20)
    told = time.monotonic() - began
    time.sleep(6)  # tries that come to nothing
    pods.relay.refuse = pods.relay.silent = ""
    said, err = finish(process)
    heard = [line.partition(":")[0] for line in pods.heard()]
    print(f"{fault}: told after {told:.1f} s: {pods.heard()[0]} | lines lost: {199 - said.count(b'line')}")
    assert process.returncode == 0, (err, pods.log())
    assert first + said == words
    assert heard == ["lost", "back"]


def test_a_loss_in_the_turn_of_the_first_word_is_told_as_any_other_and_a_moment_is_nobodys_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr(signals, "as_bytes", lambda numbers: read_end)
    context, hears = Keys(tmp_path).context(CLIENT, POD), Hears()
    remote = RemoteProgram(("127.0.0.1", 1), context, Spawn(("cat",), {}), hears)
    remote._session.link.connections = 1  # it was there, and no turn has ended well
    lost_at, remote._lost_at = remote._lost_at, math.inf
    remote._look_at_loss()
    assert hears.told == []
    remote._lost_at = lost_at - TELL_AFTER
    remote._look_at_loss()
    assert hears.told == ["lost"]
    remote._session.close()
    os.close(read_end)
    os.close(write_end)


def test_the_word_that_starts_a_program_names_the_sockets_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, (read_end, write_end) = tmp_path / "folder", os.pipe()
    folder.mkdir()
    monkeypatch.setattr(signals, "as_bytes", lambda numbers: read_end)
    monkeypatch.chdir(folder)  # paths of sockets are short
    remote = RemoteProgram(
        ("127.0.0.1", 1),
        Keys(tmp_path).context(CLIENT, POD),
        Spawn(("cat",), {}, folder=str(folder)),
        Hears(),
    )
    said: list[bytes] = []

    def put(kind: Kind, channel: int = 0, payload: bytes = b"") -> None:
        said.extend([payload] if kind is Kind.SPAWN else [])

    def stop() -> None:
        raise ProtocolError("enough")

    monkeypatch.setattr(remote._session.link, "put", put)
    monkeypatch.setattr(remote, "_turn", stop)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("launcher-1")
        with pytest.raises(ProtocolError):
            remote.run()
    assert spawn_from_json(said[0]).sockets == ("launcher-1",)
    os.close(read_end)
    os.close(write_end)


class Hears:
    def __init__(self) -> None:
        self.told: list[str] = []

    def begins(self, started: Started) -> None:
        self.told.append("begins")

    def lost(self, why: str, seconds_left: float) -> None:
        self.told.append("lost")

    def back(self, seconds: float) -> None:
        self.told.append("back")

    def is_over(self) -> bool:
        return False


def test_a_pod_that_is_over_is_told_at_once(pods: Pods) -> None:
    process = pods.start("sh", "-c", "echo runs; exec sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == b"runs\n"
    began = time.monotonic()
    pods.relay.stop_listening()
    pods.relay.cut()
    _, told = finish(process)
    assert process.returncode == 137
    assert b"Error: PodOver: Connection refused" in told
    assert time.monotonic() - began < RESUME


def test_a_signal_ends_a_command_whose_pod_cannot_be_reached(pods: Pods) -> None:
    process = pods.start("sh", "-c", "echo runs; exec sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == b"runs\n"
    pods.relay.refuse = "reset"
    pods.relay.cut()
    wait_until(pods.heard, "the loss", 10)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert process.returncode == 128 + signal.SIGTERM
