"""Write transactions of the ledger, and what must wait for their commit: wake-ups, deleting lock files."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.files.lease_lock import remove_lock_file
from bitfusion_pool.ledger.files.wake_up import remove_pipe, wake
from bitfusion_pool.ledger.storage.sqlite import sqlite3

if TYPE_CHECKING:
    from types import TracebackType


class Transaction:
    """A write transaction.

    After its commit the lock files of the entries in `removed` are deleted and those in `to_wake` are woken.
    A refusal (BitfusionError) is an answer and commits, so that what was cleaned up before stays cleaned up.
    Any other exception rolls back.
    """

    __slots__ = ("_db", "_folder", "removed", "to_wake")

    def __init__(self, db: sqlite3.Connection, folder: str) -> None:
        self._db = db
        self._folder = folder
        self.to_wake: list[str] = []
        self.removed: list[str] = []

    def __enter__(self) -> Transaction:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, BitfusionError):
            self._roll_back()
            return
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        # not before the commit: an entry that stayed without its file could never be found dead
        for entry_id in self.removed:
            remove_lock_file(self._folder, entry_id)
            wake(self._folder, entry_id)  # who still waits for it hears that it is gone
            remove_pipe(self._folder, entry_id)
        for entry_id in self.to_wake:
            wake(self._folder, entry_id)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class TranslatedErrors:
    """Turns errors of SQLite and of the operating system into PoolUnreadable."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, (sqlite3.Error, OSError)):
            from bitfusion_pool.ledger.files.complaints import unreadable

            raise unreadable(self._folder, error) from error
