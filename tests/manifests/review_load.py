"""Notebooks that are created without a pause, as dry runs, and how many of them no webhook has seen."""

from __future__ import annotations

import threading
import time

from tests.cluster.api_client import Object, Refused
from tests.cluster.notebooks import Room
from tests.support.waiting import wait_until

SEEN = "auto-management/bitfusion"  # the annotation that admission writes
THREADS = 2


class ReviewLoad:
    """Runs while it is entered. A review that is lost is a Notebook that came back without its annotations.

    `lost` has for each one when it came back, in seconds since the load began.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(THREADS)]
        self._began = 0.0
        self.asked = 0
        self.lost: list[float] = []
        self.trouble: list[str] = []

    def __enter__(self) -> ReviewLoad:
        wait_until(self.seen, "the webhook is called", 30)
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def more(self, reviews: int) -> None:
        """Wait for so many further reviews: what was changed before has met them."""
        goal = self.asked + reviews
        wait_until(lambda: self.asked >= goal, f"{reviews} more reviews", 60)

    def seen(self) -> bool:
        """Create one; whether a webhook has seen it."""
        limits = {"bitfusion.io/gpu-50": "1"}
        container = {"name": "load", "image": "i", "resources": {"limits": limits}}
        notebook: Object = {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Notebook",
            "metadata": {"name": "load"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }
        made = self._room.client.create(self._room.notebooks, notebook, dryRun="All")
        return SEEN in (made["metadata"].get("annotations") or {})

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                seen = self.seen()
            except (Refused, OSError) as error:
                with self._lock:
                    self.trouble.append(repr(error))
                return
            with self._lock:
                self.asked += 1
                if not seen:
                    self.lost.append(round(time.monotonic() - self._began, 1))
