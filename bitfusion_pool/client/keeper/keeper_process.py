"""The wrapper's side of the keeper: starts it, and another where that is killed or frozen; ends it."""

from __future__ import annotations

import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import signals
from bitfusion_pool.client.keeper import wrapper_link
from bitfusion_pool.client.keeper.keeper import Kept, LeaseKeeper
from bitfusion_pool.client.keeper.reach import Reach
from bitfusion_pool.ledger.liveness import clock

if TYPE_CHECKING:
    import signal as _signal
    import socket as _socket

    from bitfusion_pool.client.connections.network_connection import NetworkConnection
    from bitfusion_pool.client.keeper.life_pipe import LifePipe
else:
    import _signal
    import _socket

_FROZEN = 3  # beats that a keeper that lives never leaves out, times as many
_LEAST_FROZEN_S = 2.0  # a machine that is busy, however short the beats
_END_S = 1.0  # besides the time for an answer: to be told that the lease is released
_PAUSE_S = 0.2  # between two keepers, if one cannot live


class KeeperProcess:
    """A lease's keeper, whichever process it is now; `reach` is what is known of the service."""

    def __init__(self, kept: Kept, life: LifePipe, reach: Reach) -> None:
        self._kept = kept
        self._life = life
        self._reach = reach
        self._pid = 0
        self._link: _socket.socket | None = None
        self._last_beat = 0.0
        self._started = 0.0
        self._program = 0
        self._told_to_end = False
        self._has_pidfd = False
        self.beat_s = kept.heartbeat_s / wrapper_link.BEATS
        self.lost = ""
        """Why the program was ended before its time; empty while all is well."""

    def start(self, connection: NetworkConnection | None) -> None:
        """Fork one that takes the connection over; this process must not use it any more."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:  # tried again at the next beat
            ours.close()
            theirs.close()
            self._started = time.monotonic()
            return
        if not pid:
            self._become_keeper(connection, theirs)
        theirs.close()
        if self._link is not None:
            self._link.close()
        self._pid, self._link = pid, ours
        self._started = self._last_beat = time.monotonic()
        if self._program:
            self._pass_program()

    def program_started(self, pid: int) -> None:
        """The child whose end is the keeper's task, if it comes to that. It must not have been waited for."""
        self._program = pid
        self._pass_program()

    def look_after(self) -> None:
        """Hear it; start another if it has died or stands still. Called at every beat and SIGCHLD."""
        self._hear()
        now = time.monotonic()
        if self._pid and now > self._last_beat + max(_LEAST_FROZEN_S, _FROZEN * self.beat_s):
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
            self._pid = 0
        elif self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._hear()
            self._pid = 0
        if not self._pid and not self.lost and now >= self._started + _PAUSE_S:
            self._reach.hung_up()  # the system did so for the process that has ended
            self.start(None)
        self._end_in_time()

    def end(self) -> str:
        """Have the lease released, after the program's end and with this process's end of the pipe closed.

        Returns:
            DONE; USED while another process has the pipe; or why it is not known, in words.
        """
        if not self._pid:
            self.start(None)
        try:
            if self._link is not None:
                self._link.send(wrapper_link.END)
        except OSError:
            pass  # its end is heard
        until = time.monotonic() + self._kept.service.timeout_s + _END_S
        while self._link is not None and (left := until - time.monotonic()) > 0:
            word, _, text = self._receive(left).partition(b" ")
            if word == wrapper_link.DONE:
                os.waitpid(self._pid, 0)
                return wrapper_link.DONE.decode()
            if word == wrapper_link.USED:
                return wrapper_link.USED.decode()
            if word == wrapper_link.AWAY:
                return text.decode(errors="replace")
            if word == wrapper_link.LOST:
                self.lost = self.lost or text.decode(errors="replace")
            elif not word:
                break
        return "no answer of the process that keeps it"

    # --- inside ----------------------------------------------------------------------------------------

    def _become_keeper(self, connection: NetworkConnection | None, link: _socket.socket) -> None:
        """In the child: a process of its own in every respect. Never returns."""
        status = 1
        try:
            for number in signals.HANDLED:
                _signal.signal(number, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            os.setsid()
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1):
                os.dup2(null, fd)
            wanted = {0, 1, 2, link.fileno(), self._life.writing_end}
            if connection is not None:
                wanted.add(connection.fileno())
            _close_all_but(wanted)
            LeaseKeeper(self._kept, self._reach, connection, self._life.writing_end, link).run()
            status = 0
        except BaseException as error:
            if os.environ.get("BITFUSION_POOL_DEBUG"):
                import traceback

                traceback.print_exception(error)
        finally:
            os._exit(status)

    def _pass_program(self) -> None:
        if self._link is None:
            return
        try:
            pidfd = os.pidfd_open(self._program)
        except (OSError, AttributeError):  # before Linux 5.3
            return
        self._has_pidfd = True
        try:
            self._link.sendmsg(
                [wrapper_link.PROGRAM],
                [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pidfd.to_bytes(4, "little"))],
            )
        except OSError:
            pass  # it has died, and another is started
        finally:
            os.close(pidfd)

    def _hear(self) -> None:
        while self._link is not None and (message := self._receive(0)):
            word, _, text = message.partition(b" ")
            if word == wrapper_link.BEAT:
                self._last_beat = time.monotonic()
                proven, closed = text.split()
                reach = self._reach
                self._reach = Reach(reach.closed_s, reach.silent_s, float(proven), closed == b"1")
            elif word == wrapper_link.LOST:
                self.lost = self.lost or text.decode(errors="replace")

    def _receive(self, seconds: float) -> bytes:
        """The next message; empty at the end, or if none comes in time."""
        from select import POLLIN, poll

        assert self._link is not None
        watched = poll()
        watched.register(self._link.fileno(), POLLIN)
        if not watched.poll(seconds * 1000):
            return b""
        try:
            return self._link.recv(wrapper_link.LONGEST)
        except OSError:
            return b""

    def _end_in_time(self) -> None:
        """What the keeper does, where none can be started, or where the system has no pidfds."""
        if not self._program or (self._pid and (self._has_pidfd or not self.lost)):
            return
        now = clock()
        if now >= self._reach.killed_at:
            os.kill(self._program, 9)  # not waited for yet, so the pid is still our child's
        elif (now >= self._reach.ends_at or self.lost) and not self._told_to_end:
            self._told_to_end = True
            os.kill(self._program, 15)
        else:
            return
        if not self.lost:
            from bitfusion_client.command.client_output import format_pool_lost

            self.lost = format_pool_lost(self._kept.service.place, round(now - self._reach.proven))


def _close_all_but(wanted: set[int]) -> None:
    """A keeper that outlives its wrapper must hold nothing of anybody's."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        names = [str(fd) for fd in range(os.sysconf("SC_OPEN_MAX"))]
    for fd in set(map(int, names)) - wanted:
        try:
            os.close(fd)
        except OSError:
            pass  # the listing's own
