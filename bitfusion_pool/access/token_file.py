"""The file of a pool's tokens, `tokens.json` in the service's folder: mode 0600, hashes only.

The admin's command changes it, under a lock; the service looks whether it has changed at each question, so
that a token that is revoked is refused at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.access.tokens import Tokens, WrongTokens, parse_tokens
from bitfusion_pool.own_files import open_own, write_own

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS_FILE = "tokens.json"
LOCK_FILE = "tokens.lock"
_LOOK_AGAIN_S = 0.02
MAX_BYTES = 4 << 20  # the most tokens that a pool has need 1 MiB


def read_tokens(folder: str) -> Tokens:
    """The tokens of the pool whose folder this is; none if there is no file yet.

    Raises:
        PoolUnreadable: The file cannot be used. No token is good then: a limit or an end may be lost.
    """
    path = f"{folder}/{TOKENS_FILE}"
    try:
        with open(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise WrongTokens(f"it has more than {MAX_BYTES} characters")
        return parse_tokens(text)
    except FileNotFoundError:
        return Tokens()
    except (WrongTokens, UnicodeError) as error:
        why = str(error) if isinstance(error, WrongTokens) else "it is not text in UTF-8"
        raise PoolUnreadable(
            "",
            f"pool configuration {path} is damaged: {why}",
            f"put a copy back, or move it away and issue new tokens: mv {path} {path}.damaged",
        ) from None
    except OSError as error:
        raise cannot_use(path, error) from None


def change_tokens(folder: str, change: Callable[[Tokens], Tokens], wait_s: float | None = None) -> None:
    """Replace the tokens by what `change` makes of them; two commands at once wait for each other.

    What `change` raises is passed on, and nothing is written.

    Args:
        folder: The pool's.
        change: Called with the tokens as they are.
        wait_s: How long to wait for others; by default as long as it takes.

    Raises:
        BlockingIOError: Others took longer than `wait_s`.
        PoolUnreadable: The file cannot be used.
    """
    path = f"{folder}/{TOKENS_FILE}"
    try:
        lock = open_own(f"{folder}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise cannot_use(path, error) from None
    try:
        _lock(lock, wait_s)
        tokens = change(read_tokens(folder))
        try:
            write_own(path, tokens.to_text(), durable=True)
        except OSError as error:
            raise cannot_use(path, error) from None
    finally:
        os.close(lock)


def _lock(lock: int, wait_s: float | None) -> None:
    until = time.monotonic() + (wait_s or 0.0)
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX if wait_s is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOK_AGAIN_S)


class TokenFile:
    """The tokens as they are now, for a service: the file is read again whenever it has changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: tuple[int, ...] | None = None
        self._tokens = Tokens()

    def tokens(self) -> Tokens:
        """Raises PoolUnreadable while the file cannot be used."""
        try:
            found = os.lstat(f"{self._folder}/{TOKENS_FILE}")
            now: tuple[int, ...] | None = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        except OSError:
            now = None
        if now is None or now != self._seen:
            self._seen = None
            self._tokens = read_tokens(self._folder)
            self._seen = now
        return self._tokens


def cannot_use(path: str, error: OSError) -> PoolUnreadable:
    """The error for a file or folder of a service, such as its certificates', that its account cannot use."""
    return PoolUnreadable(
        "",
        f"pool configuration {path} cannot be used: {error.strerror or error}",
        "run the command as the user whose pool it is, and see that only this user may change the folder",
    )
