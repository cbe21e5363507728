"""Own writes that the cache does not show yet: which pods' units are reserved, and when to try again.

An entry ends when the cache shows the pod with another resourceVersion than those that were tested: then
either our write has landed, and the cache shows it, or it never can. A refusal ends a reservation at once:
units whose keeping was never answered are followed by no lift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitfusion_cluster.watching.backoff import doubled_delay
from bitfusion_device_plugin.queue.pod_states import QueuedPod

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0
CACHE_S = 30.0  # for the cache to show what has been done; then it is tried again
REFUSALS = 3  # in a row, after which the pod is passed over …
LOSSES = 5  # … as after so many requests without an answer, which take half a minute: a leader for that long
# renews its Lease, so the API server answers in general, and somebody's webhook does not …
PASSED_OVER_S = 60.0  # … for so long


@dataclass(slots=True)
class _Pending:
    versions: set[str]  # two where a gate was removed from the pod that keeping its units had answered with
    reserves: bool = False
    landed: bool = False  # the units are kept, so a gate may be lifted yet by a request under way
    not_before: float = 0.0


@dataclass(slots=True)
class _Refusals:
    count: int = 0
    why: str = ""
    until: float = 0.0


class PendingWrites:
    """Of one term of leadership; used by one thread. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._failures: dict[str, int] = {}
        self._refusals: dict[str, _Refusals] = {}

    def settle(self, pods: Iterable[QueuedPod]) -> None:
        """Forget what the cache has caught up with, and pods that are gone."""
        if not (self._pending or self._failures or self._refusals):
            return
        versions = {pod.uid: pod.resource_version for pod in pods}
        self._pending = {uid: one for uid, one in self._pending.items() if versions.get(uid) in one.versions}
        for known in (self._failures, self._refusals):
            for uid in [uid for uid in known if uid not in versions]:
                del known[uid]

    def reserved(self) -> set[str]:
        """Uids whose units may be kept without the cache showing it."""
        return {uid for uid, one in self._pending.items() if one.reserves}

    def refused(self, now: float) -> Mapping[str, str]:
        """Uids that are passed over for now, and why, in the API server's words."""
        return {uid: one.why for uid, one in self._refusals.items() if now < one.until}

    def may_try(self, pod: QueuedPod, now: float) -> bool:
        """Whether this pod, as it is seen, may be written to."""
        one = self._pending.get(pod.uid)
        return one is None or pod.resource_version not in one.versions or now >= one.not_before

    def has_failed(self, pod: QueuedPod) -> bool:
        """Whether a write to it has failed since its gate was lifted last, or ever."""
        return pod.uid in self._failures

    def waits(self, now: float) -> bool:
        """Whether anything is to be looked at again soon."""
        return bool(self._pending) or any(now < one.until for one in self._refusals.values())

    def begin(self, pod: QueuedPod, reserves: bool = False) -> None:
        """A request is about to be sent. `reserves`: it keeps units, which count from now on."""
        one = self._pending.setdefault(pod.uid, _Pending(set()))
        one.versions.add(pod.resource_version)
        one.reserves |= reserves

    def landed(self, pod: QueuedPod, now_is: QueuedPod) -> None:
        """Units have been kept, by the server's answer; the pod, which is `now_is`, is written to again."""
        one = self._pending.get(pod.uid)
        if one is not None:
            one.landed = True
            one.versions.add(now_is.resource_version)

    def done(self, pod: QueuedPod, now: float, lifted: bool = True) -> None:
        """It has been done: the cache will show it. Only a lift makes earlier failures of one forgotten."""
        self._wait(pod, now, CACHE_S)
        if lifted:
            self._failures.pop(pod.uid, None)
            self._refusals.pop(pod.uid, None)

    def conflicts(self, pod: QueuedPod, now: float) -> None:
        """The pod is not as it was seen any more: the cache will show it. Perhaps by our own lost request."""
        self._wait(pod, now, self._delay(pod.uid))

    def lost(self, pod: QueuedPod, why: str, now: float) -> None:
        """There was no answer, so it may land yet."""
        self._wait(pod, now, self._delay(pod.uid))
        if self._failures[pod.uid] >= LOSSES:
            self._count_refusal(pod, why, REFUSALS, now)

    def refuse(self, pod: QueuedPod, why: str, now: float) -> None:
        """It was refused, whoever had sent it."""
        self._wait(pod, now, self._delay(pod.uid))
        self._count_refusal(pod, why, 1, now)

    def _count_refusal(self, pod: QueuedPod, why: str, count: int, now: float) -> None:
        one = self._pending.get(pod.uid)
        if one is not None:
            one.reserves &= one.landed
        known = self._refusals.setdefault(pod.uid, _Refusals())
        known.count += count
        known.why = why
        if known.count >= REFUSALS:
            known.until = now + PASSED_OVER_S

    def _wait(self, pod: QueuedPod, now: float, seconds: float) -> None:
        one = self._pending.get(pod.uid)
        if one is not None:
            one.not_before = now + seconds

    def _delay(self, uid: str) -> float:
        failures = self._failures.get(uid, 0)
        self._failures[uid] = failures + 1
        return doubled_delay(failures, FIRST_RETRY_S, LONGEST_RETRY_S)
