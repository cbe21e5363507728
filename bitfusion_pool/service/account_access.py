"""Whether the account of the systemd unit can read the Python that the unit starts it with."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from typing import TYPE_CHECKING

from bitfusion_client.errors import ClientFailed
from bitfusion_pool.own_files import user_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_LINKS = 40
"""Of one path, as Linux has it."""
PRIVATE = ("/tmp/", "/var/tmp/")
"""Below these the unit's service sees files of its own only (PrivateTmp)."""
_ELSEWHERE = (
    "install into an environment that every account can read, made by a Python that every account can read, "
    "as docs/tutorials/workstation.md does: /usr/bin/python3 -m venv /opt/bitfusion-pool"
)


def check_account(account: str) -> None:
    """Raise if `account` could not start a service with the Python and the modules of this process.

    Called by `serve --print-unit`, when the service's modules are imported. Modes and owners decide; a file
    with an access control list counts as readable. An account that does not exist yet is taken for one in no
    group.

    Raises:
        ClientFailed: Which path it cannot read, what lies there, and what to do.
    """
    modules = [module for name, module in sys.modules.items() if name != "__main__"]
    files = [file for module in modules if isinstance(file := getattr(module, "__file__", None), str)]
    problem = first_problem(account, [sys.executable, *sorted(files)])
    if problem is None:
        return
    path, why = problem
    inside = sys.prefix != sys.base_prefix and f"{path}/".startswith(f"{sys.prefix}/")
    raise ClientFailed(
        "",
        f"the service cannot run as {account} with this Python: {why}",
        f"chmod -R a+rX {sys.prefix}" if inside else _ELSEWHERE,
    )


def first_problem(account: str, files: Iterable[str]) -> tuple[str, str] | None:
    """The first path that keeps an account from reading one of these files, and why it does; None: none."""
    uid, groups = _ids(account)
    seen: set[tuple[str, int]] = set()
    for file in files:
        for path, rights in _way(file):
            if path.startswith(PRIVATE):
                return path, f"the unit gives it a folder of its own in place of the one with {path}"
            if (path, rights) in seen:
                continue
            seen.add((path, rights))
            try:
                found = os.stat(path)
            except OSError:
                break  # a module whose file is gone, or in an archive
            if _may(found, uid, groups, rights) or _has_list(path):
                continue
            owner = user_name(found.st_uid)
            can = f"it cannot {'read' if rights & 4 else 'enter'} {path}"
            leads = f", on the way to {file}" if path != file else ""
            return path, f"{can} (mode {stat.S_IMODE(found.st_mode):04o}, owner {owner}){leads}"
    return None


def _way(file: str) -> Iterator[tuple[str, int]]:
    """What the kernel looks at on the way to a file, links included, each with the rights it takes.

    The folder that holds the file is listed by Python (5); through the others it only goes (1).
    """
    at, words, links = "/", file.split("/"), 0
    while words:
        word = words.pop(0)
        if word in ("", "."):
            continue
        yield at, 1 if any(words) else 5
        path = os.path.dirname(at) if word == ".." else os.path.join(at, word)
        if os.path.islink(path) and (links := links + 1) <= MOST_LINKS:
            target = os.readlink(path)
            at, words = "/" if target.startswith("/") else at, [*target.split("/"), *words]
        else:
            at = path
    yield at, 4


def _may(found: os.stat_result, uid: int, groups: Iterable[int], rights: int) -> bool:
    shift = 6 if found.st_uid == uid else 3 if found.st_gid in groups else 0
    return found.st_mode >> shift & rights == rights


def _has_list(path: str) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


def _ids(account: str) -> tuple[int, list[int]]:
    try:
        user = pwd.getpwnam(account)
    except KeyError:
        return -1, []
    return user.pw_uid, os.getgrouplist(account, user.pw_gid)
