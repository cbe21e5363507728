"""Leader election: which replica reconciles, by one Lease, as client-go's leader election keeps it.

Clocks of machines are not compared to the second: another holder's lease is over when it has not been renewed
for its duration since *we* saw it change. Only a replica that has just started takes one at once whose last
renewal is `LONG_OVER` durations old: after an outage of all replicas there is nobody to wait for. Our own
leadership ends by our own clock, `renew_within` after the last renewal was begun, so a replica that was
frozen or cut off has stopped before another one may begin.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of
from bitfusion_cluster.api.client import KubernetesApi, Timeout
from bitfusion_cluster.api.errors import ApiFailure, Conflict, NoAnswer, NotFound
from bitfusion_cluster.api.paths import leases_path
from bitfusion_cluster.watching.backoff import Backoff

log = logging.getLogger(__name__)

LONG_OVER = 3
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. Shorter than client-go's 15, 10 and 2: a person's notebook waits for the next leader.

    A leader that was too slow may still write once, which does no harm: every write tests its precondition.

    Attributes:
        duration: How long a Lease holds after its last renewal, for the other replicas.
        renew_within: How long its holder leads after its last renewal.
        retry: Pause between two rounds.
        timeout: Of one request: to connect, and between two pieces of the answer.
        patient: Waits for the duration also where nobody seems to hold the Lease: one that looks
            `LONG_OVER` by the holder's clock, or that is gone, since somebody may have deleted it. For those
            whom a second of two leaders would harm.
    """

    duration: float = 7.0
    renew_within: float = 5.0
    retry: float = 1.0
    timeout: Timeout = (1.5, 2.5)
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that stands for election: the Lease it wants, and the name it enters there."""

    namespace: str
    lease: str
    identity: str
    times: LeaseTimes = LeaseTimes()


def replica_identity() -> str:
    """The name under which this replica stands for election."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class LeaderCallbacks:
    """Called in the thread of the election; they must not block.

    Attributes:
        started: This replica leads now.
        stopped: It leads no more.
        server_is_back: The API server answers after it did not.
    """

    started: Callable[[], None]
    stopped: Callable[[], None]
    server_is_back: Callable[[], None] = lambda: None


class Election:
    """Takes and keeps a Lease, in a thread of its own.

    Any failure of a request, a refused connection included, is only a round that failed. `stop` gives the
    Lease back.

    Args:
        api: The API client, shared with the watches.
        candidate: Which Lease, and as whom.
        callbacks: Told about the beginning and the end of leadership.
        clock: Seconds, monotonic; tests pass their own.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        api: KubernetesApi,
        candidate: Candidate,
        callbacks: LeaderCallbacks,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._namespace = candidate.namespace
        self._leases = leases_path(candidate.namespace)
        self._path = f"{self._leases}/{candidate.lease}"
        self._name = candidate.lease
        self._identity = candidate.identity
        self._times = candidate.times
        self._callbacks = callbacks
        self._clock = clock
        self._now = now
        self._no_answer = False  # to the last request
        self._valid_until = float("-inf")
        self._reported_leading = False
        self._seen: tuple[str, str, str] | None = None  # holder, renewTime, resourceVersion of another
        self._seen_at = 0.0
        self._version = ""  # the lease's resourceVersion after our own last write
        self._acquired = ""
        self._transitions = 0
        self._backoff = Backoff(self._times.retry * 2, self._times.retry * 2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def leading(self) -> bool:
        """Whether we may act just now; asked before each write. Turns False by itself."""
        return self._clock() < self._valid_until and not self._stopping.is_set()

    def start(self) -> None:
        """Begin to stand for election; returns at once."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> bool:
        """Stop leading at once, give the Lease back, and wait for the thread; whether it has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            delay = self.attempt()
            self._stopping.wait(delay)
        held = self._clock() < self._valid_until
        self._valid_until = float("-inf")
        self._report()
        if held:
            self._release()

    def attempt(self) -> float:
        """One round: take or renew the lease if that is possible. Returns the seconds to the next round."""
        # up to a fifth more, so that replicas do not ask in step
        delay = self._times.retry * (1 + random.random() / 5)
        no_answer = False
        try:
            self._round()
            self._backoff.reset()
        except Conflict:
            self._version = ""  # another replica was faster: look next time
        except ApiFailure as error:
            no_answer = isinstance(error, NoAnswer)
            log.warning("lease not renewed", extra={"lease": self._name, "error": str(error)})
            # never longer: everybody's notebooks wait for the server's return
            delay = self._backoff.next(getattr(error, "retry_after", None))
        except Exception:  # this thread is the only one that could take the lease again
            log.exception("lease not renewed", extra={"lease": self._name})
        if self._no_answer and not no_answer:
            self._callbacks.server_is_back()
        self._no_answer = no_answer
        self._report()
        left = self._valid_until - self._clock()
        # wake when leadership runs out, to say so at once
        return min(delay, left) if left > 0 else delay

    def _round(self) -> None:
        began = self._clock()
        if self._version and began < self._valid_until:
            # the resourceVersion says whether it is still ours: one request, as client-go does
            self._write(self._version, began)
            return
        try:
            lease = self._api.get(self._path, timeout=self._times.timeout)
        except NotFound:
            if self._times.patient and not self._expired("", {}, ""):
                return
            self._acquired, self._transitions = _now(), 0
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": self._name,
                    "ownerReferences": self._api.owner_references(self._namespace),
                },
                "spec": self._spec(),
            }
            self._hold(self._api.create(self._leases, body, timeout=self._times.timeout), began)
            return
        spec, metadata = mapping(lease.get("spec")), metadata_of(lease)
        holder = str(spec.get("holderIdentity") or "")
        version = str(metadata.get("resourceVersion") or "")
        if holder and holder != self._identity and not self._expired(holder, spec, version):
            self._valid_until = float("-inf")
            return
        transitions = spec.get("leaseTransitions")
        self._transitions = transitions if isinstance(transitions, int) else 0
        if holder == self._identity:
            self._acquired = str(spec.get("acquireTime") or _now())
        else:
            self._acquired = _now()
            self._transitions += 1
        self._write(version, began)

    def _write(self, version: str, began: float) -> None:
        # with the resourceVersion it is refused if anybody wrote meanwhile
        body = {"metadata": {"resourceVersion": version}, "spec": self._spec()}
        self._hold(self._api.merge(self._path, body, timeout=self._times.timeout), began)

    def _expired(self, holder: str, spec: Mapping[str, Any], version: str) -> bool:
        renewed = str(spec.get("renewTime"))
        seen, is_first, now = (holder, renewed, version), self._seen is None, self._clock()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = spec.get("leaseDurationSeconds")
        seconds = float(duration) if isinstance(duration, (int, float)) else self._times.duration
        long_over = self._now() - _seconds_of(renewed, self._now()) >= LONG_OVER * seconds
        if is_first and long_over and not self._times.patient:
            return True
        return now - self._seen_at >= seconds

    def _hold(self, lease: dict[str, Any], began: float) -> None:
        self._version = str(metadata_of(lease).get("resourceVersion") or "")
        self._valid_until = began + self._times.renew_within

    def _report(self) -> None:
        leading = self.leading
        if leading == self._reported_leading:
            return
        self._reported_leading = leading
        log.info("leading" if leading else "not leading any more", extra={"lease": self._name})
        (self._callbacks.started if leading else self._callbacks.stopped)()

    def _release(self) -> None:
        try:
            lease = self._api.get(self._path, timeout=self._times.timeout)
            spec, metadata = mapping(lease.get("spec")), metadata_of(lease)
            if spec.get("holderIdentity") != self._identity:
                return
            update = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            body = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "spec": update}
            self._api.merge(self._path, body, timeout=self._times.timeout)
            log.info("lease given back", extra={"lease": self._name})
        except ApiFailure as error:
            # it runs out by itself
            log.warning("lease not given back", extra={"lease": self._name, "error": str(error)})

    def _spec(self) -> dict[str, object]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "acquireTime": self._acquired,
            "renewTime": _now(),
            "leaseTransitions": self._transitions,
        }


def _now() -> str:
    return datetime.now(timezone.utc).strftime(_TIME)


def _seconds_of(text: str, otherwise: float) -> float:
    """Since the epoch; of what is no time `otherwise`."""
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return otherwise
