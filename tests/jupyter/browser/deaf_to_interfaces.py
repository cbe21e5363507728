"""Runs a program to which Linux does not tell that the machine's network interfaces change.

When an interface comes or goes, as those of other tests' nodes do, Chromium ends all requests that wait for
a connection with ERR_NETWORK_CHANGED: JupyterLab then lacks a style sheet or a list. It hears that from a
netlink socket, and does without where it can make none. Use::

    python deaf_to_interfaces.py chromium --headless ...
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

_CALL_SOCKET = {"x86_64": 41, "aarch64": 198}
"""The number of socket(2)."""

_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38  # linux/prctl.h, linux/seccomp.h
_LOAD, _SKIP_UNLESS, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
_CALL, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def refuse_netlink() -> None:
    """From here on, this process and its children can make no netlink socket."""
    steps = [
        (_LOAD, 0, 0, _CALL),
        (_SKIP_UNLESS, 0, 3, _CALL_SOCKET[platform.machine()]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_SKIP_UNLESS, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))  # struct sock_fprog
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, program, 0, 0)):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    if platform.machine() in _CALL_SOCKET:
        refuse_netlink()
    os.execvp(sys.argv[1], sys.argv[1:])
