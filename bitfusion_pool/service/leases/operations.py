"""What is done with the ledger for a client: each method is one thing that a client may ask for.

No sockets here. Everything runs in the event loop's thread and takes about a millisecond. Methods raise
Refusal, and BitfusionError where the ledger does.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bitfusion_client.errors import BitfusionError
from bitfusion_client.kernel_state.activity import KernelActivity, activity_from_json
from bitfusion_client.one_line import one_line
from bitfusion_client.version import VERSION
from bitfusion_pool.inventory.emulation import join_settings
from bitfusion_pool.inventory.placement import Share, candidates
from bitfusion_pool.inventory.refusals import never_satisfiable
from bitfusion_pool.inventory.servers import Server, gone_server, only_simulated
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, RESERVED, WAITING, Entry, Holder
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.queue.queue_position import QueuePosition
from bitfusion_pool.ledger.snapshot import take_snapshot
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Report
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Released,
    Renewed,
    Waiting,
    Welcome,
    format_snapshot,
)
from bitfusion_pool.messages.message import PROTOCOL
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.leases.lease_secrets import LeaseSecrets
from bitfusion_pool.service.leases.limits import (
    UserLimits,
    check_length,
    check_limits,
    check_share,
    check_units,
    limits_of_token,
    units_of_entries,
    units_of_request,
)
from bitfusion_pool.service.leases.reservation_use import ReservationUse
from bitfusion_pool.service.refusal import Refusal

_log = logging.getLogger(__name__)
_SNAPSHOT_S = 0.5  # so old may a snapshot be, as long as nothing changes
_LONGEST_LABEL = 60
_LONGEST_HOST = 60
_LONGEST_ID = 32


class LeaseTimes(NamedTuple):
    """In seconds; see `Welcome`."""

    closed_s: float
    silent_s: float
    heartbeat_s: float


class PoolOperations:
    """The pool of one service, for its sessions.

    Attributes:
        ledger: The service's ledger.
        times: What clients on other machines are told.
        changed: Called after everything that may change who holds or waits; it must not call back at once.
        once_known: Calls what it is given once the pool's real devices have been read, which may be at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        secrets: LeaseSecrets,
        limits: UserLimits,
        pool: str,
        times: LeaseTimes,
        changed: Callable[[], None],
    ) -> None:
        self.ledger = ledger
        self.changed = changed
        self.once_known: Callable[[Callable[[], None]], None] = lambda answer: answer()
        self._secrets = secrets
        self._limits = limits
        self._pool = pool
        self.times = times
        self._host = os.uname().nodename
        self._snapshot = b""
        self._snapshot_until = 0.0
        self._counter = ledger.change_counter()

    # --- looking ---------------------------------------------------------------------------------------

    def welcome(self, peer: Peer, route: str) -> Welcome:
        """The greeting of this user, who has come by this route."""
        servers = self.ledger.servers
        simulated = any(device.simulated for server in servers for device in server.devices)
        client_id = self.ledger.client_id(peer.uid)
        token = peer.token
        return Welcome(
            *(PROTOCOL, self._pool, client_id, simulated, servers, self._emulation()),
            *self.times,
            token.expires_at if token is not None else 0.0,
            VERSION,
            token.created_at if token is not None else 0.0,
            route,
        )

    def snapshot_line(self) -> bytes:
        """The whole pool, as a line of a message; up to half a second old."""
        now = time.monotonic()
        if now >= self._snapshot_until:
            found = take_snapshot(self.ledger)
            free = tuple(Share(server, number, mib) for (server, number), mib in found.free.items())
            use = tuple((server, number, one) for (server, number), one in (found.use or {}).items())
            entries = (*found.held, *found.waiting)
            self._snapshot = format_snapshot(
                PoolSnapshot(
                    found.taken_at, found.clock, found.servers, entries, 0, free, self._emulation(), use
                )
            )
            self._snapshot_until = now + _SNAPSHOT_S
        return self._snapshot

    def position(self, entry: Entry, inside: str, peer: Peer) -> QueuePosition:
        """The queue position of a waiting entry; of `inside` only leases of the same user count.

        Raises:
            NeverSatisfiable: The pool was configured anew, and no server can serve the request any more.
        """
        entry = self.ledger.entry(entry.entry_id) or entry
        if entry.state == WAITING and not entry.servers:
            servers = self.ledger.servers
            raise never_satisfiable(
                entry.request, only_simulated(servers) if entry.holder.is_remote else servers
            )
        return self.ledger.queue_position(entry, " ".join(filter(partial(self._is_of, peer), inside.split())))

    def _is_of(self, peer: Peer, entry_id: str) -> bool:
        entry = self.ledger.entry(entry_id) if len(entry_id) <= _LONGEST_ID else None
        return entry is not None and entry.holder.uid == peer.uid

    # --- taking and giving back ------------------------------------------------------------------------

    def submit(self, message: Acquire, peer: Peer) -> tuple[Entry, LeaseLock]:
        """Take GPUs or a place in the queue; the caller keeps the lock until it is passed on."""
        if message.kind not in (PROCESS, RESERVED):
            shown = one_line(message.kind, _LONGEST_ID)
            raise Refusal(
                refusal_codes.INVALID_REQUEST,
                f'invalid value "{shown}" for kind: must be {PROCESS} or {RESERVED}',
            )
        check_length(message.request)
        limits = self._limits
        if peer.token is not None:
            limits = limits_of_token(peer.token.limits, limits)
            self._check_devices(message, peer.token.limits.share)
        check_limits(limits, self.ledger.count_of_user(peer.uid), message.request.gpus)
        if limits.units is not None:
            # only names of tokens have such a limit, and get simulated devices only
            servers = only_simulated(self.ledger.servers)
            taken = units_of_entries(self.ledger.entries_of_user(peer.uid), servers)
            check_units(limits, taken, units_of_request(message.request, servers))
        kind = REMOTE if peer.is_remote and message.kind == PROCESS else message.kind
        try:
            return self.ledger.submit(message.request, self._holder(message, peer), message.wait, kind)
        finally:
            self.has_changed()

    def grant(self, entry: Entry, lock: LeaseLock) -> tuple[Granted, int]:
        """The message for an entry that holds GPUs now, and the descriptor that goes with it (-1: none)."""
        if entry.kind == RESERVED:
            # no process holds it: from now on its time to live counts
            self.ledger.renew(entry.entry_id, self.ledger.emulation.auto_release)
            lock.close()
            entry = self.ledger.entry(entry.entry_id) or entry
        elif entry.kind == PROCESS:
            lock.mark_passed()
        granted = self.granted(entry)
        fd, lock.fd = lock.fd, -1
        return granted, fd

    def waiting(self, entry: Entry, position: QueuePosition) -> Waiting:
        """The message for an entry that waits."""
        secret = self._secrets.secret(entry.entry_id)
        place = position.position, position.length, position.text()
        return Waiting(*place, entry.entry_id, secret, position.blocked)

    def own_entry(self, entry_id: str, secret: str, peer: Peer) -> Entry:
        """The lease or request of this user that the secret is of. Raises Refusal if there is none."""
        proved = self._secrets.is_secret(entry_id, secret)
        entry = self.ledger.entry(entry_id) if proved else None
        if entry is None or entry.holder.uid != peer.uid:
            raise over(entry_id)
        return entry

    def leave(self, entry_id: str) -> None:
        """End an entry whatever it is: a waiting client has left."""
        self.ledger.release(entry_id)
        self.has_changed()

    def drop(self, entry_id: str, lock: LeaseLock) -> None:
        """The same of an entry whose lock nobody was given."""
        lock.close()
        try:
            self.leave(entry_id)
        except BitfusionError as error:
            # its lock is gone, so the next look finds it dead
            _log.error("request cannot be ended", extra={"lease": entry_id, "reason": str(error)})

    def release(self, lease: str, secret: str, peer: Peer) -> Released:
        """End a lease of this user, now or once nobody uses it any more."""
        return self._release_unless_used(self._own_lease(lease, secret, peer))

    def resume(self, lease: str, secret: str, peer: Peer) -> tuple[Granted, int]:
        """Come back to a lease of this user: the message, and a descriptor for a reservation (-1: none)."""
        entry = self._own_lease(lease, secret, peer)
        if entry.kind == RESERVED:
            try:
                lock = LeaseLock.join(self.ledger.folder, entry.entry_id, wait=False)
            except OSError:
                raise over(lease) from None
            try:
                self.ledger.renew(entry.entry_id, self.ledger.emulation.auto_release)
                return self.granted(self.ledger.entry(entry.entry_id) or entry), lock.fd
            except BaseException:
                lock.close()
                raise
        if not self.ledger.is_in_use(entry.entry_id):
            self.leave(entry.entry_id)
            raise over(lease)
        return self.granted(entry), -1

    def use(self, lease: str, secret: str, peer: Peer) -> tuple[Granted, ReservationUse]:
        """Use a reservation of this client on another machine, which gets no lock: the caller keeps it."""
        granted, fd = self.resume(lease, secret, peer)
        ttl_s = max(self.ledger.emulation.auto_release, self.times.silent_s + self.times.heartbeat_s)
        use = ReservationUse(self.ledger, lease, fd, ttl_s, self.times.heartbeat_s)
        try:
            use.heard()
        except BaseException:
            use.close()
            raise
        return granted, use

    def granted(self, entry: Entry) -> Granted:
        """The message for an entry that holds GPUs."""
        return Granted(entry, self._server_of(entry), self._secrets.secret(entry.entry_id))

    def renew(self, lease: str, secret: str, peer: Peer) -> Renewed:
        """Let a reservation of this user live its whole time again."""
        entry = self._own_lease(lease, secret, peer)
        if entry.kind != RESERVED:
            raise over(lease)
        # one that was given back is not renewed: it ends with those who use it
        self.ledger.renew(lease, self.ledger.emulation.auto_release)
        return Renewed(lease)

    def note_report(self, report: Report, peer: Peer) -> KernelActivity:
        """Note what the kernel under a lease or request of this user does; returns that.

        Nobody is told, and no snapshot made anew: it may change every other second.
        """
        entry = self.own_entry(report.lease, report.secret, peer)
        now = time.time()
        said = {
            "state": report.state,
            "since": now - report.for_s,
            "idle_since": None if report.idle_s < 0 else now - report.idle_s,
            "notebook": report.notebook,
        }
        activity = activity_from_json(said, now)
        self.ledger.note_activity(entry.entry_id, activity)
        return activity

    def end(self, entry_id: str, peer: Peer) -> Released:
        """End a lease or request by its id: the user's own, or anybody's for an administrator."""
        entry = self.ledger.entry(entry_id) if len(entry_id) <= _LONGEST_ID else None
        if entry is None:
            raise Refusal(
                refusal_codes.LEASE_OVER,
                f"there is no lease or request {one_line(entry_id, _LONGEST_ID)}",
                "`bitfusion-pool status` shows them",
            )
        if entry.holder.uid != peer.uid and not peer.is_administrator:
            raise Refusal(
                refusal_codes.NOT_YOURS,
                f"{entry.entry_id} belongs to {entry.holder.user}, and you are {peer.user}",
                f"ask {entry.holder.user}, or the administrator of this pool",
            )
        if entry.kind == REMOTE and entry.state == HELD:
            return Released(entry.entry_id, True)  # its client must end its program first
        return self._release_unless_used(entry)

    # --- what nobody asked for -------------------------------------------------------------------------

    def end_if_unused(self, entry_id: str) -> bool:
        """End a lease whose client is gone once no process holds its lock; whether it is over."""
        if self.ledger.is_in_use(entry_id, shared=True):
            return False
        self.leave(entry_id)
        return True

    def look_around(self) -> None:
        """Remove what is dead or has run out, and notice what others did to the ledger."""
        removed = self.ledger.reap()
        counter = self.ledger.change_counter()
        if removed or counter != self._counter:
            self._counter = counter
            self.has_changed()

    # --- inside ----------------------------------------------------------------------------------------

    def has_changed(self) -> None:
        """Something was granted or ended, or the pool is another: snapshots are made anew, sessions told."""
        self._snapshot_until = 0.0
        self.changed()

    def _own_lease(self, lease: str, secret: str, peer: Peer) -> Entry:
        entry = self.own_entry(lease, secret, peer)
        if entry.state != HELD:
            raise over(lease)
        return entry

    def _holder(self, message: Acquire, peer: Peer) -> Holder:
        label = one_line(message.label.replace(";", ","), _LONGEST_LABEL) or "a program"
        if not peer.is_remote:
            # who and where is known here, and not taken from the message
            return Holder(label, peer.user, peer.pid, self._host, peer.uid)
        host = one_line(message.host, _LONGEST_HOST) or peer.address
        return Holder(label, peer.user, message.pid, host, peer.uid)

    def _check_devices(self, message: Acquire, share: float | None) -> None:
        """Refuse what no client on another machine may have, or more of a GPU than a token allows."""
        servers = only_simulated(self.ledger.servers)
        if not any(server.devices for server in servers):
            raise Refusal(
                refusal_codes.NEVER,
                "over the network this pool leases simulated GPUs only, and it has none: it forwards no CUDA",
                "use its GPUs on the machine that has them; "
                "or ask its administrator for simulated ones (bitfusion-pool simulate)",
            )
        if share is not None:
            check_share(share, message.request, candidates(message.request, servers), servers)

    def _release_unless_used(self, entry: Entry) -> Released:
        """GPU memory may be taken as long as a process holds the lock, so the lease lasts as long."""
        if entry.state != WAITING and self.ledger.is_in_use(entry.entry_id, shared=True):
            if entry.kind == RESERVED:
                self.ledger.give_back(entry.entry_id)
            return Released(entry.entry_id, True)
        self.leave(entry.entry_id)
        return Released(entry.entry_id)

    def _server_of(self, entry: Entry) -> Server:
        """The server of a lease, also where it or its GPUs are in the pool no more: a lease outlives that."""
        key = entry.shares[0].server
        for server in self.ledger.servers:
            if server.key == key and all(server.has_device(share.number) for share in entry.shares):
                return server
        return gone_server(key, [(share.number, share.memory_mib) for share in entry.shares])

    def _emulation(self) -> str:
        emulation = self.ledger.emulation
        values = {name: getattr(emulation, name) for name in emulation.__match_args__}
        return join_settings(
            {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}
        )


def over(lease: str) -> Refusal:
    """For a lease or request that is over, or never was this client's."""
    return Refusal(
        refusal_codes.LEASE_OVER,
        f"there is no lease {one_line(lease, _LONGEST_ID)} with this secret of yours: it has ended",
        "ask for GPUs again",
    )
