"""An agent that says what no agent says: the command ends in words with a status, and does not grow."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitfusion_pods.command.remote_program import RemoteProgram
from bitfusion_pods.spawn import Ended, Spawn
from bitfusion_pods.stream.frames import FrameReader, Kind, ProtocolError, count
from bitfusion_pods.stream.kept_bytes import MOST_EVER
from tests.pods.command.hostile_agent import HostileAgent
from tests.pods.command.pods import ROOT
from tests.pods.command.run_in_namespace import Heard
from tests.pods.frame_bytes import encode
from tests.pods.stream.sides import CLIENT, POD, Keys
from tests.support.machine import scaled

pytestmark = pytest.mark.timeout(120)

EXIT = encode(Kind.EXIT, 0, Ended(7).to_json())
Say = Callable[..., HostileAgent]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def says(keys: Keys) -> Iterator[Say]:
    made: list[HostileAgent] = []

    def say(words: bytes, *, again: bool = False, reads: bool = True) -> HostileAgent:
        made.append(HostileAgent(keys, words, again=again, reads=reads))
        return made[-1]

    yield say
    for each in made:
        each.close()


def start(keys: Keys, agent: HostileAgent, **more: str) -> subprocess.Popen[bytes]:
    environment = {"PODS_KEYS": str(keys.folder), "PODS_PORT": str(agent.port), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pods.command.run_in_namespace", "run", "-n", "1", "--", "cat"],
        env=os.environ | environment | more,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def told_by(process: subprocess.Popen[bytes]) -> bytes:
    """Its stderr, once it has ended."""
    try:
        return process.communicate(timeout=scaled(8))[1]
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it does not end: {process.communicate()}")


def head(kind: int, length: int) -> bytes:
    return struct.pack("!BII", kind, 0, length)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (head(Kind.DATA, 2**32 - 1), b"a frame DATA of 4294967295 bytes"),
        (head(201, 2**31), b"a frame 201 of 2147483648 bytes"),
        (head(Kind.EXIT, 4097), b"a frame EXIT of 4097 bytes"),
        (encode(Kind.EXIT, 0, b"no JSON"), b"not a JSON object"),
        (encode(Kind.EXIT, 0, b'{"status": 100000}'), b"an end without a status"),
        (encode(Kind.FAILED, 0, b'{"why": 3}'), b"a failure without a reason"),
        (encode(Kind.CREDIT, 2, count(2**32 - 1, 4)), b"credit of 4294967295 bytes"),
        (encode(Kind.CREDIT, 2, count(1 << 20, 4)) * 2, b"credit of 1048576 bytes"),
        (encode(Kind.OPEN, 16, b"x"), b"which it may not open"),
        (encode(Kind.ACK, 0, count(2**63)), b"it has received 9223372036854775808 bytes"),
        (encode(Kind.DATA, 2, b"x") + encode(Kind.EOF, 2) + encode(Kind.DATA, 2, b"y"), b"without credit"),
    ],
)
def test_what_no_agent_says_ends_the_command_in_words(
    keys: Keys, says: Say, words: bytes, why: bytes
) -> None:
    process = start(keys, says(words))
    told = told_by(process)
    assert process.returncode == 137
    assert why in told
    assert told.startswith(b"Error: ProtocolError: ")
    assert b"Traceback" not in told


@pytest.mark.parametrize(
    "words",
    [
        encode(Kind.SPAWNED, 0, b"{}") * 100_000,
        encode(Kind.SPAWN, 0, b"{}") + encode(Kind.SIGNAL, 0, b"\x09") + encode(Kind.WINDOW_SIZE, 0, b"x"),
        (head(200, 65536) + bytes(65536)) * 100,
        encode(Kind.RESET, 1) + encode(Kind.RESET, 2) + encode(Kind.RESET, 3) + encode(Kind.RESET, 2),
        encode(Kind.LISTEN, 0, b"../../x") * 100 + encode(Kind.FILE, 0, b"a\0b"),
        encode(Kind.OPEN, 17, b"a socket"),
        encode(Kind.CREDIT, 99, bytes(4)) * 10_000,
    ],
    ids=["SPAWNED", "of a client", "unknown", "RESET", "LISTEN", "OPEN", "CREDIT"],
)
def test_what_means_nothing_is_passed_over(keys: Keys, says: Say, words: bytes) -> None:
    process = start(keys, says(words + EXIT))
    told = told_by(process)
    assert (process.returncode, told) == (7, b"")


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (encode(Kind.SPAWNED, 0, b"{}") * 1000, True),
        (encode(Kind.CREDIT, 99, bytes(4)) * 1000, True),
        (encode(Kind.PING, 0, bytes(8)) * 1000, False),
        (encode(Kind.OPEN, 17, b"a socket") * 1000, False),
        (head(200, 65536) + bytes(65536), True),
    ],
    ids=["SPAWNED", "CREDIT", "PING", "OPEN", "unknown"],
)
def test_an_agent_that_never_stops_does_not_make_the_command_grow_and_a_signal_still_works(
    keys: Keys, says: Say, words: bytes, reads: bool
) -> None:
    agent = says(words, again=True, reads=reads)
    process = start(keys, agent)
    deadline = time.monotonic() + scaled(20)
    while agent.said < 50 * len(words) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    before = resident_kib(process.pid)
    time.sleep(1.5)
    if process.poll() is None:
        assert resident_kib(process.pid) - before < 25_000
        process.terminate()
        if _waits(process, 3):
            process.kill()
    told = told_by(process)
    assert process.returncode != 0
    assert b"Traceback" not in told


def resident_kib(pid: int) -> int:
    _, _, after = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")
    return int(after.split()[0]) if after else 0


def _waits(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_an_agent_cannot_put_sockets_in_the_place_of_what_is_here(
    keys: Keys, says: Say, tmp_path: Path
) -> None:
    """Neither of files nor of sockets."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    (folder / "kernel-1.json").write_text("{}")
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(str(folder / "proxy"))
        mine.listen()
        names = (b"kernel-1.json", b"proxy", b"new")
        agent = says(b"".join(encode(Kind.LISTEN, 0, name) for name in names))
        process = start(keys, agent, BITFUSION_KERNEL_SOCKET=str(folder / "proxy"))
        deadline = time.monotonic() + scaled(20)
        while not (folder / "new").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (folder / "new").is_socket()
        assert (folder / "kernel-1.json").read_text() == "{}"
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(folder / "proxy"))
            mine.settimeout(5)
            mine.accept()[0].close()
        process.kill()
        process.communicate()


# -- noise ---------------------------------------------------------------------------------------------

frames = st.builds(
    lambda kind, channel, payload: struct.pack("!BII", kind, channel, len(payload)) + payload,
    st.sampled_from([*map(int, Kind), 99]),
    st.sampled_from([0, 1, 2, 3, 16, 17, 19, 2**32 - 1]),
    st.one_of(
        st.binary(max_size=40),
        st.just(bytes(65536)),
        st.sampled_from([b"terminal", Ended(3).to_json(), b'{"why": "x", "status": 127}', b"a socket"]),
        st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big")),
    ),
)
streams = st.lists(st.one_of(frames, frames, st.binary(max_size=30)), max_size=30).map(b"".join)


@given(streams)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_noise_of_an_agent_is_served_or_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, tmp_path: Path, data: bytes
) -> None:
    pipes = [os.pipe() for _ in range(3)]
    monkeypatch.setattr("bitfusion_pods.signals.as_bytes", lambda numbers: os.dup(pipes[2][0]))
    monkeypatch.setattr("bitfusion_pods.command.stdio.source", lambda number: os.dup(pipes[0][0]))
    monkeypatch.setattr("bitfusion_pods.command.stdio.sink", lambda number: os.dup(pipes[1][1]))
    asked = Spawn(("cat",), {}, folder=str(tmp_path))
    remote = RemoteProgram(("127.0.0.1", 1), keys.context(CLIENT, POD), asked, Heard())
    session = remote._session
    remote._use_pipes()
    session.mirror_folder(str(tmp_path))
    try:
        for frame in FrameReader().read(data):
            if not session.link._take(frame) and not session._take(frame):
                remote._take(frame)
            session.channels.serve(dict.fromkeys(range(100), 4))
    except ProtocolError:
        pass
    kept = session.link._kept
    assert kept.end - kept.base < MOST_EVER
    os.close(remote._signals)
    session.close()
    for fd in {fd for pipe in pipes for fd in pipe}:
        os.close(fd)
