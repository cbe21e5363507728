"""Write transactions of the ledger, and what must happen only after they are safe on disk."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.lease_lock import remove_lock
from bitfusion_pool.ledger.pool_folder import unreadable
from bitfusion_pool.ledger.sqlite import sqlite3
from bitfusion_pool.ledger.wake_up import ring

if TYPE_CHECKING:
    from types import TracebackType


class Change:
    """A write transaction. After it the entries in `wake` are woken, lock files of those in `forget` go.

    A refusal (BitfusionError) is an answer: what was tidied up on the way to it is kept. Anything else that
    ends the block undoes it.
    """

    __slots__ = ("_db", "_folder", "forget", "wake")

    def __init__(self, db: sqlite3.Connection, folder: str) -> None:
        self._db = db
        self._folder = folder
        self.wake: list[str] = []
        self.forget: list[str] = []

    def __enter__(self) -> Change:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, BitfusionError):
            self._undo()
            return
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._undo()
            raise
        # not earlier: an entry that stayed, without its file, could never be found dead
        for entry_id in self.forget:
            remove_lock(self._folder, entry_id)
        for entry_id in self.wake:
            ring(self._folder, entry_id)

    def _undo(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


class Telling:
    """Turns whatever the disk or SQLite say into PoolUnreadable."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, (sqlite3.Error, OSError)):
            raise unreadable(self._folder, error) from error
