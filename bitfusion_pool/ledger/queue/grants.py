"""The queue: grants requests in its order, removes dead entries, knows queue positions."""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.placement import candidates, choose
from bitfusion_pool.inventory.servers import only_simulated
from bitfusion_pool.ledger.liveness import clock, lives
from bitfusion_pool.ledger.queue.queue_position import (
    ASK_FOR_LESS,
    OVERTAKEN,
    blocked_by_own,
    kept_in_order,
    used_outside,
)
from bitfusion_pool.ledger.storage.entry_table import (
    delete_entry,
    entries_holding,
    grant_entry,
    liveness_columns,
    memory_held,
    read_entry,
    set_possible_servers,
    waiting_entries,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry, Holder
    from bitfusion_pool.ledger.queue.queue_order import QueueOrder
    from bitfusion_pool.ledger.queue.queue_position import QueuePosition
    from bitfusion_pool.ledger.storage.stored_inventory import StoredInventory
    from bitfusion_pool.ledger.storage.transaction import Transaction


class Queue:
    """The queue of one ledger. Methods that take a transaction must be called within it."""

    def __init__(
        self, db: sqlite3.Connection, folder: str, inventory: StoredInventory, order: QueueOrder
    ) -> None:
        self.order = order
        self._db = db
        self._folder = folder
        self._inventory = inventory

    def grant(self, transaction: Transaction) -> None:
        """Grant every request that can be served now, from the front of the queue.

        A server for which an entry waits is closed to all entries behind it. Called after every change of the
        ledger, by whichever process makes it, so no process needs to run for others to get their turn.
        """
        self._inventory.refresh()
        servers = self._inventory.servers
        closed: set[str] = set()
        free: dict[tuple[str, int], int] | None = None
        for entry in self.order.entries():
            if len(closed) == len(servers):
                break
            if closed.issuperset(entry.servers):
                continue
            if not self.is_alive(entry):
                self.remove(transaction, entry.entry_id)
                continue
            free = self.free_memory() if free is None else free
            possible = candidates(entry.request, servers_for(entry.holder, servers))
            shares = choose(entry.request.gpus, possible, free, closed)
            if shares is None:
                closed.update(possible)
                transaction.to_wake.append(entry.entry_id)  # it may have become the next one
                continue
            for share in shares:
                free[share.server, share.number] -= share.memory_mib
            grant_entry(self._db, entry.number, shares, time.time())
            transaction.to_wake.append(entry.entry_id)

    def remove(self, transaction: Transaction, entry_id: str) -> bool:
        """End a lease or leave the queue, and delete the lock file. False if there is no such entry."""
        found = delete_entry(self._db, entry_id)
        transaction.removed.append(entry_id)
        return found

    def remove_dead(self, transaction: Transaction, state: str = "") -> int:
        """Remove the entries whose holders are dead, only those in `state` if given; returns how many."""
        dead = self.dead(state)
        for entry_id in dead:
            self.remove(transaction, entry_id)
        return len(dead)

    def dead(self, state: str = "") -> list[str]:
        """The ids of the entries whose holders are dead, only those in `state` if given."""
        now = clock()
        return [
            entry_id
            for entry_id, kind, expires_at, found in liveness_columns(self._db)
            if state in ("", found) and not lives(self._folder, entry_id, kind, expires_at, now)
        ]

    def is_alive(self, entry: Entry) -> bool:
        """Whether the entry's holder lives."""
        return lives(self._folder, entry.entry_id, entry.kind, entry.expires_at, clock())

    def free_memory(self) -> dict[tuple[str, int], int]:
        """Free MiB by (server key, device number); negative if a device shrank below what is leased of it.

        What programs outside the pool use of a real device, or all of it where it has a problem, is not free.
        """
        free = self._memory()
        for server, device, leased in memory_held(self._db):
            if (server, device) in free:
                free[server, device] -= leased
        use = self._inventory.device_use
        if use:
            from bitfusion_pool.inventory.nvidia.device_use import less_what_is_used

            less_what_is_used(free, use)
        return free

    def _memory(self) -> dict[tuple[str, int], int]:
        return {
            (server.key, device.number): device.memory_mib
            for server in self._inventory.servers
            for device in server.devices
        }

    def position(self, entry: Entry, inside: str = "") -> QueuePosition:
        """The position of a waiting entry among those that compete for the same servers.

        `inside`: see `QueuePosition`.
        """
        place = self.order.place(entry)
        holding = entries_holding(self._db, entry.servers)
        possible = candidates(entry.request, servers_for(entry.holder, self._inventory.servers))
        blocked = self._blocked(entry, possible, inside)
        why = blocked + ASK_FOR_LESS if blocked else self._why(entry, place, possible)
        return place.explained(holding, inside, why, blocked)

    def _blocked(self, entry: Entry, possible: Mapping[str, Sequence[tuple[int, int]]], inside: str) -> str:
        """Why no release by others can ever serve it: what the leases hold under which its command runs."""
        own = [found for found in (read_entry(self._db, entry_id) for entry_id in inside.split()) if found]
        left = self._memory() if own else {}
        for share in (share for lease in own for share in lease.shares):
            if (share.server, share.number) in left:
                left[share.server, share.number] -= share.memory_mib
        return blocked_by_own(own) if own and choose(entry.request.gpus, possible, left) is None else ""

    def _why(
        self, entry: Entry, place: QueuePosition, possible: Mapping[str, Sequence[tuple[int, int]]]
    ) -> str:
        """Why the entry waits, where the holders do not explain it."""
        if place.overtaken:
            return OVERTAKEN
        if place.position > 1 and choose(entry.request.gpus, possible, self.free_memory()) is not None:
            return kept_in_order(entry.request)
        use = self._inventory.device_use
        return used_outside(entry.servers, use) if use else ""

    def inventory_replaced(self, transaction: Transaction) -> None:
        """Find the servers for every waiting request anew, and grant what fits now."""
        for entry in waiting_entries(self._db):
            possible = candidates(entry.request, servers_for(entry.holder, self._inventory.servers))
            if tuple(possible) != entry.servers:
                set_possible_servers(self._db, entry.number, possible)
                transaction.to_wake.append(entry.entry_id)
        self.grant(transaction)


def servers_for(holder: Holder, servers: tuple[Server, ...]) -> tuple[Server, ...]:
    """The servers of which the holder may get GPUs; on another machine it gets simulated ones only."""
    return only_simulated(servers) if holder.is_remote else servers
