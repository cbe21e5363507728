"""A cache of watched objects that is a bit behind, as the informers of real controllers are."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from tests.cluster.api_client import ApiClient, Object
from tests.cluster.follow import Follower, Key, key_of
from tests.support.machine import scaled


class Informer:
    """Lists and watches a path; what it has learnt is in the cache, and told, `delay_s` seconds later.

    A watch brings an event within milliseconds; a controller with much to do sees it later. The order stays.
    """

    def __init__(
        self, client: ApiClient, path: str, changed: Callable[[Key], None], delay_s: float = 0.0
    ) -> None:
        self.delay_s = delay_s
        self._changed = changed
        self._objects: dict[Key, Object] = {}
        self._late: deque[tuple[float, str, Object]] = deque()
        self._condition = threading.Condition()
        self._ending = False
        self._follower = Follower(client, path, self._learn)
        self._thread = threading.Thread(target=self._run, name=f"informer {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._follower.start()

    def stop(self) -> None:
        self._follower.stop()
        with self._condition:
            self._ending = True
            self._condition.notify_all()
        self._thread.join(scaled(30))
        assert not self._thread.is_alive()

    def get(self, key: Key) -> Object | None:
        """The object as it was a moment ago; not to be changed."""
        return self._objects.get(key)

    def _learn(self, kind: str, thing: Object) -> None:
        with self._condition:
            self._late.append((time.monotonic() + self.delay_s, kind, thing))
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._ending and not self._late:
                    self._condition.wait()
                if self._ending:
                    return
                due, kind, thing = self._late[0]
                left = due - time.monotonic()
                if left > 0:
                    self._condition.wait(left)
                    continue
                self._late.popleft()
            key = key_of(thing)
            if kind == "DELETED":
                self._objects.pop(key, None)
            else:
                self._objects[key] = thing
            self._changed(key)
