"""What the holder of the right key says: the agent goes on or ends in words, and never grows."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitfusion_pods.agent.agent import Agent
from bitfusion_pods.agent.program import CannotStart, Program
from bitfusion_pods.spawn import Failed, Spawn
from bitfusion_pods.stream.channel import WINDOW
from bitfusion_pods.stream.frames import FrameReader, Kind, ProtocolError
from bitfusion_pods.stream.kept_bytes import MOST_EVER
from bitfusion_pods.stream.session import Session
from tests.pods.agent.agent_client import AgentClient, RunningAgent
from tests.pods.frame_bytes import encode
from tests.pods.stream.sides import CLIENT, POD, SESSION, Keys
from tests.support.machine import scaled
from tests.support.rounds import rounds

PREFIXES = [b"", b"\x01", b"kernel-1", b"../x", b"a" * 100, b"\xff"]
SPAWNS = [
    {"argv": ["a"], "cwd": "a\0b"},
    {"argv": ["a"], "folder": "\ud800"},
    {"argv": ["a"], "folder": "/tmp/a\0b"},
    {"argv": ["a"], "environment": {"PATH": "a\0b"}},
    {"argv": ["\ud800"]},
    {"argv": ["a", "b\0c"]},
    {"argv": [""]},
    {"argv": ["a"], "environment": {"A=B": "c"}},
    {"argv": ["a"], "environment": {"": "c"}},
    {"argv": ["a"], "folder": "/proc/self/no"},
    {
        "argv": ["cat"],
        "terminal": {"rows": 65535, "columns": 0, "modes": [2**32 - 1] * 3, "characters": [255] * 32},
    },
    {"argv": ["cat"], "closed": [0, 1, 2, 2, 2][:3]},
]

heads = st.tuples(st.integers(0, 255), st.integers(0, 70), st.integers(0, 300)).map(
    lambda head: struct.pack("!BII", *head)
)
payloads = st.one_of(
    st.binary(max_size=64),
    st.sampled_from(PREFIXES),
    st.sampled_from([json.dumps(each).encode() for each in SPAWNS]),
    st.integers(0, 2**64 - 1).map(lambda number: number.to_bytes(8, "big")),
    st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big")),
    st.sampled_from([1, 1000, 65536]).map(bytes),
)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack("!BII", kind, channel, len(payload)) + payload


frames = st.builds(
    frame,
    st.sampled_from([int(kind) for kind in Kind] + [200]),
    st.sampled_from([0, 1, 2, 3, 15, 16, 17, 18, 20, 2**32 - 1]),
    payloads,
)
streams = st.lists(st.one_of(frames, frames, frames, heads, st.binary(max_size=20)), max_size=30).map(
    b"".join
)


class Fed:
    """An agent without a connection that is given what has come on one."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.agent = Agent(self._listener, keys.context(POD, CLIENT), lambda line: None)
        self.session = self.agent._session = Session(SESSION, of_pod=True)
        self.session.mirror_folder(str(folder))

    def feed(self, data: bytes) -> None:
        """All of it. Raises ProtocolError."""
        for each in FrameReader().read(data):
            if not self.session.link._take(each) and not self.session._take(each):
                self.agent._take(each)
            self.session.channels.serve(dict.fromkeys(range(200), 1 | 4))

    def close(self) -> None:
        self.session.close()
        self._listener.close()
        os.close(self.agent._signals)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs have pipes here, and no process."""

    def start(asked: Spawn, pod: object, on_folder: object) -> Program:
        if len(asked.argv) > 1:
            raise CannotStart(Failed("not in this test", 126))
        try:
            os.lstat(asked.folder)
        except OSError:
            pass
        except ValueError as error:  # no path: as where the folder is made
            raise CannotStart(Failed(str(error), 126)) from None
        stdin, stdout = os.pipe(), os.pipe()
        made = Program(2**22, {0: stdin[1], 1: stdout[0]}, None)
        made.status = 0  # nothing is signalled
        os.close(stdin[0])
        os.close(stdout[1])
        return made

    def pipe(numbers: object) -> int:
        read_end, write_end = os.pipe()
        os.close(write_end)
        return read_end

    monkeypatch.setattr(Program, "start", start)
    monkeypatch.setattr("bitfusion_pods.signals.as_bytes", pipe)


def check(data: bytes, folder: Path, keys: Keys) -> None:
    fed = Fed(folder, keys)
    with contextlib.suppress(ProtocolError):
        fed.feed(data)
    kept = fed.session.link._kept
    assert kept.end - kept.base <= MOST_EVER
    for channel in fed.session.channels._channels.values():
        assert channel._waiting.size <= WINDOW
    fed.close()


RELAXED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(streams)
@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
def test_noise_of_the_right_client_is_served_or_refused_in_words(
    no_programs: None, tmp_path: Path, keys: Keys, data: bytes
) -> None:
    check(data, tmp_path, keys)


@pytest.mark.long
@pytest.mark.timeout(500)
@given(streams)
@settings(max_examples=rounds(2_500, 10_000), deadline=None, suppress_health_check=RELAXED)
def test_much_noise_of_the_right_client_is_served_or_refused_in_words(
    no_programs: None, tmp_path: Path, keys: Keys, data: bytes
) -> None:
    check(data, tmp_path, keys)


# -- with a real agent -------------------------------------------------------------------------------


@pytest.fixture
def agent(keys: Keys, tmp_path: Path) -> Iterator[RunningAgent]:
    made = RunningAgent(keys, tmp_path, {})
    yield made
    made.end()


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[AgentClient]:
    made = AgentClient(agent)
    yield made
    made.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("asked", SPAWNS, ids=lambda asked: ascii(asked)[:40])
def test_a_program_with_impossible_words_is_told_so_or_runs(
    agent: RunningAgent, client: AgentClient, asked: dict[str, object]
) -> None:
    client.say(Kind.SPAWN, json.dumps(asked).encode())
    deadline = time.monotonic() + scaled(10)
    while not client.frames and time.monotonic() < deadline:
        client.turn()
    assert client.frames[0].kind in (Kind.FAILED, Kind.SPAWNED)
    client.say(Kind.BYE)
    assert agent.wait_for_end().endswith("ends: the client has left\n")


def process_1(agent: RunningAgent) -> int:
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return int(children[0])


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "ask",
    [
        encode(Kind.OPEN, 16, b"no such socket") * 500,
        encode(Kind.PING, 0, bytes(8)) * 1000,
        encode(Kind.LISTEN, 0, b"a socket") * 500,
        encode(Kind.CREDIT, 1, bytes(4)) * 1000,
        encode(Kind.WINDOW_SIZE, 0, bytes(4)) * 1000,
        encode(Kind.SIGNAL, 0, b"\xff") * 1000,
    ],
    ids=["OPEN", "PING", "LISTEN", "CREDIT", "WINDOW_SIZE", "SIGNAL"],
)
def test_a_client_that_asks_and_never_reads_does_not_make_the_agent_grow(
    agent: RunningAgent, client: AgentClient, ask: bytes
) -> None:
    client.spawn(sys.executable, "-c", "import time; time.sleep(60)")
    client.until(Kind.SPAWNED)
    pid = process_1(agent)
    before, until = resident_kib(pid), time.monotonic() + 1.5
    connection = client.session.link.connection
    assert connection is not None
    while time.monotonic() < until and select.select([], [connection], [], 0.5)[1]:
        try:
            connection.send(ask)
        except ssl.SSLWantWriteError:
            continue
        except OSError:  # it has closed the connection, and ends
            break
    else:
        if agent.process.poll() is None:
            assert resident_kib(pid) - before < 25_000
            return
    assert "does not follow the protocol: it does not read what it asks for" in agent.wait_for_end()


def test_process_1_cannot_be_signalled_through_its_program(agent: RunningAgent, client: AgentClient) -> None:
    client.spawn("sh", "-c", "echo runs; exec sleep 60")
    client.until_said(b"runs")
    client.say(Kind.SIGNAL, bytes([0]))
    client.say(Kind.SIGNAL, bytes([signal.SIGKILL]))
    assert client.ended().status == -signal.SIGKILL
    assert agent.process.poll() is None
