"""The account of a container: what its kernels hold of the pod's budget, in files of one folder.

One file for each kernel that holds something or waits. It is locked (flock) by the kernel's supervisor as
long as that lives: an entry without the lock counts for nothing, whatever killed its kernel. The folder
itself is locked by whoever decides, so that two kernels that start in the same moment are told one after the
other. No pool is asked, and no client: this works with any.

The account is for order among a person's own notebooks. Whoever removes the files gets no more GPUs by it:
the limit of the namespace's token holds at the pool.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_kernel.pod.turns import Entry, entry_from_json, held

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod.facts import Pod

PREFIX = "bitfusion-pod-"
LONGEST_ENTRY = 16384  # bytes
MOST_ENTRIES = 1024
NOT_YOURS = "this is not a folder of yours"
_NAME_LENGTH = 16


class AccountUnusable(OSError):
    """There is no folder that is this user's alone. `str()` says why, for a person."""


def open_account(pod: Pod, environ: Mapping[str, str]) -> Account:
    """The account of this container, whose folder is made if need be.

    It lies in `$XDG_RUNTIME_DIR` or /tmp, whichever works, so that all kernels of one Jupyter server find the
    same.

    Raises:
        AccountUnusable: Neither does.
    """
    problems = []
    for account in _places(pod, environ):
        try:
            account.make_folder()
        except OSError as error:
            problems.append(f"{account.folder}: {error.strerror}")
        else:
            return account
    raise AccountUnusable("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pod's budget stands now. `bitfusion run` in cells is in no account: the pool limits it."""

    pod: Pod
    entries: tuple[Entry, ...]

    @property
    def holders(self) -> tuple[Entry, ...]:
        """The kernels that hold something, or have asked the pool for it."""
        return tuple(entry for entry in self.entries if entry.holds)

    @property
    def waiting(self) -> tuple[Entry, ...]:
        """The kernels that wait for others of this pod, in order."""
        return tuple(entry for entry in self.entries if not entry.holds)

    @property
    def left(self) -> GpuRequest | None:
        """What a kernel without a size would take if nobody else waited; None if nothing."""
        budget = self.pod.budget
        return budget.part(budget.total - held(budget, self.entries), budget.request)

    def describe_left(self) -> str:
        """The same as text; `nothing` where nothing is left."""
        return self.left.describe() if self.left else "nothing"


def standing(pod: Pod, environ: Mapping[str, str]) -> Standing:
    """Who holds what of this container's budget now, and who waits. Makes and changes nothing."""
    own = next((account for account in _places(pod, environ) if account.is_own), None)
    return Standing(pod, tuple(own.entries()) if own is not None else ())


def _places(pod: Pod, environ: Mapping[str, str]) -> list[Account]:
    name = f"{PREFIX}{os.geteuid()}-{_plain(pod.files.uid)}-{_plain(pod.files.container)}"
    parents = (environ.get("XDG_RUNTIME_DIR"), "/tmp")
    return [Account(os.path.join(parent, name)) for parent in parents if parent]


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text)[:64]


class Account:
    """The files. Nothing here waits."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def make_folder(self) -> None:
        """Make the folder, this user's alone. Raises OSError with a text for a person."""
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            if not self.is_own:
                raise OSError(errno.EPERM, NOT_YOURS) from None
            os.chmod(self.folder, 0o700)  # Kubernetes opens what a volume holds to the volume's group

    @property
    def is_own(self) -> bool:
        """Whether the folder is there, and no link and no other user's."""
        try:
            found = os.lstat(self.folder)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()

    def new_entry(self) -> str:
        """The path for a new entry. Whoever will hold it makes the file (`processes.held_file`)."""
        return os.path.join(self.folder, os.urandom(_NAME_LENGTH // 2).hex())

    def lock(self) -> int | None:
        """Lock the account against everybody else who decides: a descriptor to close, or None if it is taken.

        Raises:
            OSError: The folder is gone, or is another user's.
        """
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                raise OSError(errno.EPERM, NOT_YOURS, self.folder)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd

    def entries(self, *, but: str = "", remove_dead: bool = False) -> list[Entry]:
        """What living kernels say, in the order of arrival.

        Args:
            but: The path of an entry to leave out.
            remove_dead: Whether to remove the files of kernels that are gone; only under the lock.
        """
        try:
            names = sorted(os.listdir(self.folder))[:MOST_ENTRIES]
        except OSError:
            return []
        found = []
        for name in names:
            path = os.path.join(self.folder, name)
            if path == but:
                continue
            text = _living(path, remove_dead=remove_dead)
            entry = None if text is None else entry_from_json(text)
            if entry is not None:
                found.append(entry)
        return sorted(found, key=lambda entry: entry.number)


def write_entry(path: str, entry: Entry) -> None:
    """Replace the content of an entry that exists. Under the account's lock. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        text = entry.to_json().encode()
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
    finally:
        os.close(fd)


def _living(path: str, *, remove_dead: bool) -> bytes | None:
    """The content of a file that somebody holds locked; None for any other, which may be removed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(fd, LONGEST_ENTRY)
        if remove_dead:
            # Under our lock: who has just made the file locks it after us, and sees that it is gone.
            os.unlink(path)
        return None
    except OSError:
        return None
    finally:
        os.close(fd)
