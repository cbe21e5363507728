"""The kernel's private folder on both sides: a unix socket that appears in one appears in the other.

Whoever connects to a mirror is connected to the socket itself, over a channel. A mirror is made when the
socket has appeared, never before: zmq tries again where nothing listens, and a listener without a kernel
behind it would swallow its greeting. When the socket is gone its mirror goes, too.

Files of the client's folder are written to the pod's, when they are new and when they are others: after a
restart the kernel has another connection file.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import struct
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_NAME
from bitfusion_pods.stream.frames import Frame, Kind, ProtocolError

if TYPE_CHECKING:
    from bitfusion_pods.stream.channels import Channels
    from bitfusion_pods.stream.link import Link

LOOK_EVERY = 1.0
"""Seconds between looks at the folder where the system tells of changes."""
LOOK_EVERY_ALONE = 0.02
"""The same where it does not."""
CONNECT_FOR = 0.1
"""Seconds for a socket that has been bound to begin to listen."""
ACCEPTED_WITHIN = 30.0
"""Seconds for a program to take connections that wait, where there are as many as it allows."""
MOST_MIRRORS = 64
LONGEST_FILE = 1 << 15
"""Bytes. What is longer stays where it is."""
_LONGEST_NAME = 100
_IN_CREATE, _IN_MOVED_TO, _IN_CLOSE_WRITE = 0x100, 0x80, 0x8
_EVENT = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name
_State = tuple[int, int, int]  # of a file: its inode, the time of its last change, its size


class Mirror:
    """One side's folder. The owner registers it with its poll, and calls `serve` after that.

    Args:
        link: Tells the peer.
        channels: Get the connections.
        folder: Exists, and is this user's alone.
        sends_files: Whether this is the side whose files go to the other.
    """

    def __init__(self, link: Link, channels: Channels, folder: str, *, sends_files: bool = False) -> None:
        self._sends_files = sends_files
        self._sent_files: dict[str, _State] = {}
        self._seen_files: dict[str, _State] = _files(folder)
        self._written = set(self._seen_files)  # files of which it is known that nobody is just writing them
        self._link = link
        self._channels = channels
        self._folder = folder
        self._told: set[str] = set()  # sockets of this side, of which the peer knows
        self._mirrors: dict[str, socket.socket] = {}
        self._opening: dict[int, tuple[str, float, bool]] = {}  # until when, and whether it is busy
        self._inotify = _watch(folder)
        self._look_at = 0.0

    @property
    def seconds_to_next_look(self) -> float:
        """When `look` has something to do, if nothing else happens."""
        if self._opening:
            return 0.05 if all(is_busy for _, _, is_busy in self._opening.values()) else 0.005
        return max(0.0, self._look_at - time.monotonic())

    def register(self, poll: select.poll) -> None:
        """What to poll for: whoever connects, and changes of the folder."""
        for listener in self._mirrors.values():
            poll.register(listener, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify, select.POLLIN)

    def serve(self, ready: dict[int, int]) -> None:
        """Accept whoever connects; look at the folder if it has changed."""
        for name, listener in list(self._mirrors.items()):
            if listener.fileno() in ready:
                self._accept(name, listener)
        if self._inotify is not None and self._inotify in ready:
            self._written |= _written(os.read(self._inotify, 65536))
            self._look_at = 0.0
        self.look()

    # -- this side's sockets -----------------------------------------------------------------------

    def look(self) -> None:
        """Tell of sockets that have appeared; connect what waits for one."""
        for number in list(self._opening):
            self._connect(number)
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + (LOOK_EVERY_ALONE if self._inotify is None else LOOK_EVERY)
        if self._sends_files:
            self._look_at_files()
        for name in sorted(sockets_in(self._folder) - self._told - self._mirrors.keys()):
            self._told.add(name)
            self._link.put(Kind.LISTEN, 0, name.encode())

    def _look_at_files(self) -> None:
        """Where nobody tells that one has been written, that is so when it is as it was at the last look."""
        seen, self._seen_files = self._seen_files, _files(self._folder)
        for name, state in sorted(self._seen_files.items()):
            is_whole = name in self._written or (self._inotify is None and seen.get(name) == state)
            if is_whole and self._sent_files.get(name) != state:
                self._send_file(name, state)
        self._written.clear()

    def _send_file(self, name: str, state: _State) -> None:
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                content = file.read(LONGEST_FILE + 1)
        except OSError:
            return
        self._sent_files[name] = state
        if len(content) <= LONGEST_FILE:
            self._link.put(Kind.FILE, 0, name.encode() + b"\0" + content)

    def open(self, number: int, name: bytes) -> None:
        """The peer has opened a channel to a socket of this name. Raises ProtocolError."""
        self._opening[number] = _checked(name), time.monotonic() + CONNECT_FOR, False
        self._connect(number)

    def _connect(self, number: int) -> None:
        name, until, is_busy = self._opening[number]
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)  # who does not accept what waits already holds up nobody else
        try:
            connection.connect(os.path.join(self._folder, name))
        except OSError as error:
            connection.close()
            if error.errno == errno.EAGAIN and not is_busy:
                self._opening[number] = name, time.monotonic() + ACCEPTED_WITHIN, True
                return
            if error.errno in (errno.ECONNREFUSED, errno.EAGAIN) and time.monotonic() < until:
                return
            del self._opening[number]
            self._channels.refuse(number)
            self._tell_gone(name)
        else:
            del self._opening[number]
            fd = connection.detach()
            self._channels.connect(number, fd)

    def _tell_gone(self, name: str) -> None:
        """Nobody shall connect to its mirror, where zmq would try again and again."""
        if name in self._told:
            self._told.discard(name)
            self._link.put(Kind.UNLISTEN, 0, name.encode())

    # -- the peer's sockets ------------------------------------------------------------------------

    def take(self, frame: Frame) -> bool:
        """Whether it was about sockets. Raises ProtocolError."""
        if frame.kind is Kind.LISTEN:
            self.listen(frame.payload)
        elif frame.kind is Kind.UNLISTEN:
            self._forget(_checked(frame.payload))
        elif frame.kind is Kind.FILE and not self._sends_files:
            name, _, content = frame.payload.partition(b"\0")
            self._write_file(_checked(name), content)
        else:
            return False
        return True

    def _write_file(self, name: str, content: bytes) -> None:
        temporary = os.path.join(self._folder, f".{name}")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
            os.rename(temporary, os.path.join(self._folder, name))
        except OSError:
            return  # the folder is gone, or full: whoever wants the file tells

    def listen(self, told: bytes) -> None:
        """The peer has a socket of this name. Raises ProtocolError."""
        name = _checked(told)
        if name in self._mirrors or len(self._mirrors) >= MOST_MIRRORS or name in self._told:
            return
        path, temporary = os.path.join(self._folder, name), os.path.join(self._folder, f".{name}")
        if os.path.lexists(path) and name not in sockets_in(self._folder):
            return  # a file of this side's; a socket that is not told of was left by a session before
        listener = socket.socket(socket.AF_UNIX)
        try:
            # it listens first and gets its name then: whoever finds the name can connect
            listener.bind(temporary)
            listener.listen(16)
            os.rename(temporary, path)
        except OSError:  # the folder is gone, or full: whoever connects is told by what is not there
            listener.close()
            return
        listener.setblocking(False)
        self._mirrors[name] = listener

    def _forget(self, name: str) -> None:
        listener = self._mirrors.pop(name, None)
        if listener is not None:
            listener.close()
            try:
                os.unlink(os.path.join(self._folder, name))
            except OSError:
                pass

    def _accept(self, name: str, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        self._channels.open(name.encode(), connection.detach())

    def close(self) -> None:
        """Remove the mirrors."""
        for name in list(self._mirrors):
            self._forget(name)
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None


def _checked(name: bytes) -> str:
    """A name in the folder itself. Raises ProtocolError."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(name) > _LONGEST_NAME or text.startswith(".") or "/" in text or "\0" in text:
        raise ProtocolError(f"{name!r} is not a valid socket name")
    return text


def sockets_in(folder: str) -> set[str]:
    """The names of those that lie there and can be told."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if _is_told(entry)}
    except OSError:
        return set()


def _written(events: bytes) -> set[str]:
    """The names of what has been written to its end, or put there whole."""
    names, at = set(), 0
    while at + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        if mask & (_IN_CLOSE_WRITE | _IN_MOVED_TO):
            names.add(os.fsdecode(events[at : at + length].rstrip(b"\0")))
        at += length
    return names


def _files(folder: str) -> dict[str, _State]:
    """Those whose names can be told, each with its state; but for what `bitfusion run` itself reads."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name != FILE_NAME and entry.is_file(follow_symlinks=False) and _has_good_name(entry):
                    stat_ = entry.stat(follow_symlinks=False)
                    found[entry.name] = stat_.st_ino, stat_.st_mtime_ns, stat_.st_size
    except OSError:
        pass
    return found


def _has_good_name(entry: os.DirEntry[str]) -> bool:
    try:
        _checked(entry.name.encode())
    except (UnicodeEncodeError, ProtocolError):
        return False
    return True


def _is_told(entry: os.DirEntry[str]) -> bool:
    try:
        return _has_good_name(entry) and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def _watch(folder: str) -> int | None:
    """An inotify descriptor that tells of new names; None where there is none."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            return None
        if libc.inotify_add_watch(fd, os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO | _IN_CLOSE_WRITE) >= 0:
            return fd
        os.close(fd)
    except (ImportError, OSError, AttributeError):
        pass
    return None
