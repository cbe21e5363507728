"""Both sides of a session: channels, back-pressure, the folder's sockets, lost connections, hostile peers."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_pods.stream import channels, mirror
from bitfusion_pods.stream.channel import WINDOW, Channel
from bitfusion_pods.stream.channels import MOST, STDIN, STDOUT, Channels
from bitfusion_pods.stream.frames import Frame, FrameReader, Kind, ProtocolError, count
from bitfusion_pods.stream.handshake import Handshake
from bitfusion_pods.stream.link import Link, Lost
from bitfusion_pods.stream.session import Session
from tests.pods.stream.sides import CLIENT, POD, SESSION, Keys, finish, tcp
from tests.support.machine import scaled
from tests.support.waiting import wait_until, wait_until_settled

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


class Side(threading.Thread):
    """One side, which turns until it is ended. Everything is done in its thread."""

    def __init__(self, *, of_pod: bool) -> None:
        super().__init__(daemon=True)
        self.session = Session(SESSION, of_pod=of_pod)
        self.frames: list[Frame] = []
        self.lost: list[Lost] = []
        self.error: Exception | None = None
        self._over = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[Session]:
        """Between two turns."""
        with self._lock:
            yield self.session

    def run(self) -> None:
        while not self._over:
            time.sleep(0)  # so that others get the lock
            with self._lock:
                try:
                    self.session.turn(0.02, self.frames.append)
                except Lost as lost:
                    self.lost.append(lost)
                    self.session.link.detach()
                except ProtocolError as error:
                    self.error = error
                    return

    def end(self) -> None:
        self._over = True
        self.join()
        self.session.close()


class Both:
    """A client and a pod."""

    def __init__(self, keys: Keys, base: Path) -> None:
        self.client, self.pod = Side(of_pod=False), Side(of_pod=True)
        self.folders = base / "client", base / "pod"
        self._contexts = keys.context(CLIENT, POD), keys.context(POD, CLIENT)
        self._pipes: list[int] = []

    def connect(self) -> None:
        raw = tcp()
        with self.client.held() as one, self.pod.held() as other:
            links = one.link, other.link
            dials = Handshake(raw[0], self._contexts[0], lambda _: links[0].greet(), server=False)
            listens = Handshake(raw[1], self._contexts[1], lambda _: links[1].greet(), server=True)
            theirs = finish(dials, listens)
            for link, handshake, greeting in zip(links, (dials, listens), theirs, strict=True):
                assert handshake.said is not None
                link.attach(handshake.connection, handshake.said, greeting)

    def cut(self) -> None:
        """The connection is gone, for both."""
        with self.client.held() as one, self.pod.held() as other:
            one.link.detach()
            other.link.detach()

    def mirror(self) -> None:
        for side, folder in zip((self.client, self.pod), self.folders, strict=True):
            folder.mkdir(mode=0o700)
            with side.held() as session:
                session.mirror_folder(str(folder))

    def pipe(self, number: int, *, from_pod: bool) -> tuple[int, int]:
        """A channel in one direction: where to write on one side and to read on the other."""
        into, out = os.pipe(), os.pipe()
        self._pipes += [into[1], out[0]]
        first, second = (self.pod, self.client) if from_pod else (self.client, self.pod)
        with first.held() as session:
            session.channels.add(number, into[0], None)
        with second.held() as session:
            session.channels.add(number, None, out[1])
        return into[1], out[0]

    def end(self) -> None:
        for fd in self._pipes:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.client.end()
        self.pod.end()
        assert (self.client.error, self.pod.error) == (None, None)


@pytest.fixture
def both(keys: Keys, tmp_path: Path) -> Iterator[Both]:
    made = Both(keys, tmp_path)
    made.connect()
    made.client.start()
    made.pod.start()
    yield made
    made.end()


def feed(fd: int, data: bytes) -> threading.Thread:
    """Write it all in a thread, then close."""

    def write() -> None:
        with os.fdopen(fd, "wb") as file, contextlib.suppress(BrokenPipeError):
            file.write(data)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, 1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def test_frames_for_the_owner_come_to_the_owner(both: Both) -> None:
    with both.client.held() as session:
        session.link.put(Kind.SPAWN, 0, b"{}")
    wait_until(lambda: both.pod.frames, "the frame")
    assert both.pod.frames == [(Kind.SPAWN, 0, b"{}")]


@pytest.mark.parametrize("cuts", [0, 5])
def test_bytes_arrive_whole_in_both_directions_though_the_connection_is_cut(both: Both, cuts: int) -> None:
    data = os.urandom(8 << 20)
    to_pod = both.pipe(STDIN, from_pod=False)
    to_client = both.pipe(STDOUT, from_pod=True)
    feed(to_pod[0], data)
    feed(to_client[0], data[::-1])
    came: dict[int, bytes] = {}
    readers = [
        threading.Thread(target=lambda fd=fd: came.update({fd: read_all(fd)}))
        for fd in (to_pod[1], to_client[1])
    ]
    for reader in readers:
        reader.start()
    for _ in range(cuts):
        time.sleep(0.03)
        both.cut()
        both.connect()
    for reader in readers:
        reader.join(scaled(30))
    assert hashlib.sha256(came[to_pod[1]]).digest() == hashlib.sha256(data).digest()
    assert came[to_client[1]] == data[::-1]


def test_a_reader_that_stands_still_stops_the_writer_and_nothing_grows(both: Both) -> None:
    fds = both.pipe(STDOUT, from_pod=True)
    os.set_blocking(fds[0], False)
    written, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def write() -> int:
        nonlocal written
        with contextlib.suppress(BlockingIOError):
            while True:
                written += os.write(fds[0], bytes(1 << 16))
        return written

    wait_until(lambda: write() > WINDOW, lambda: written)
    wait_until_settled(write)
    assert written < 2 * WINDOW + (1 << 18)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000, "KiB"
    other = both.pipe(7, from_pod=True)
    os.write(other[0], b"passes by")
    assert os.read(other[1], 100) == b"passes by"
    os.close(fds[0])
    assert len(read_all(fds[1])) == written


def test_a_reader_that_leaves_ends_the_writer(both: Both) -> None:
    fds = both.pipe(STDOUT, from_pod=True)
    os.close(fds[1])
    both._pipes.remove(fds[1])

    def is_told() -> bool:
        try:
            os.write(fds[0], b"yes\n")
        except BrokenPipeError:
            return True
        return False

    wait_until(is_told, "the writer's end")


def listening(folder: Path, name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(folder / name))
    made.listen()
    return made


def connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    made.connect(str(path))
    return made


def test_a_socket_that_appears_on_one_side_is_reached_from_the_other(both: Both) -> None:
    both.mirror()
    here, there = both.folders
    with listening(there, "kernel-1") as listener:
        wait_until((here / "kernel-1").exists, "the mirror")
        with connected(here / "kernel-1") as one:
            accepted, _ = listener.accept()
            with accepted:
                one.sendall(b"question")
                one.shutdown(socket.SHUT_WR)
                accepted.settimeout(10)
                assert accepted.recv(100) == b"question"
                assert accepted.recv(100) == b"", "half closed, as here"
                accepted.sendall(b"answer")
            assert one.recv(100) == b"answer"
            assert one.recv(100) == b""
    with both.pod.held() as session:
        wait = session.channels
    wait_until(lambda: len(wait) == 0, "the end of the channel")


def test_the_mirror_of_a_socket_that_is_gone_goes(both: Both) -> None:
    both.mirror()
    here, there = both.folders
    listening(there, "kernel-1").close()
    wait_until((here / "kernel-1").exists, "the mirror")
    with connected(here / "kernel-1") as one, contextlib.suppress(ConnectionResetError):
        assert one.recv(100) == b""
    wait_until(lambda: not (here / "kernel-1").exists(), "the end of the mirror")


def test_no_mirror_is_made_of_a_mirror_and_of_nothing_but_sockets(both: Both) -> None:
    both.mirror()
    here, there = both.folders
    (there / "a file").write_text("")
    (there / ".hidden").write_text("")
    with listening(there, "a"), listening(here, "b"), listening(there, ".hidden-socket"):
        wait_until(lambda: (here / "a").exists() and (there / "b").exists(), "both mirrors")
        time.sleep(0.1)
        assert sorted(path.name for path in here.iterdir()) == ["a", "b"]


def test_the_clients_files_are_written_to_the_pod_when_they_are_others(both: Both) -> None:
    both.mirror()
    here, there = both.folders

    def write(name: str, text: str) -> None:
        (here / name).write_text(text)
        wait_until(lambda: (there / name).exists() and (there / name).read_text() == text, "the file")

    for text in ("of the first kernel", "of the second"):
        write("kernel-1.json", text)
    assert (there / "kernel-1.json").stat().st_mode & 0o777 == 0o600
    (there / "of the pod").write_text("stays there")
    (here / "large").write_bytes(bytes(mirror.LONGEST_FILE + 1))
    (here / "link").symlink_to("/etc/passwd")
    (here / "state.json").write_text("for the command itself")
    write("last", "")
    assert sorted(path.name for path in there.iterdir()) == ["kernel-1.json", "last", "of the pod"]
    assert not (here / "of the pod").exists()


def test_a_file_that_is_just_written_is_sent_when_it_is_whole(both: Both) -> None:
    both.mirror()
    here, there = both.folders
    with (here / "slowly").open("w") as file:
        for _ in range(5):
            file.write("half")
            file.flush()
            time.sleep(0.05)
            assert not (there / "slowly").exists()
    wait_until(lambda: (there / "slowly").exists(), "the file")
    assert (there / "slowly").read_text() == "half" * 5


def test_where_nobody_tells_of_changes_a_file_is_sent_when_it_has_rested(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_watch", lambda folder: None)
    both.mirror()
    (both.folders[0] / "kernel-1.json").write_text("of the kernel")
    wait_until(lambda: (both.folders[1] / "kernel-1.json").exists(), "the file")


def test_a_pod_sends_no_files(tmp_path: Path) -> None:
    link, side = one_side()
    folder = mirror.Mirror(link, side, str(tmp_path), sends_files=True)
    assert not folder.take(Frame(Kind.FILE, 0, b"a\0b")), "nobody's"
    folder.close()


def test_where_nobody_tells_of_changes_the_folder_is_looked_at(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_watch", lambda folder: None)
    both.mirror()
    with listening(both.folders[1], "kernel-1"):
        wait_until((both.folders[0] / "kernel-1").exists, "the mirror")


def test_a_socket_that_is_bound_and_does_not_listen_yet_is_waited_for(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "CONNECT_FOR", scaled(5))
    both.mirror()
    here, there = both.folders
    with socket.socket(socket.AF_UNIX) as late:
        late.bind(str(there / "late"))
        wait_until((here / "late").exists, "the mirror")
        with connected(here / "late") as one:
            one.sendall(b"said before anybody listened")
            time.sleep(0.2)  # longer than it waits as it is shipped
            late.listen()
            late.settimeout(scaled(10))
            accepted, _ = late.accept()
            with accepted:
                accepted.settimeout(10)
                assert accepted.recv(100) == b"said before anybody listened"


# -- what a peer may not do -------------------------------------------------------------------------


def one_side(of_pod: bool = True) -> tuple[Link, Channels]:
    link = Link(SESSION)
    return link, Channels(link, of_pod=of_pod)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (Frame(Kind.OPEN, 17, b"own"), "which it may not open"),
        (Frame(Kind.OPEN, 2, b"stdout"), "which it may not open"),
        (Frame(Kind.DATA, 5, bytes(10)), "bytes without credit"),
        (Frame(Kind.CREDIT, 5, count(1, 4)), "never sent"),
    ],
)
def test_what_no_peer_does_ends_the_session(frame: Frame, why: str) -> None:
    _, side = one_side()
    pipe = os.pipe()
    side.add(5, pipe[0], None)
    with pytest.raises(ProtocolError, match=why):
        side.take(frame)
    side.close()
    os.close(pipe[1])


def test_more_than_the_window_is_refused_also_in_pieces() -> None:
    _, side = one_side()
    pipe = os.pipe()
    side.add(5, None, pipe[1])
    for _ in range(WINDOW // 65536):
        side.take(Frame(Kind.DATA, 5, bytes(65536)))
    with pytest.raises(ProtocolError, match="without credit"):
        side.take(Frame(Kind.DATA, 5, b"x"))
    side.close()
    os.close(pipe[0])


def test_channels_are_so_many_at_most() -> None:
    link, side = one_side()
    for number in range(16, 16 + 2 * MOST, 2):
        side.take(Frame(Kind.OPEN, number, b"a"))
    assert len(side) == MOST
    before = link._kept.end
    side.take(Frame(Kind.OPEN, 16 + 2 * MOST, b"a"))
    assert (len(side), link._kept.end - before) == (MOST, 9), "a RESET"
    one, other = socket.socketpair()
    side.open(b"b", one.detach())
    assert other.recv(1) == b"", "closed"
    other.close()
    side.close()


def test_words_about_a_channel_that_is_over_are_passed_over() -> None:
    _, side = one_side()
    for kind, payload in ((Kind.DATA, b"x"), (Kind.EOF, b""), (Kind.CREDIT, count(5, 4)), (Kind.RESET, b"")):
        assert side.take(Frame(kind, 40, payload))
    assert not side.take(Frame(Kind.EXIT, 0, b"0"))


@pytest.mark.parametrize("name", [b"", b"../x", b"a/b", b".hidden", b"\xff", b"a\0b", b"x" * 101])
@pytest.mark.parametrize("kind", [Kind.LISTEN, Kind.UNLISTEN, Kind.OPEN])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, kind: Kind, name: bytes) -> None:
    link, side = one_side()
    folder = mirror.Mirror(link, side, str(tmp_path))
    opens: Callable[[], object] = partial(folder.open, 16, name)
    say = opens if kind is Kind.OPEN else partial(folder.take, Frame(kind, 0, name))
    with pytest.raises(ProtocolError, match="is not a valid socket name"):
        say()
    folder.close()


def test_mirrors_are_so_many_at_most_and_go_with_the_session(tmp_path: Path) -> None:
    link, side = one_side()
    folder = mirror.Mirror(link, side, str(tmp_path))
    for number in range(mirror.MOST_MIRRORS + 5):
        folder.take(Frame(Kind.LISTEN, 0, f"s{number}".encode()))
    assert len(list(tmp_path.iterdir())) == mirror.MOST_MIRRORS
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_what_belongs_to_others_too_is_left_as_it_is_and_never_blocks() -> None:
    link = Link(SESSION)
    pipe = os.pipe()
    fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 8192)
    shared = Channel(link, 5, None, pipe[1], shared=True)
    assert os.get_blocking(pipe[1])
    shared.take(bytes(20_000))
    for _ in range(2):
        assert shared.write()
    assert len(os.read(pipe[0], 65536)) == 8192, "the rest waits"
    shared.close()
    os.close(pipe[0])


def test_much_that_comes_in_single_bytes_takes_little_more_than_it_is() -> None:
    link = Link(SESSION)
    pipe = os.pipe()
    channel = Channel(link, 5, None, pipe[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = os.urandom(WINDOW // 4)
    for number in range(len(data)):
        channel.take(data[number : number + 1])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000, "KiB"
    came = b""
    while channel.wants_write:
        channel.write()
        came += os.read(pipe[0], 1 << 20)
    assert came == data
    channel.close()
    os.close(pipe[0])


def test_what_a_program_said_before_it_closed_its_socket_is_read_though_it_did_not_listen() -> None:
    link, side = one_side()
    here, program = socket.socketpair()
    fd = here.detach()
    channel = side.add(40, fd, fd)
    side.take(Frame(Kind.DATA, 40, b"never read"))
    program.sendall(b"last words")
    program.close()
    side.serve({fd: select.POLLIN | select.POLLOUT | select.POLLHUP})
    side.serve({fd: select.POLLIN | select.POLLHUP})
    side.serve({fd: select.POLLIN | select.POLLHUP})
    assert FrameReader().read(bytes(link._kept._kept)) == [
        (Kind.DATA, 40, b"last words"),
        (Kind.EOF, 40, b""),
    ]
    assert (channel.is_over, len(side)) == (True, 0)


def test_the_channels_numbers_of_the_program_are_fixed() -> None:
    assert (STDIN, STDOUT, channels.STDERR) == (1, 2, 3)
