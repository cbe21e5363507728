"""Opening files so that no other user of the machine can lead us elsewhere or keep us waiting.

A path is used only if this user and root alone decide where it leads: the owner of every folder and symbolic
link on the way is one of them, and nobody else may rename anything there. A file is used only if it is a
regular one, of this user, under one name.
"""

from __future__ import annotations

import os
import stat

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = 0
_OVERFLOW = 65534  # how files appear whose owner has no number in our user namespace
_MOST_LINKS = 40


class NotOurs(OSError):
    """Somebody else has a say in the file or folder `path`; `strerror` names it and says why."""

    def __init__(self, path: str, why: str) -> None:
        from errno import EPERM  # only when something is wrong

        super().__init__(EPERM, f"{path} {why}")
        self.path = path


def trusted_path(path: str, below: str = "") -> str:
    """Where an absolute path leads, without symbolic links; its end need not exist.

    Args:
        path: The path.
        below: A folder on the way that was checked otherwise, such as by `check_mount`: what leads to it is
            not looked at.

    Raises:
        NotOurs: Another user could let it lead elsewhere.
        OSError: It cannot be looked at, or a part is no folder.
    """
    left = path.removeprefix(below).split("/")[::-1]
    at = below
    links = 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = at.rpartition("/")[0]
            continue
        here = f"{at}/{name}"
        try:
            found = os.lstat(here)
        except FileNotFoundError:
            # whatever is made from here on is made in a folder that has been looked at
            return os.path.normpath("/".join([here, *left[::-1]]))
        if found.st_uid not in (_ROOT, os.geteuid()) and not _is_unmapped(found.st_uid):
            raise NotOurs(here, f"belongs to {user_name(found.st_uid)}")
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                from errno import ELOOP

                raise OSError(ELOOP, os.strerror(ELOOP), path)
            target = os.readlink(here)
            if target.startswith("/"):
                at = ""
            left += target.split("/")[::-1]
            continue
        if stat.S_ISDIR(found.st_mode) and _others_may_rename(found) and not _is_read_only(here):
            raise NotOurs(here, f"can be changed by others (mode {stat.S_IMODE(found.st_mode):04o})")
        at = here
    return at or "/"


def check_mount(path: str) -> None:
    """Check that `path` is a folder of root's with a read-only mount of its own, as kubelet mounts a Secret.

    Whoever owns the folders that lead to it cannot replace it: only root mounts and unmounts.

    Raises:
        NotOurs: It is something else.
        OSError: It cannot be looked at.
    """
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotOurs(path, f"is {_kind(found.st_mode)}, not a folder")
    if found.st_uid != _ROOT and not _is_unmapped(found.st_uid):
        raise NotOurs(path, f"belongs to {user_name(found.st_uid)}")
    if found.st_dev == os.lstat(os.path.dirname(path)).st_dev or not _is_read_only(path):
        raise NotOurs(path, "is not a read-only mount")


def open_own(path: str, flags: int) -> int:
    """Open a file of this user, never through a link, never waiting. The caller closes the descriptor.

    Raises:
        NotOurs: It is something else than a regular file, or another user's, or has further names.
        OSError: It cannot be opened.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        from errno import EISDIR, ELOOP, ENXIO

        if error.errno in (ELOOP, EISDIR, ENXIO):
            raise NotOurs(path, f"is {_kind(os.lstat(path).st_mode)}, not a file of yours") from None
        raise
    try:
        check_own(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_own(path: str, found: os.stat_result, links: int = 1) -> None:
    """Raise NotOurs unless `found`, of `path`, is a regular file of this user with at most `links` names."""
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(path, f"is {_kind(found.st_mode)}, not a file of yours")
    if found.st_uid != os.geteuid():
        raise NotOurs(path, f"belongs to {user_name(found.st_uid)}")
    if found.st_nlink > links:
        raise NotOurs(path, "has further names (hard links)")


def write_own(path: str, text: str, durable: bool = False) -> None:
    """Replace the file as a whole, mode 0600; whatever stood in its place is not followed.

    Args:
        path: The file; its folder must be there.
        text: What is in it from now on.
        durable: Whether it must still be so after a power cut.

    Raises:
        OSError: It cannot be written.
    """
    draft = f"{path}.{os.urandom(8).hex()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(fd)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    if durable:
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_text(path: str, most_bytes: int) -> str:
    """What is in a regular file of anybody, without waiting for a writer.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger than `most_bytes`.
        UnicodeError: It is no text.
    """
    from errno import EFBIG, EINVAL

    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, encoding="utf-8") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(EINVAL, f"it is {_kind(found.st_mode)}", path)
        text = file.read(most_bytes + 1)
        if len(text) > most_bytes:
            raise OSError(EFBIG, f"it has more than {most_bytes} characters", path)
        return text


def home_folder(environ: Mapping[str, str]) -> str:
    """HOME, unless it is another user's (`sudo` may keep it): then that of the user database."""
    home = environ.get("HOME", "")
    try:
        if home.startswith("/"):
            return trusted_path(home)
    except OSError:
        pass
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return home or "/"


def user_name(uid: int) -> str:
    """The name of a user for people."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _others_may_rename(found: os.stat_result) -> bool:
    mode = found.st_mode
    if mode & stat.S_ISVTX:
        return False  # only what belongs to oneself, and we look at the owner of what comes next
    if mode & stat.S_IWOTH:
        return True
    if not mode & stat.S_IWGRP:
        return False
    # homes in containers are writable for the user's own group; who shares it could rename all the user has
    if os.geteuid() == _ROOT:
        return found.st_gid != _ROOT
    return found.st_gid != os.getegid() and found.st_gid not in os.getgroups()


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)  # Kubernetes mounts ConfigMaps so, with mode 0777


def _is_unmapped(uid: int) -> bool:
    if uid != _OVERFLOW:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
