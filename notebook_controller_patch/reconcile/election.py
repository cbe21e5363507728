"""Which replica reconciles: one Lease, as client-go's leader election keeps it.

Clocks of machines are not compared: another holder's lease is over when it has not been renewed for its
duration since *we* saw it change. Our own leadership ends by our own clock, `renew_within` after the last
renewal was begun, so a replica that was frozen or cut off has stopped before another one may begin.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from notebook_controller_patch.kubernetes_api import (
    ApiFailure,
    Conflict,
    KubernetesApi,
    NoAnswer,
    NotFound,
    Timeout,
)
from notebook_controller_patch.reconcile.backoff import Backoff

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. Shorter than client-go's 15, 10 and 2: what waits for the next leader is a person's notebook.

    That a leader which was too slow may still write once is no danger: every write tests what it is for.
    """

    duration: float = 7.0
    renew_within: float = 5.0
    retry: float = 1.0
    timeout: Timeout = (1.5, 2.5)


class Election:
    """Takes and keeps the Lease `namespace`/`name` as `identity`, in a thread of its own.

    `began` and `ended` are called in that thread when leadership changes, `back` when the API server answers
    after it did not; they must not block. Any failure of a request, a refused connection included, is only a
    round that failed. `stop` gives the Lease back.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        identity: str,
        began: Callable[[], None],
        ended: Callable[[], None],
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
        back: Callable[[], None] | None = None,
    ) -> None:
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._name = name
        self._identity = identity
        self._began = began
        self._ended = ended
        self._times = times or LeaseTimes()
        self._clock = clock
        self._back = back
        self._away = False  # the last request had no answer
        self._valid_until = float("-inf")
        self._told = False
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
        self._tell()
        if held:
            self._release()

    def attempt(self) -> float:
        """One round: take or renew the lease if that is possible. Returns the seconds to the next round."""
        # up to a fifth more, so that replicas do not march in step
        delay = self._times.retry * (1 + random.random() / 5)
        away = False
        try:
            self._round()
            self._backoff.reset()
        except Conflict:
            self._version = ""  # another replica was faster: look next time
        except ApiFailure as error:
            away = isinstance(error, NoAnswer)
            log.warning("lease not renewed", extra={"lease": self._name, "error": str(error)})
            # not longer and longer: the server's return is waited for by everybody's notebooks
            delay = self._backoff.next(getattr(error, "retry_after", None))
        except Exception:  # this thread is the only one that could take the lease again
            log.exception("lease not renewed", extra={"lease": self._name})
        if self._away and not away and self._back is not None:
            self._back()
        self._away = away
        self._tell()
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
            self._acquired, self._transitions = _now(), 0
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": self._spec(),
            }
            self._hold(self._api.create(self._collection, body, timeout=self._times.timeout), began)
            return
        spec, metadata = _map(lease.get("spec")), _map(lease.get("metadata"))
        holder = str(spec.get("holderIdentity") or "")
        version = str(metadata.get("resourceVersion") or "")
        if holder and holder != self._identity and not self._over(holder, spec, version):
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

    def _over(self, holder: str, spec: dict[str, Any], version: str) -> bool:
        seen = (holder, str(spec.get("renewTime")), version)
        now = self._clock()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = spec.get("leaseDurationSeconds")
        seconds = float(duration) if isinstance(duration, (int, float)) else self._times.duration
        return now - self._seen_at >= seconds

    def _hold(self, lease: dict[str, Any], began: float) -> None:
        self._version = str(_map(lease.get("metadata")).get("resourceVersion") or "")
        self._valid_until = began + self._times.renew_within

    def _tell(self) -> None:
        leading = self.leading
        if leading == self._told:
            return
        self._told = leading
        log.info("leading" if leading else "not leading any more", extra={"lease": self._name})
        (self._began if leading else self._ended)()

    def _release(self) -> None:
        try:
            lease = self._api.get(self._path, timeout=self._times.timeout)
            spec, metadata = _map(lease.get("spec")), _map(lease.get("metadata"))
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
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
