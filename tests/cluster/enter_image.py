"""Runs in new namespaces, as root: puts an image's layers on top of each other and becomes a process in them.

`unshare --mount … python -I -S enter_image.py SPEC` is what `image_files` starts; SPEC is JSON, see `Spec`
there. Standard library only. Nothing that is mounted here is seen outside, and it is gone with the process.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # linux/sockios.h, linux/if.h
_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
# Plain layers: neither redirected folders nor files without content, which no tar could hold.
_OVERLAY = "redirect_dir=off,index=off,metacopy=off,xino=off"


def main() -> None:
    """Enter the image and do what the spec says."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    os.umask(0o022)
    if spec["own_network"]:
        _loopback_up()
    root = _mount_layers(spec)
    _mount_machine(root, spec)
    if spec["read_only"]:
        _mount("-o", "remount,ro", root)
    os.chroot(root)
    os.chdir("/")
    _become(spec)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _mount_layers(spec: dict[str, Any]) -> str:
    root: str = spec["root"]
    lower = ":".join(reversed(spec["layers"]))
    options = f"lowerdir={lower},{_OVERLAY}"
    if spec["upper"]:
        options += f",upperdir={spec['upper']},workdir={spec['work']}"
    _mount("-t", "overlay", "overlay", "-o", options, root)
    return root


def _mount_machine(root: str, spec: dict[str, Any]) -> None:
    """What a container finds without its image: /proc, /dev, and what is bound for this run."""
    if os.path.isdir(f"{root}/proc"):
        _mount("-t", "proc", "proc", f"{root}/proc")
    if os.path.isdir(f"{root}/dev"):
        _mount("-t", "tmpfs", "-o", "mode=755,size=64m", "dev", f"{root}/dev")
        for name in _DEVICES:
            os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY))
            _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
        for name, target in _LINKS.items():
            os.symlink(target, f"{root}/dev/{name}")
        os.mkdir(f"{root}/dev/pts")
        _mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", f"{root}/dev/pts")
        os.symlink("pts/ptmx", f"{root}/dev/ptmx")
        os.mkdir(f"{root}/dev/shm")
        os.chmod(f"{root}/dev/shm", 0o1777)
    for source, place in spec["binds"]:
        target = root + place
        if place.startswith("/dev/"):  # of ours, not of the image
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        if os.path.lexists(target):
            _mount("--bind", source, target)
        else:
            raise SystemExit(f"the image has no {place} to mount something at")
    for place in spec["tmpfs"]:
        _mount("-t", "tmpfs", "-o", "mode=1777,size=512m", "tmpfs", root + place)


def _loopback_up() -> None:
    with socket.socket() as plug:
        fcntl.ioctl(plug, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _become(spec: dict[str, Any]) -> None:
    user, group, home = _identity(spec["user"])
    environment = {"HOME": home, **spec["env"]}
    os.makedirs(spec["cwd"] or "/", exist_ok=True)  # as a runtime does for a WORKDIR that no RUN has needed
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    if spec["no_new_privileges"]:
        _no_new_privileges()
    os.chdir(spec["cwd"] or "/")
    argv = spec["argv"]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise SystemExit(f"{argv[0]}: {error.strerror}") from None


def _identity(user: str) -> tuple[int, int, str]:
    """User, group and home folder as a container's runtime finds them in the image."""
    name, _, group = (user or "0").partition(":")
    for line in _lines("/etc/passwd"):
        fields = line.split(":")
        if len(fields) > 5 and name in (fields[0], fields[2]):
            return int(fields[2]), _group(group) if group else int(fields[3]), fields[5]
    if not name.isdigit():
        raise SystemExit(f"the image knows no user {name}")
    return int(name), _group(group) if group else 0, "/"


def _group(name: str) -> int:
    for line in _lines("/etc/group"):
        fields = line.split(":")
        if len(fields) > 2 and name in (fields[0], fields[2]):
            return int(fields[2])
    if not name.isdigit():
        raise SystemExit(f"the image knows no group {name}")
    return int(name)


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []


def _no_new_privileges() -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise SystemExit("no_new_privs cannot be set")


if __name__ == "__main__":
    main()
