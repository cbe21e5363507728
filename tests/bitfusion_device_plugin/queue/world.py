"""Pods, an API server and leaders without sockets or threads: requests can be lost, late, or the last one.

For tests that go through every order of things. Time passes only when a test says so.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jsonpatch
from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import NoAnswer, error_of_status
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.leader import Caches, QueueLeader
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.teller import Teller
from bitfusion_device_plugin.queue.unit_accounts import NodeUnits, UnitAccounts
from tests.bitfusion_device_plugin.queue.pods import Object
from tests.support import apiserver_answers as answers

Write = Callable[[], Object]
OK, LOST, LANDED, LATE = "answered", "lost", "landed without an answer", "late without an answer"
KILLED, KILLED_LATE = "killed after it landed", "killed while it is under way"
FORBIDDEN, THROTTLED, BROKEN = "forbidden", "throttled", "broken after it landed"
ENDS = (OK, LOST, LANDED, LATE, KILLED, KILLED_LATE, FORBIDDEN, THROTTLED, BROKEN)
STUCK_S = 300.0


class Killed(BaseException):
    """The leader's process has ended in the middle of a request."""


class World:
    """What the API server holds."""

    def __init__(self, pool: int = 100) -> None:
        self.pool = pool
        self.now = 1000.0
        self.pods: dict[Key, Object] = {}
        self.log: list[tuple[Key, Object | None]] = []
        self.late: list[Write] = []
        self.ends: deque[str] = deque()
        self.requests: list[str] = []
        self._version = 0

    def put(self, raw: Object) -> Object:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        self.pods[key] = raw
        self.log.append((key, copy.deepcopy(raw)))
        return raw

    def remove(self, key: Key) -> None:
        del self.pods[key]
        self.log.append((key, None))

    def seen(self, *states: PodState) -> list[QueuedPod]:
        """All pods as they are, in the order of the queue."""
        found = [pod for pod in map(queued_pod, self.pods.values()) if pod is not None]
        return sorted((pod for pod in found if pod.state in states), key=lambda pod: pod.order)

    def taken(self) -> int:
        """Units of pods that may start, or have."""
        return sum(pod.units for pod in self.seen(PodState.LIFTED, PodState.BOUND))

    def send(self, what: str, write: Write) -> Object:
        """A request of a leader, with the next end that a test has planned; answered by default."""
        self.requests.append(what)
        end = self.ends.popleft() if self.ends else OK
        if end == LOST:
            raise NoAnswer(answered="timeout")
        if end in (LATE, KILLED_LATE):
            self.late.append(write)
        elif end == FORBIDDEN:
            raise error_of_status(403, {"reason": "Forbidden", "message": "not now"})
        elif end == THROTTLED:
            raise error_of_status(429, {}, 2.0)
        if end in (KILLED_LATE, LATE):
            raise Killed if end == KILLED_LATE else NoAnswer(answered="timeout")
        answer = write()
        if end == KILLED:
            raise Killed
        if end == LANDED:
            raise NoAnswer(answered="timeout")
        if end == BROKEN:
            raise error_of_status(500, {})
        return answer

    def land(self, number: int) -> None:
        """A late request arrives; nobody waits for its answer."""
        try:
            self.late.pop(number)()
        except Exception:
            pass

    def patch(self, path: str, operations: Sequence[Mapping[str, object]]) -> Object:
        key = _key(path)
        found = self._found(key)
        try:
            patched = jsonpatch.JsonPatch(list(operations)).apply(copy.deepcopy(found))
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
            raise error_of_status(422, answers.patch_not_applied()) from None
        return copy.deepcopy(self.put(patched))

    def delete(self, path: str, body: Mapping[str, Any]) -> Object:
        key = _key(path)
        metadata = self._found(key)["metadata"]
        if any(metadata[name] != value for name, value in body["preconditions"].items()):
            raise error_of_status(409, {"reason": "Conflict"})
        self.remove(key)
        return {}

    def _found(self, key: Key) -> Object:
        if key not in self.pods:
            raise error_of_status(404, {"reason": "NotFound"})
        return self.pods[key]


class Api:
    """What the leader uses of the client."""

    def __init__(self, world: World) -> None:
        self._world = world

    def patch(self, path: str, operations: Sequence[Mapping[str, object]], timeout: object = None) -> Object:
        what = "lift" if not path.endswith("/status") else "status"
        return self._world.send(what, lambda: self._world.patch(path, operations))

    def delete(self, path: str, body: Mapping[str, Any], timeout: object = None) -> Object:
        return self._world.send("delete", lambda: self._world.delete(path, body))

    def create(self, path: str, body: Mapping[str, Any], timeout: object = None) -> Object:
        return self._world.send("event", lambda: {})

    def get(self, path: str, timeout: object = None) -> Object:
        raise error_of_status(404, {"reason": "NotFound"})


class Replica:
    """A leader, which has listed everything just now, and whose watch brings what a test delivers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.leads = True
        self.pods: Cache[QueuedPod] = Cache()
        self.pods.replace({pod.key: pod for pod in map(queued_pod, world.pods.values()) if pod is not None})
        self._read = len(world.log)
        nodes: Cache[NodeUnits] = Cache()
        nodes.replace({("", "n"): NodeUnits("n", world.pool)})
        self.nodes = nodes
        accounts = UnitAccounts()
        self.context = QueueContext(
            cast(KubernetesApi, Api(world)),
            QueueMetrics(CollectorRegistry(), accounts),
            accounts,
            "replica",
            STUCK_S,
            leading=lambda: self.leads,
            clock=lambda: world.now,
            now=lambda: world.now,
        )
        self.teller = Teller(self.context, self.pods)
        self.leader = QueueLeader(self.context, Caches(self.pods, nodes), self.teller)

    def deliver(self, events: int | None = None) -> None:
        """The watch brings so many of the events that are outstanding; all of them by default."""
        end = len(self._world.log) if events is None else self._read + events
        for key, raw in self._world.log[self._read : end]:
            pod = None if raw is None else queued_pod(raw)
            if pod is None:
                self.pods.remove(key)
            else:
                self.pods.put(pod)
        self._read = min(end, len(self._world.log))

    def step(self) -> bool:
        """One step; False if it was killed in it, or does not lead any more."""
        try:
            self.leader.step()
        except (Killed, NotLeading):
            self.leads = False
        return self.leads

    def tell(self) -> bool:
        """The most urgent sentence; False as of `step`."""
        try:
            self.teller.say_next()
        except Killed:
            self.leads = False
        return self.leads


def _key(path: str) -> Key:
    parts = path.split("/")
    return parts[4], parts[6]
