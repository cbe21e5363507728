"""How many units of the pool were taken at each moment of a test, as the API server's own history tells.

Counted are pods with units that have no gate of the queue's, with a node or not yet, until they are gone or
finished: more than the queue may ever let through. The count is by hand, not by the code under test.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.follow import Follower, Key, key_of

UNITS = "bitfusion.io/gpu"
GATE = "bitfusion.io/queue"


@dataclass(frozen=True)
class Peak:
    """The most units at once: of pods that were let through, and of those among them that had a node."""

    lifted: int = 0
    bound: int = 0


class UnitsOverTime:
    """Watches all pods from its start to its end, over restarts of the API server too. A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client_as(cluster.token, "units-over-time")
        self._follower = Follower(self._client, "/api/v1/pods", self._changed)
        self._lock = threading.Lock()
        self._lifted: dict[Key, int] = {}
        self._bound: dict[Key, int] = {}
        self._peak = Peak()
        self.changes = 0
        """How many events of pods were looked at."""

    def __enter__(self) -> UnitsOverTime:
        self._follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.stop()

    @property
    def peak(self) -> Peak:
        """So far."""
        with self._lock:
            return self._peak

    def _changed(self, kind: str, pod: Object) -> None:
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
        over = kind == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed")
        units = 0 if over or GATE in gates else _units(pod)
        with self._lock:
            self.changes += 1
            self._lifted[key_of(pod)] = units
            self._bound[key_of(pod)] = units if pod["spec"].get("nodeName") else 0
            self._peak = Peak(
                max(self._peak.lifted, sum(self._lifted.values())),
                max(self._peak.bound, sum(self._bound.values())),
            )


def _units(pod: Object) -> int:
    """Of these tests' pods: one container asks, and no init container."""
    limits = [each.get("resources", {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return sum(int(each.get(UNITS, 0)) for each in limits)
