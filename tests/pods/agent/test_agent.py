"""The agent as process 1 of a pid namespace: its client, its program, and everybody else."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from bitfusion_client.pod.oom_kills import OomKills
from bitfusion_pods.agent import program
from bitfusion_pods.agent.__main__ import listen
from bitfusion_pods.agent.agent import LAST_OUTPUT, RESUME, Agent
from bitfusion_pods.spawn import Ended
from bitfusion_pods.stream.channel import WINDOW
from bitfusion_pods.stream.channels import STDERR, STDOUT
from bitfusion_pods.stream.frames import Kind
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.handshake import LIMIT, Handshake, Refused
from bitfusion_pods.stream.link import Lost
from bitfusion_pods.stream.tls_connection import TlsConnection
from tests.pods.agent.agent_client import AgentClient, RunningAgent
from tests.pods.stream.sides import CLIENT, POD, SESSION, STRANGER, Keys
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[3]
Connect = Callable[..., AgentClient]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def agent(keys: Keys, tmp_path: Path) -> Iterator[RunningAgent]:
    made = RunningAgent(keys, tmp_path, {"HOSTNAME": "the-pod", "NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    yield made
    made.end()


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[AgentClient]:
    made = AgentClient(agent)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("program", "status", "out", "err"),
    [
        ("echo said; echo told >&2; exit 7", 7, b"said\n", b"told\n"),
        ("kill -TERM $$", -15, b"", b""),
        ("cat", 0, b"typed\n", b""),
        ("seq 100000 | tail -1", 0, b"100000\n", b""),
        ("echo $$ $PPID", 0, b"2 1\n", b""),
    ],
)
def test_a_program_runs_and_its_output_and_status_come_back(
    agent: RunningAgent, client: AgentClient, program: str, status: int, out: bytes, err: bytes
) -> None:
    client.spawn("sh", "-c", program)
    client.until(Kind.SPAWNED)
    os.write(client.stdin, b"typed\n")
    os.close(client.stdin)
    client.stdin = -1
    assert client.ended() == Ended(status)
    assert (client.out[STDOUT], client.out[STDERR]) == (out, err)
    client.say(Kind.BYE)
    assert "ends: the client has left" in agent.wait_for_end()


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
def test_it_is_reached_at_addresses_of_both_kinds(agent: RunningAgent, host: str) -> None:
    client = AgentClient(agent, host=host)
    client.spawn("echo", "here")
    assert client.ended() == Ended(0)
    assert client.out[STDOUT] == b"here\n"
    client.close()


def test_where_linux_has_no_ipv6_it_listens_at_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen(0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        assert listener.family == socket.AF_INET


@pytest.mark.parametrize(
    ("membership", "file"),
    [("4:memory:/pod\n0::/\n", "memory/memory.oom_control"), ("0::/\n", "memory.events")],
    ids=["version 1", "version 2"],
)
def test_memory_that_ran_out_since_the_program_runs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, file: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(membership)
    counted = tmp_path / "cgroups" / file
    counted.parent.mkdir(parents=True)
    counted.write_text("oom_kill 3\n")
    monkeypatch.setattr(
        program, "OomKills", lambda pid: OomKills(pid, str(tmp_path), str(tmp_path / "cgroups"))
    )
    runs = program.Program(7, {}, None)
    assert not runs.memory_ran_out
    counted.write_text("oom_kill 4\n")
    assert runs.memory_ran_out


def test_what_is_sent_behind_the_word_that_starts_a_program_reaches_it(client: AgentClient) -> None:
    client.spawn("cat")
    os.write(client.stdin, b"early\n")
    for _ in range(3):
        client.session.channels.serve(
            dict.fromkeys(range(client.stdin), 1)
        )  # all before the agent hears of it
    client.until_said(b"early\n")


def test_the_end_waits_for_output_whose_reader_is_slow(client: AgentClient) -> None:
    all_of_it = WINDOW + 65536  # what the reader has not allowed yet stays in the program's pipe
    client.spawn("sh", "-c", f"read go; head -c {all_of_it} /dev/zero")
    client.until(Kind.SPAWNED)
    os.write(client.stdin, b"go\n")
    client.turn()
    time.sleep(LAST_OUTPUT + 1.0)
    assert client.ended() == Ended(0)
    assert len(client.out[STDOUT]) == all_of_it


@pytest.mark.parametrize(
    ("argv", "why", "status"),
    [
        (["/no/such"], "executable file not found in $PATH", 127),
        (["no-such-command"], "executable file not found in $PATH", 127),
        (["/etc/passwd"], "Permission denied", 126),
        (["a\0b"], "embedded null", 126),
    ],
)
def test_a_program_that_cannot_be_started_is_told_with_a_shells_status(
    client: AgentClient, argv: list[str], why: str, status: int
) -> None:
    client.spawn(*argv)
    failed = client.failed()
    assert why in failed.why
    assert failed.status == status


@pytest.mark.parametrize(("minor", "runs"), [(sys.version_info[1], True), (9, False)])
def test_a_twin_image_with_another_python_is_refused_with_a_cure(
    client: AgentClient, minor: int, runs: bool
) -> None:
    wanted = {sys.executable: f"3.{minor}", "python3-of-elsewhere": "3.8"}
    client.spawn(sys.executable, "-c", "", pythons=wanted)
    if runs:
        assert client.ended() == Ended(0)
        return
    failed = client.failed()
    assert f"{sys.executable} has Python 3.{sys.version_info[1]}, the notebook's has 3.9" in failed.why
    assert "GPU image with Python 3.9" in failed.cure


def test_the_pods_variables_win_and_others_are_the_notebooks(client: AgentClient) -> None:
    given = {
        "HOSTNAME": "the-notebook",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "MINE": "kept",
        "PATH": "/usr/bin:/bin",
    }
    client.spawn(
        "sh", "-c", "echo $HOSTNAME $NVIDIA_VISIBLE_DEVICES $MINE; pwd", environment=given, cwd="/usr"
    )
    client.ended()
    assert client.out[STDOUT] == b"the-pod GPU-1 kept\n/usr\n"


def test_a_folder_that_the_pod_has_not_is_the_home_folder(client: AgentClient, tmp_path: Path) -> None:
    client.spawn("pwd", environment={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, cwd="/not/mounted/here")
    client.ended()
    assert client.out[STDOUT] == f"{tmp_path}\n".encode()


def test_signals_reach_the_whole_group(client: AgentClient) -> None:
    client.spawn("sh", "-c", "trap 'echo heard' USR1; sh -c 'echo child; sleep 60' & wait; wait; exit 3")
    client.until_said(b"child")
    client.say(Kind.SIGNAL, bytes([signal.SIGUSR1]))
    client.until_said(b"heard")
    assert client.ended().status == 3, "the child got it, too"


def test_a_program_that_is_fast_finds_the_sockets_that_were_there_when_it_was_asked_for(
    client: AgentClient, tmp_path: Path
) -> None:
    """However late the client tells of them: its own look at the folder comes in frames behind this one."""
    there = tmp_path / "folder"
    asks = (
        f"import socket\nsocket.socket(socket.AF_UNIX).connect({str(there / 'launcher-1')!r})\nprint('met')"
    )
    client.spawn(sys.executable, "-c", asks, folder=str(there), sockets=("launcher-1",))
    client.until_said(b"met")


@pytest.mark.parametrize("sockets", [("../x",), (".x",), ("a/b",), ("",)])
def test_a_socket_that_is_told_outside_of_the_folder_ends_the_session(
    agent: RunningAgent, client: AgentClient, tmp_path: Path, sockets: tuple[str, ...]
) -> None:
    client.spawn("true", folder=str(tmp_path / "folder"), sockets=sockets)
    with pytest.raises(Lost):
        wait_until(lambda: client.turn() and False, "the end")
    assert "is not a valid socket name" in agent.wait_for_end()


def test_the_private_folder_is_made_with_its_files_and_shows_sockets_here(
    client: AgentClient, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "pods" / "folder"
    here.mkdir()
    client.session.mirror_folder(str(here))
    serves = (
        "import os, socket\nlistener = socket.socket(socket.AF_UNIX)\n"
        f"os.chdir({str(there)!r})\nassert open('kernel-1').read() == 'a key'\n"
        "listener.bind('socket')\nlistener.listen()\nprint('listens', flush=True)\n"
        "peer, _ = listener.accept()\npeer.sendall(peer.recv(100)[::-1])"
    )
    client.spawn(sys.executable, "-c", serves, folder=str(there), files={"kernel-1": "a key"})
    client.until_said(b"listens")
    wait_until(lambda: client.turn() and (here / "socket").exists(), "the mirror")
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(here / "socket"))
        peer.sendall(b"abc")
        peer.setblocking(False)
        answer: list[bytes] = []

        def answered() -> list[bytes]:
            client.turn()
            try:
                answer.append(peer.recv(100))
            except BlockingIOError:
                pass
            return answer

        wait_until(answered, "the answer")
    assert answer[0] == b"cba"
    assert (there.stat().st_mode & 0o777, (there / "kernel-1").stat().st_mode & 0o777) == (0o700, 0o600)
    assert client.ended().status == 0


def test_a_private_folder_in_shared_files_is_refused_with_a_cure(client: AgentClient, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    client.spawn("true", folder=str(tmp_path / "folder"), files={"kernel-1": "a key"})
    failed = client.failed()
    assert f"the folder {tmp_path}/folder already exists" in failed.why
    assert "XDG_RUNTIME_DIR" in failed.cure
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("name", ["../outside", "a/b"])
def test_files_stay_in_the_folder(client: AgentClient, tmp_path: Path, name: str) -> None:
    client.spawn("true", folder=str(tmp_path / "folder"), files={name: "text"})
    assert "outside of the private folder" in client.failed().why


@pytest.mark.parametrize("times", [3])
def test_a_connection_that_is_cut_is_resumed_and_nothing_is_lost(client: AgentClient, times: int) -> None:
    client.spawn(
        "sh", "-c", "for n in $(seq 2000); do echo line $n; [ $((n % 200)) -eq 0 ] && sleep 0.05; done"
    )
    client.until_said(b"line 200\n")
    for _ in range(times):
        client.cut()
        time.sleep(0.05)
        client.connect()
        client.turn()
    assert client.ended().status == 0
    assert client.out[STDOUT] == b"".join(b"line %d\n" % number for number in range(1, 2001))


# -- ends --------------------------------------------------------------------------------------------


def test_a_client_that_leaves_for_good_takes_its_program_along(
    agent: RunningAgent, client: AgentClient
) -> None:
    client.spawn("sh", "-c", "echo runs; exec sleep 600")
    client.until_said(b"runs")
    client.say(Kind.BYE)
    assert "the client has left" in agent.wait_for_end()


def test_a_client_that_dials_again_and_does_not_come_is_not_waited_for_for_ever(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greeting ends the connection before; the next one may never be."""
    pipe = os.pipe()
    monkeypatch.setattr("bitfusion_pods.signals.as_bytes", lambda numbers: pipe[0])
    now = time.monotonic()
    monkeypatch.setattr("bitfusion_pods.agent.agent.time.monotonic", lambda: now)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = Agent(listener, keys.context(POD, CLIENT), lambda line: None)
        first, again = Greeting(SESSION, 0), Greeting(SESSION, 0)
        served._greet(first)
        assert served._session is not None
        ends = socket.socketpair()
        served._session.link.attach(cast(TlsConnection, ends[0]), first, first)
        served._gone_until = None
        served._greet(again)
        assert served._why_over() is None
        now += RESUME
        assert served._why_over() == "the client has connected again but did not resume"
    for fd in pipe:
        os.close(fd)
    ends[1].close()


def test_a_client_whose_process_died_has_three_seconds(agent: RunningAgent, client: AgentClient) -> None:
    client.spawn("sh", "-c", "echo runs; exec sleep 600")
    client.until_said(b"runs")
    began = time.monotonic()
    client.close()
    assert "the client is gone: the other side has closed the connection" in agent.wait_for_end()
    assert 2.5 < time.monotonic() - began < 3.0 + scaled(2)


PATIENT = f"""
import sys
sys.path.append({str(ROOT)!r})
from bitfusion_pods.agent import __main__, agent
agent.TERM_PATIENCE = 60.0
sys.exit(__main__.main(sys.argv[1:]))
"""


def test_sigterm_lets_the_program_end_and_tells_the_client(keys: Keys, tmp_path: Path) -> None:
    agent = RunningAgent(keys, tmp_path, {}, ("-c", PATIENT))
    client = AgentClient(agent)
    client.spawn("sh", "-c", "trap 'echo saves; exit 5' TERM; echo runs; while :; do sleep 0.05; done")
    client.until_said(b"runs")
    os.kill(_process_1(agent), signal.SIGTERM)
    assert client.ended() == Ended(5, told_to=True)
    assert b"saves" in client.out[STDOUT]
    assert "asked to end" in agent.wait_for_end()
    client.close()
    agent.end()


def test_a_program_that_ignores_sigterm_is_not_waited_for(agent: RunningAgent, client: AgentClient) -> None:
    client.spawn("sh", "-c", "trap '' TERM; echo runs; while :; do sleep 0.05; done")
    client.until_said(b"runs")
    began = time.monotonic()
    os.kill(_process_1(agent), signal.SIGTERM)
    assert "asked to end" in agent.wait_for_end()
    assert 2 < time.monotonic() - began < 2.5 + scaled(2)


def test_what_a_program_leaves_behind_is_reaped_and_ends_with_the_pod(
    agent: RunningAgent, client: AgentClient
) -> None:
    client.spawn(
        *("sh", "-c"),
        "setsid sleep 600 >/dev/null 2>&1 & orphan=$(sleep 0.1 >/dev/null & echo $!); "
        "while [ -e /proc/$orphan ]; do sleep 0.05; done; ps -eo stat | grep -c Z",
    )
    client.ended()
    assert client.out[STDOUT] == b"0\n", "no zombies: process 1 reaps orphans"
    client.say(Kind.BYE)
    agent.wait_for_end()


def _process_1(agent: RunningAgent) -> int:
    """The agent as this namespace numbers it: a child of the one that made the namespace."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return int(children[0]) if children else agent.process.pid


# -- strangers ---------------------------------------------------------------------------------------


def test_strangers_are_refused_and_hold_up_nobody(
    agent: RunningAgent, keys: Keys, client: AgentClient
) -> None:
    client.spawn("cat")
    client.until(Kind.SPAWNED)
    silent = [agent.dial() for _ in range(20)]  # some are closed at once: so many may wait at most
    plain = agent.dial()
    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    folder = keys.folder / STRANGER
    context = keys.context(CLIENT, POD)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    took = []
    for number in range(20):
        began = time.monotonic()
        os.write(client.stdin, b"%d\n" % number)
        client.until_said(b"%d\n" % number)
        took.append(time.monotonic() - began)
    assert sorted(took)[-3] < scaled(0.1), "the machine may stand still once or twice"
    assert max(took) < scaled(LIMIT)
    wait_until(lambda: agent.has_said("it took too long"), lambda: agent.log, 10)
    stranger = Handshake(agent.dial(), context, lambda _: client.session.link.greet(), server=False)
    with pytest.raises(Refused):
        wait_until(lambda: stranger.go_on() and stranger.connection.recv(1), "the refusal")
    for each in (*silent, plain):
        each.close()


def test_another_session_with_the_right_key_is_refused_while_there_is_one(
    agent: RunningAgent, keys: Keys, client: AgentClient
) -> None:
    client.spawn("cat")
    client.until(Kind.SPAWNED)
    with pytest.raises((Refused, AssertionError)):
        AgentClient(agent, b"another session!")
    wait_until(lambda: agent.has_said("another session is using this pod"), lambda: agent.log)
    os.write(client.stdin, b"still here\n")
    client.until_said(b"still here")


def test_nonsense_from_a_client_with_the_right_key_ends_the_pod(
    agent: RunningAgent, client: AgentClient
) -> None:
    client.session.link._kept.put(b"\x05" + bytes(4) + b"\xff\xff\xff\xff")
    client.session.link.flush()
    assert "does not follow the protocol: a frame DATA of 4294967295 bytes" in agent.wait_for_end()


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"argv": []}', b'{"argv": ["a"], "cwd": 3}', b"\xff"])
def test_a_spawn_that_is_none_ends_the_pod(agent: RunningAgent, client: AgentClient, payload: bytes) -> None:
    client.say(Kind.SPAWN, payload)
    assert "does not follow the protocol" in agent.wait_for_end()


def test_it_says_why_it_cannot_begin(keys: Keys, tmp_path: Path) -> None:
    import subprocess

    from tests.pods.agent.agent_client import AGENT

    for words, why in (
        ([], "usage:"),
        (["--keys", str(tmp_path), "--port", "0"], "cannot start: "),
        (["--keys", str(tmp_path), "--port", "x"], "usage:"),
    ):
        done = subprocess.run(
            [sys.executable, "-I", "-S", AGENT, *words], capture_output=True, text=True, timeout=scaled(20)
        )
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
