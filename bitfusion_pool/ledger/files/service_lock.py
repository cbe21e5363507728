"""The lock of the service that owns a pool's folder: one at most has it, and others see whether one does."""

from __future__ import annotations

import fcntl
import os

from bitfusion_pool.ledger.files.lease_lock import open_locked

_NAME = "service.lock"


def take_service_lock(folder: str) -> int:
    """Lock the folder for a service, as long as the descriptor that this returns is open.

    Raises:
        BlockingIOError: A service has locked it.
        OSError: The lock's file cannot be used.
    """
    return open_locked(f"{folder}/{_NAME}", os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_served(folder: str) -> bool:
    """Whether a service runs with the pool in this folder. Raises OSError."""
    try:
        os.close(open_locked(f"{folder}/{_NAME}", os.O_RDONLY, fcntl.LOCK_SH | fcntl.LOCK_NB))
    except (FileNotFoundError, BlockingIOError) as error:
        return isinstance(error, BlockingIOError)
    return False
