"""A pool behind a service: the commands ask the service, which owns the ledger.

How its leases live is the only difference between a service of this machine, at a unix socket
(`life_by_lock`), and one on another (`life_by_words`).
"""

from __future__ import annotations

import time

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_client.one_line import one_line
from bitfusion_pool.client.allocation_file import Allocation
from bitfusion_pool.client.connections.service_errors import ServiceAway, nonsense, refused
from bitfusion_pool.inventory.emulation import emulation_from, environment_settings, split_settings
from bitfusion_pool.ledger.entries import RESERVED
from bitfusion_pool.ledger.waiting import DEFAULT_TIMEOUT_S, timed_out
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, End, Look, Release, Renew, Resume
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Refused,
    Released,
    Renewed,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
    from bitfusion_pool.client.kernel_state_file import KernelStateFile
    from bitfusion_pool.client.pools.life_by_lock import LifeByLock
    from bitfusion_pool.client.pools.life_by_words import LifeByWords
    from bitfusion_pool.client.pools.pool import Lease
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Holder
    from bitfusion_pool.ledger.snapshot import Snapshot
    from bitfusion_pool.messages.from_service import Welcome
    from bitfusion_pool.messages.message import Message

SILENCE_S = 30.0  # a request that waits hears something every ten seconds
RETRY_S = 0.5
_LONGEST_POSITION = 4000  # characters


class ServicePool:
    """See `pool.Pool`.

    Args:
        life: How its leases live, connected with the service.
        environ: The environment of the command.
    """

    def __init__(self, life: LifeByLock | LifeByWords, environ: Mapping[str, str]) -> None:
        self._life = life
        self.place = life.place
        self._state_path = environ.get(FILE_VARIABLE, "")
        self._state_file: KernelStateFile | None = None  # once a request waits
        try:
            settings = split_settings(self.welcome.emulation)
            self.emulation = emulation_from(settings, environment_settings(environ))
        except BaseException:
            self.close()
            raise

    @property
    def welcome(self) -> Welcome:
        """What the service says of itself."""
        return self._life.welcome

    @property
    def servers(self) -> Sequence[Server]:
        """As the service named them in its welcome."""
        return self.welcome.servers

    def client_id(self) -> str:
        """As the service named it in its welcome."""
        return self.welcome.client_id

    def take(
        self,
        request: GpuRequest,
        holder: Holder,
        kind: str,
        inside: str,
        on_position: Callable[[str, str], None],
    ) -> Lease:
        """Ask, and wait for the service's word. If the service goes meanwhile, come back to the place."""
        may_wait = self.emulation.when_full == "wait"
        asked = Acquire(request, kind, holder.label, holder.pid, holder.host, inside, may_wait)
        limit = DEFAULT_TIMEOUT_S if request.timeout is None else request.timeout
        deadline = time.monotonic() + limit
        has_waited = False
        place: Resume | None = None
        try:
            while True:
                try:
                    answer = self._life.exchange(place or asked)
                    while isinstance(answer, Waiting):
                        has_waited = True
                        place = Resume(answer.entry, answer.secret, inside) if answer.entry else None
                        on_position(one_line(answer.text, _LONGEST_POSITION), one_line(answer.blocked))
                        self._tell_of_waiting(answer)
                        answer = self._life.next_position(min(SILENCE_S, deadline - time.monotonic()))
                except ServiceAway as error:
                    if not has_waited:
                        raise
                    if time.monotonic() >= deadline:
                        raise timed_out(request, limit) from None
                    self._reconnect(error, deadline, place is not None)
                    continue
                if place is not None and _is_over(answer):
                    place = None
                    self._log("the request has lost its position in the queue, and is made again", "WARN")
                    continue
                if isinstance(answer, Granted):
                    # a reservation has none before it is used
                    return self._lease(answer, needs_lock=kind != RESERVED)
                raise self._refusal(answer, request)
        except BaseException:
            self._life.leave_queue()
            raise

    def set_aside(self) -> KeeperProcess | None:
        """Leave the lease to what keeps it, where that takes a process."""
        return self._life.set_aside()

    def tell(self, lease: Lease, activity: KernelActivity) -> bool:
        """Tell the service; one that does not know this message passes over it."""
        from bitfusion_pool.client.kernel_state_file import report

        return self._life.tell(report(lease.entry.entry_id, lease.secret, activity))

    def release(self, lease: Lease) -> bool:
        """Drop the lock, then tell the service, which may have been started anew meanwhile."""
        lease.lock.close()
        try:
            is_free = self._life.end_by_keeper(lease)
            return self._end(lease.entry.entry_id, lease.secret) if is_free is None else is_free
        finally:
            self._life.let_go(lease)

    def allocation(self, lease: Lease) -> Allocation:
        """Name the service, and the secret that it asks for."""
        return Allocation(lease.entry.entry_id, "", lease.server.key, self._life.address, lease.secret)

    def keep(self, lease: Lease) -> None:
        """Begin its time to live, then drop the lock."""
        try:
            if self._life.end_by_keeper(lease) is None:
                self._ask_again_if_away(Renew(lease.entry.entry_id, lease.secret), Renewed)
        finally:
            self._life.let_go(lease)

    def join(self, allocation: Allocation) -> Lease | None:
        """Hold the lock that the service passes."""
        answer = self._ask(Resume(allocation.entry_id, allocation.secret))
        if isinstance(answer, Granted):
            return self._lease(answer, needs_lock=True)
        if _is_over(answer):
            return None
        raise self._refusal(answer)

    def end(self, allocation: Allocation) -> bool:
        """Tell the service."""
        return self._end(allocation.entry_id, allocation.secret)

    def end_by_id(self, entry_id: str) -> bool:
        """Ask the service, which knows whose it is."""
        answer = self._ask(End(entry_id))
        if isinstance(answer, Released):
            return not answer.in_use
        raise self._refusal(answer)

    def snapshot(self) -> Snapshot:
        """What the service shows to all its users."""
        from bitfusion_pool.client.pools.service_snapshot import snapshot_of

        answer = self._ask(Look())
        if isinstance(answer, PoolSnapshot):
            return snapshot_of(answer, self.place, self.welcome.software)
        raise self._refusal(answer)

    def close(self) -> None:
        """Hang up."""
        self._life.connection.close()

    def __enter__(self) -> ServicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _tell_of_waiting(self, place: Waiting) -> None:
        """The same of a request that waits, at each word that it does, which comes every ten seconds."""
        if not self._state_path or not place.entry:
            return
        from bitfusion_pool.client.kernel_state_file import KernelStateFile, report

        if self._state_file is None:
            self._state_file = KernelStateFile(self._state_path)
        activity = self._state_file.look(time.monotonic())
        if activity is not None and self._life.tell(report(place.entry, place.secret, activity)):
            self._state_file.told(activity, time.monotonic())

    def _ask(self, message: Message) -> Message:
        """Send a message; its answer."""
        answer = self._life.exchange(message)
        while isinstance(answer, Refused) and answer.code == refusal_codes.ENDED:
            # somebody ended what this command had, which the answer says as well
            answer = self._life.receive()
        return answer

    def _ask_again_if_away(self, message: Message, expected: type[Message]) -> Message | None:
        """The answer, also of a service that was started anew; None where the lease is over."""
        try:
            answer = self._ask(message)
        except ServiceAway:
            self._connect()
            answer = self._ask(message)
        if isinstance(answer, expected):
            return answer
        if _is_over(answer):
            return None
        raise self._refusal(answer)

    def _end(self, entry_id: str, secret: str) -> bool:
        answer = self._ask_again_if_away(Release(entry_id, secret), Released)
        return not (isinstance(answer, Released) and answer.in_use)

    def _connect(self) -> None:
        self.close()
        self._life.connect()

    def _reconnect(self, error: ServiceAway, deadline: float, has_place: bool) -> None:
        if has_place:
            self._life.connection.give_up()  # perhaps granted meanwhile, which is still ours
        if self._state_file is not None:
            self._state_file.forget()
        self._log(f"{error.answered}; this request waits for it", "WARN")
        while True:
            try:
                self._connect()
            except ServiceAway as still:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise still from None
                time.sleep(min(RETRY_S, left))
            else:
                goes_on = "goes back to its position" if has_place else "is made again"
                self._log(f"pool service at {self.place} is back, the request {goes_on}")
                return

    def _log(self, text: str, level: str = "INFO") -> None:
        LogOutput(self.emulation.stream).log(text, level)

    def _lease(self, granted: Granted, needs_lock: bool) -> Lease:
        return self._life.lease(granted, needs_lock, self.emulation.auto_release)

    def _refusal(self, answer: Message, request: GpuRequest | None = None) -> BitfusionError:
        if isinstance(answer, Refused):
            return refused(self.place, answer, request or "")
        return nonsense(self.place, f"it answered with {answer.TYPE}")


def _is_over(answer: Message) -> bool:
    return isinstance(answer, Refused) and answer.code == refusal_codes.LEASE_OVER
