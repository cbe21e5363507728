"""A GPU pod from its making until its program's container runs: each stage is told."""

from __future__ import annotations

import time

from bitfusion_client.errors import ClusterUnusable, PodRefused
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_pods.api.client import ApiError, ApiUnreachable, path, pods
from bitfusion_pods.command.waiting import UNASKED
from bitfusion_pods.places import kueue, stages
from bitfusion_pods.places.deaths import remembering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from bitfusion_pods.api.client import Api
    from bitfusion_pods.command.waiting import Waiting

MOST_EVENTS = 500
EVENTS_PAUSE = 2.0
"""Seconds between two looks at a pod's events."""
ANEW_PAUSE = 1.0
"""Seconds before a watch is begun anew that was lost."""
_TOO_OLD = 410


class Following:
    """That of one pod.

    Args:
        api: For the cluster.
        pod: As the API has made it.
        gpus: The resources by which it asks for GPUs.
        waiting: Hears what it waits for, and has an end.
        patience: With what may pass by itself.
    """

    def __init__(
        self,
        api: Api,
        pod: dict[str, Any],
        gpus: Sequence[str],
        waiting: Waiting,
        patience: stages.Patience = stages.PATIENCE,
    ) -> None:
        self._api = api
        self.pod = pod
        """As it was seen last; empty when it is gone."""
        self._gpus = gpus
        self._waiting = waiting
        self._patience = patience
        metadata = metadata_of(pod)
        self._namespace, self._name, self._uid = (
            text(metadata.get(each)) for each in ("namespace", "name", "uid")
        )
        self._events: object = []
        self._events_at = 0.0
        self._place: kueue.Place | None = None
        self._held: kueue.Held | None = None
        self._place_at = self._place_pause = 0.0

    def until_it_runs(self) -> stages.Stage:
        """The stage that ends the wait: it runs, or never will. Raises WaitTimedOut."""
        told = stages.Stages(self._gpus, self._patience)
        for pod in self._versions():
            if not pod:
                return stages.Stage(
                    stages.ENDED, f"the pod {self._name} was deleted before its program started"
                )
            stage = told.of(pod, self._events, time.time())
            if stage.kind in (stages.WAITS, stages.STARTS) and self._look_at_events():
                stage = told.of(pod, self._events, time.time())
            if stage.kind not in (stages.WAITS, stages.STARTS):
                return stage
            place = None
            if stage.kind == stages.WAITS:
                if kueue.is_gated(pod):
                    stage = self._in_queue(kueue.queue_of(pod))
                    place = self._place
                    if stage.kind == stages.FAILED:
                        return stage
                self._waiting.check(stage.words)
            self._waiting.telling.waits(stage.words, place)
        raise AssertionError

    def _in_queue(self, queue: str) -> stages.Stage:
        """What Kueue says of a pod that it holds; asked now and then."""
        now = time.monotonic()
        if now >= self._place_at:
            self._place_pause = kueue.next_pause(self._place_pause)
            self._place_at = now + self._place_pause
            self._place, self._held = self._ask_place(queue), self._ask_why()
        held = self._held
        if held is not None and held.never:
            return stages.Stage(stages.FAILED, f"Kueue: {held.words}", held.next_step.format(queue))
        return stages.Stage(stages.WAITS, kueue.place_words(self._place, queue, held))

    # -- what the API says ---------------------------------------------------------------------------

    def _versions(self) -> Iterator[dict[str, Any]]:
        """The pod as it is now, at each change and once a second; empty when it is gone."""
        way = pods(self._namespace, fieldSelector=f"metadata.name={self._name}")
        while self.pod:
            yield self.pod
            version = text(metadata_of(self.pod).get("resourceVersion"))
            try:
                for event in self._api.watch(way, version):
                    if event is not None:
                        gone = event.get("type") == "DELETED"
                        seen = {} if gone else dict(mapping(event.get("object")))
                        self.pod = remembering(seen, self.pod)
                    yield self.pod
                    if not self.pod:
                        return
            except (ApiError, ApiUnreachable, ClusterUnusable) as error:
                if not isinstance(error, ApiError):
                    self._waiting.pause(UNASKED.format(error))
                elif error.status != _TOO_OLD:
                    raise PodRefused("", f"its pod cannot be watched: {error}") from None
                else:
                    time.sleep(ANEW_PAUSE)
            self._refresh()
        yield {}

    def _refresh(self) -> None:
        while True:
            try:
                found = self._api.find(pods(self._namespace, self._name)) or {}
                self.pod = remembering(found, self.pod)
            except ApiError:  # as the watch will be
                return
            except (ApiUnreachable, ClusterUnusable) as error:
                self._waiting.pause(UNASKED.format(error))
            else:
                return

    def _look_at_events(self) -> bool:
        now = time.monotonic()
        if now < self._events_at:
            return False
        self._events_at = now + EVENTS_PAUSE
        found = self._events_about("uid", self._uid)
        if found is not None:
            self._events = found
        return found is not None

    def _events_about(self, field: str, value: str) -> object:
        """Those of objects of which this field is this; None: they cannot be read."""
        way = path(
            *("api", "v1", "namespaces", self._namespace, "events"),
            fieldSelector=f"involvedObject.{field}={value}",
            limit=MOST_EVENTS,
        )
        return mapping(self._find_first(iter((way,)))).get("items")

    def _ask_place(self, queue: str) -> kueue.Place | None:
        found = self._find_first(
            kueue.pending_path(self._namespace, queue, version) for version in kueue.VERSIONS
        )
        return kueue.place_of(found, self._uid)

    def _ask_why(self) -> kueue.Held | None:
        """From the pod's Workload where this account may read it, else from events."""
        found = self._find_first(
            kueue.workloads_path(self._namespace, self._uid, version) for version in kueue.VERSIONS
        )
        for workload in mappings(mapping(found).get("items")):
            return kueue.held_by(workload)
        return kueue.held_in_events(self._events_about("kind", "Workload"), self._name)

    def _find_first(self, ways: Iterator[str]) -> dict[str, Any] | None:
        for way in ways:
            try:
                found = self._api.find_readable(way)
            except (ApiError, ApiUnreachable, ClusterUnusable):
                return None
            if found is not None:
                return found
        return None
