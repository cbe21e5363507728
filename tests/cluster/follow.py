"""List, then watch, again and again: how the stubs learn what happens, whatever becomes of the server."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable

from tests.cluster.api_client import ApiClient, Object, Refused, Watch
from tests.support.machine import scaled

TROUBLE = (Refused, OSError, http.client.HTTPException)
"""What a request can raise while the apiserver is away or refuses it."""

_PAUSE_S = 0.2

Key = tuple[str, str]
"""Namespace and name."""


def key_of(thing: Object) -> Key:
    metadata = thing["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Follower:
    """Calls `changed(type, object)` from its own thread for each object of a list, then for each event.

    Types are ADDED, MODIFIED and DELETED; after a lost connection everything is told again as ADDED, and what
    went meanwhile as DELETED, as it last was.
    """

    def __init__(self, client: ApiClient, path: str, changed: Callable[[str, Object], None]) -> None:
        self._client = client
        self._path = path
        self._changed = changed
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._ending = threading.Event()
        self._known: dict[Key, Object] = {}
        self._thread = threading.Thread(target=self._run, name=f"follow {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; `changed` is not called any more when this returns."""
        self._ending.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
        self._thread.join(scaled(30))
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                listed = self._client.get(self._path)
                there = {key_of(each) for each in listed["items"]}
                for gone in [self._known[key] for key in self._known.keys() - there]:
                    self._tell("DELETED", gone)
                for each in listed["items"]:
                    self._tell("ADDED", each)
                version = listed["metadata"]["resourceVersion"]
                while version and not self._ending.is_set():
                    version = self._follow(version)
            except TROUBLE:
                self._ending.wait(_PAUSE_S)

    def _tell(self, kind: str, thing: Object) -> None:
        if kind == "DELETED":
            self._known.pop(key_of(thing), None)
        else:
            self._known[key_of(thing)] = thing
        self._changed(kind, thing)

    def _follow(self, version: str) -> str:
        """One watch; returns the version to go on from, empty when everything must be listed anew."""
        with self._client.watch(self._path, resourceVersion=version, allowWatchBookmarks="true") as watch:
            with self._lock:
                self._watch = watch
            if self._ending.is_set():
                return ""
            try:
                for event in watch:
                    if self._ending.is_set() or event["type"] == "ERROR":
                        return ""
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._tell(event["type"], event["object"])
            finally:
                with self._lock:
                    self._watch = None
        return version
