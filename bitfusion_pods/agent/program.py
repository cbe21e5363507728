"""The program in the pod: started in a group of its own, signalled, reaped with everybody else's orphans."""

from __future__ import annotations

import fcntl
import os
import signal
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_memory.limits import hook_variables
from bitfusion_client.pod.oom_kills import OomKills
from bitfusion_pods import environment, pythons
from bitfusion_pods.agent import gpus
from bitfusion_pods.agent.terminal import open_terminal
from bitfusion_pods.spawn import Failed, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_pods.spawn import Spawn, Terminal

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell has them
PIPE = 1 << 18
"""Bytes in a pipe: fewer turns for each megabyte."""
_DEFAULT = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
"""Signals that the program has as every program: this process handles or ignores some."""

SHARED = (
    "the folder {} already exists: it is on a volume that the notebook and the GPU pod share, "
    "where sockets do not work"
)
NOT_SHARED = (
    "set XDG_RUNTIME_DIR to a folder of the container's own, such as /tmp or /dev/shm, before Jupyter starts."
)
ANOTHER_PYTHON = (
    "the GPU pod's image {} has Python {}, the notebook's has {}, "
    "and packages of one do not work with the other"
)
SAME_PYTHON = (
    "choose a notebook image of that version; or ask your administrator for a GPU image with Python {} "
    "(`images` in the settings for GPU pods, the annotation bitfusion.io/gpu-image)."
)


class CannotStart(Exception):
    """`failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.why)
        self.failed = failed


class Program:
    """One that runs.

    Attributes:
        pipes: By 0, 1 and 2 where to write its stdin, and to read its stdout and stderr; what it does not
            have, or has of its terminal, is not there.
        terminal: Where to read and write its terminal; None where it has none.
        known: What its client is told of it.
    """

    def __init__(
        self, pid: int, pipes: dict[int, int], terminal: int | None, known: Started | None = None
    ) -> None:
        self.pid = pid
        self.pipes = pipes
        self.terminal = terminal
        self.known = known or Started()
        self.status: int | None = None
        """Its exit code or negative signal, once it has ended."""
        self.ended_at = 0.0
        self._oom_kills = OomKills(pid)

    @classmethod
    def start(
        cls, asked: Spawn, pod: Mapping[str, str], on_folder: Callable[[], object] = lambda: None
    ) -> Program:
        """Start it, after its private folder has been made and `on_folder` called. Raises CannotStart."""
        given = environment.of_program(asked.environment, pod)
        given |= gpus.name_devices(given, pod)
        given |= hook_variables(given)
        _check_pythons(asked, given)
        try:
            if asked.folder:
                _make_folder(asked.folder, asked.files or {})
                on_folder()
            _enter(asked.cwd, given)
            os.environ["PATH"] = given.get("PATH", os.defpath)  # where posix_spawnp looks
        except (OSError, ValueError) as error:
            of = getattr(error, "filename", None)
            why = f"{of}: {getattr(error, 'strerror', error)}" if of else str(error)
            raise CannotStart(Failed(why, NOT_EXECUTABLE)) from None
        ends = _Ends(asked)
        try:
            pid = os.posix_spawnp(
                asked.argv[0],
                asked.argv,
                given,
                file_actions=ends.actions,
                setsigdef=_DEFAULT,
                setsigmask=[],
                # the leader of a session gets the terminal that it opens first
                **({"setpgroup": 0} if ends.terminal is None else {"setsid": True}),
            )
        except (OSError, ValueError) as error:
            ends.close()
            missing = isinstance(error, FileNotFoundError)
            why = "executable file not found in $PATH" if missing else getattr(error, "strerror", str(error))
            raise CannotStart(Failed(str(why), NOT_FOUND if missing else NOT_EXECUTABLE)) from None
        finally:
            ends.close_inner()
        has_driver = gpus.has_driver(given)
        only = gpus.for_cpus_only(asked.argv, given) if has_driver else ()
        return cls(pid, ends.outer, ends.terminal, Started(ends.terminal is not None, has_driver, only))

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    @property
    def memory_ran_out(self) -> bool:
        """Whether Linux has killed a process of this pod for want of memory; False where nobody tells."""
        return self._oom_kills.happened() is True

    def signal(self, number: int) -> None:
        """Send it to the program's process group."""
        if self.runs:  # not reaped: the number is nobody else's
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, OSError):
                pass

    def note_end(self, status: int) -> None:
        """It was reaped, with this status of `os.waitpid`."""
        self.status = os.waitstatus_to_exitcode(status)
        self.ended_at = time.monotonic()


class _Ends:
    """The descriptors of a program that is to be started: its own, and the other ends.

    Attributes:
        actions: Of posix_spawn.
        outer: As `Program.pipes` has them.
        terminal: Likewise.
    """

    def __init__(self, asked: Spawn) -> None:
        self.actions: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]] = []
        self.outer: dict[int, int] = {}
        self.terminal: int | None = None
        self._inner: list[int] = []
        of_terminal = self._open_terminal(asked.terminal) if asked.terminal else ()
        for number in range(3):
            if number in of_terminal:
                continue
            if number in asked.closed:
                self.actions.append((os.POSIX_SPAWN_CLOSE, number))
            else:
                self._open_pipe(number)

    def _open_pipe(self, number: int) -> None:
        read_end, write_end = os.pipe()
        try:
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE)
        except OSError:
            pass  # this user has as many as may be: it is as large as others
        inner, self.outer[number] = (read_end, write_end) if number == 0 else (write_end, read_end)
        self._inner.append(inner)
        self.actions.append((os.POSIX_SPAWN_DUP2, inner, number))

    def _open_terminal(self, asked: Terminal) -> tuple[int, ...]:
        """The numbers that it has; none where this pod has no terminal to give: then they are pipes."""
        try:
            self.terminal, programs = open_terminal(asked)
        except OSError:
            return ()
        self._inner.append(programs)  # open until the program has it, or it would be over
        self.actions.append((os.POSIX_SPAWN_OPEN, 0, os.ttyname(programs), os.O_RDWR, 0))
        numbers = (0, 1, 2) if asked.has_stderr else (0, 1)
        self.actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in numbers[1:]]
        return numbers

    def close_inner(self) -> None:
        for fd in self._inner:
            os.close(fd)

    def close(self) -> None:
        for fd in (*self.outer.values(), *([] if self.terminal is None else [self.terminal])):
            os.close(fd)


def reap(program: Program | None) -> None:
    """Reap all children that have ended: process 1 inherits everybody's."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if program is not None and pid == program.pid:
            program.note_end(status)


def _check_pythons(asked: Spawn, given: Mapping[str, str]) -> None:
    there = pythons.versions(asked.argv, given)
    for word, version in (asked.pythons or {}).items():
        if there.get(word, version) != version:
            why = ANOTHER_PYTHON.format(word, there[word], version)
            raise CannotStart(Failed(why, NOT_EXECUTABLE, SAME_PYTHON.format(version)))


def _make_folder(folder: str, files: Mapping[str, str]) -> None:
    try:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:  # this container is new: it was made beside the notebook
        raise CannotStart(Failed(SHARED.format(folder), NOT_EXECUTABLE, NOT_SHARED)) from None
    for name, text in files.items():
        if os.path.basename(name) != name:
            raise OSError(1, "a file outside of the private folder", name)
        fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)


def _enter(cwd: str, given: Mapping[str, str]) -> None:
    """The folder of the command, or else the home folder: a notebook's volume may not be mounted here."""
    for folder in (cwd, given.get("HOME", ""), "/"):
        try:
            os.chdir(folder)
        except (OSError, ValueError):
            continue
        return
