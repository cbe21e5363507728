"""While a program runs, and no keeper does it: passes on what the kernel in it says that it does."""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.client.kernel_state_file import KernelStateFile
    from bitfusion_pool.client.pools.pool import Lease, Pool


class ActivityTeller:
    """Of one lease. For `run_program`, which calls `look_after` at every beat and whenever a child ends."""

    beat_s = 1.0

    def __init__(self, environ: Mapping[str, str], pool: Pool, lease: Lease) -> None:
        self._path = environ[FILE_VARIABLE]
        self._pool = pool
        self._lease = lease
        self._file: KernelStateFile | None = None

    def program_started(self, pid: int) -> None:
        """Look for the first time: nobody waits for what that imports, and its files may go meanwhile."""
        self.look_after()

    def look_after(self) -> None:
        """Look, and tell the pool what is new; what it could not be told is told at a later look."""
        if self._file is None:
            from bitfusion_pool.client.kernel_state_file import KernelStateFile

            self._file = KernelStateFile(self._path)
        activity = self._file.look(time.monotonic())
        if activity is not None and self._pool.tell(self._lease, activity):
            self._file.told(activity, time.monotonic())
