"""The user's own pool: every command looks at the user's ledger itself, there is no service."""

from __future__ import annotations

import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_pool.client.allocation_file import Allocation
from bitfusion_pool.client.pools.pool import Lease, server_of
from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.files.pool_folder import DATABASE
from bitfusion_pool.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Holder
    from bitfusion_pool.ledger.queue.queue_position import QueuePosition
    from bitfusion_pool.ledger.snapshot import Snapshot


_LONGEST_ID = 32
_PATIENCE_S = 0.05  # with others who have the ledger locked, where something else is to be done


class OwnPool:
    """See `pool.Pool`. The environment names the folder.

    Raises:
        PoolUnreadable: The pool's files cannot be used.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._open: Ledger | None = Ledger(environ)
        self._folder = self._open.folder
        self.emulation = self._open.emulation

    @property
    def servers(self) -> Sequence[Server]:
        """As configured, in this order."""
        return self._ledger().servers

    def client_id(self) -> str:
        """Made once, then kept in the ledger."""
        return self._ledger().client_id(os.getuid())

    def take(
        self,
        request: GpuRequest,
        holder: Holder,
        kind: str,
        inside: str,
        on_position: Callable[[str, str], None],
    ) -> Lease:
        """Submit the request, and wait by looking at the ledger and being woken."""
        ledger = self._ledger()
        if ledger.has_real_devices:
            from bitfusion_pool.ledger.device_watch import read_devices

            read_devices(ledger, self._environ)
            on_position = self._reading_devices(on_position)
        entry, lock = ledger.submit(request, holder, self.emulation.when_full == "wait", kind)
        try:
            if entry.state == WAITING:
                from bitfusion_pool.ledger.waiting import wait_for_turn

                tell, note = on_position, self._noting_activity(entry.entry_id)

                def on_place(place: QueuePosition) -> None:
                    tell(place.text(), place.blocked)
                    note()

                entry = wait_for_turn(ledger, entry, request.timeout, on_place, inside)
            return Lease(entry, server_of(ledger.servers, entry), lock)
        except BaseException:
            lock.close()
            ledger.release(entry.entry_id)
            raise

    def set_aside(self) -> None:
        """Close the ledger, which an administrator may replace meanwhile."""
        self.close()

    def tell(self, lease: Lease, activity: KernelActivity) -> bool:
        """Note it in the ledger, if there is still one that nobody keeps locked."""
        from bitfusion_client.errors import BitfusionError

        if not os.path.exists(f"{self._folder}/{DATABASE}"):
            return False
        try:
            self._ledger().note_activity(lease.entry.entry_id, activity, _PATIENCE_S)
            return True
        except BitfusionError:
            return False
        finally:
            self.close()

    def release(self, lease: Lease) -> bool:
        """Drop the lock, then end the lease unless another process has the lock, too."""
        lease.lock.close()
        ledger = self._ledger()
        if ledger.is_in_use(lease.entry.entry_id):
            return False
        ledger.release(lease.entry.entry_id)
        return True

    def allocation(self, lease: Lease) -> Allocation:
        """Name the folder."""
        return Allocation(lease.entry.entry_id, self._ledger().folder, lease.server.key)

    def keep(self, lease: Lease) -> None:
        """Begin its time to live, then drop the lock."""
        self._ledger().renew(lease.entry.entry_id, self.emulation.auto_release)
        lease.lock.close()

    def join(self, allocation: Allocation) -> Lease | None:
        """Hold the lock together with others."""
        ledger = self._ledger()
        try:
            lock = LeaseLock.join(ledger.folder, allocation.entry_id)
        except OSError:
            return None
        try:
            # with the lock held, nobody takes the lease for one that is over
            entry = ledger.entry(allocation.entry_id)
            if (
                entry is None
                or entry.state != HELD
                or not ledger.renew(entry.entry_id, self.emulation.auto_release)
            ):
                lock.close()
                return None
            return Lease(entry, server_of(ledger.servers, entry), lock)
        except BaseException:
            lock.close()
            raise

    def end(self, allocation: Allocation) -> bool:
        """Remove the entry; the folder is this user's, so the lease is, too."""
        self._ledger().release(allocation.entry_id)
        return True

    def end_by_id(self, entry_id: str) -> bool:
        """End what waits, or what no process uses: a program of this user's own can be ended by its user."""
        from bitfusion_client.errors import ClientFailed

        ledger = self._ledger()
        entry = ledger.entry(entry_id)
        if entry is None:
            raise no_such_entry(entry_id)
        if entry.state == HELD and ledger.is_in_use(entry_id, shared=True):
            raise ClientFailed(
                "",
                f"a program uses {entry_id}: {entry.holder.label}, process {entry.holder.pid}",
                "end that program; its GPUs are free then",
            )
        ledger.release(entry_id)
        return True

    def snapshot(self) -> Snapshot:
        """Remove the entries of the dead, then look."""
        from bitfusion_pool.ledger.device_watch import try_to_read_devices
        from bitfusion_pool.ledger.snapshot import take_snapshot

        ledger = self._ledger()
        try_to_read_devices(ledger, self._environ)
        return take_snapshot(ledger)

    def close(self) -> None:
        """Close the ledger; the next method that needs it opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> OwnPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _noting_activity(self, entry_id: str) -> Callable[[], None]:
        """Notes what the kernel of a request does that waits. Called as its position is told, every 10 s."""
        path = self._environ.get(FILE_VARIABLE)
        if not path:
            return lambda: None
        from bitfusion_client.errors import BitfusionError
        from bitfusion_pool.client.kernel_state_file import KernelStateFile

        file = KernelStateFile(path)

        def note() -> None:
            activity = file.look(time.monotonic())
            if activity is not None:
                try:
                    self._ledger().note_activity(entry_id, activity, _PATIENCE_S)
                    file.told(activity, time.monotonic())
                except BitfusionError:
                    pass  # at the next look

        return note

    def _reading_devices(self, on_position: Callable[[str, str], None]) -> Callable[[str, str], None]:
        """The same, which also looks whether programs outside the pool have gone; it is called every 10 s."""
        from bitfusion_pool.ledger.device_watch import try_to_read_devices

        def read_and_tell(line: str, blocked: str) -> None:
            on_position(line, blocked)
            try_to_read_devices(self._ledger(), self._environ)

        return read_and_tell

    def _ledger(self) -> Ledger:
        if self._open is None:
            self._open = Ledger(self._environ)
        return self._open


def no_such_entry(entry_id: str) -> BitfusionError:
    """The error for an id that nothing in the pool has."""
    from bitfusion_client.errors import ClientFailed
    from bitfusion_client.one_line import one_line

    shown = one_line(entry_id, _LONGEST_ID)
    return ClientFailed("", f"there is no lease or request {shown}", "`bitfusion-pool status` shows them")
