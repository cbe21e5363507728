"""The lock of the service that owns a pool's folder: one at most has it, and others see whether one does."""

from __future__ import annotations

import fcntl
import os

from bitfusion_pool.own_files import open_own

_NAME = "service.lock"


def take_service_lock(folder: str) -> int:
    """Lock the folder for a service, as long as the descriptor that this returns is open.

    Raises:
        BlockingIOError: A service has locked it.
        OSError: The lock's file cannot be used.
    """
    fd = open_own(f"{folder}/{_NAME}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_served(folder: str) -> bool:
    """Whether a service runs with the pool in this folder. Raises OSError."""
    try:
        fd = open_own(f"{folder}/{_NAME}", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
