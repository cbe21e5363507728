"""Reads one Notebook as it is now, for admission, which cannot wait for the watch to bring it.

Only the metadata are asked for: nothing else of a Notebook decides what its pods carry over, and one of
1.5 MiB, which any tenant can make, would cost several times as much while it is parsed.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import AnswerTooLarge, NoAnswer, NotFound
from bitfusion_cluster.api.paths import notebook_path
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record

# Also of objects of a CRD (kube-apiserver since 1.15); a server that knows it not sends the whole object.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
LARGEST = 1 << 20  # bytes; annotations have 256 KiB at most, managedFields repeat their keys
NO_SUCH_OBJECT = "NotFound"  # the Status's reason; a path that is not served (yet) is told without a Status


class LiveNotebook:
    """Asks the API server over kept connections; called by admission in threads, several at once."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        # One at a time: the interpreter parses no faster in two threads, but holds twice as much.
        self._parsing = threading.Lock()

    def __call__(self, namespace: str, name: str, within: float) -> NotebookRecord | None:
        """The Notebook's record without its containers, None if there is none of that name.

        Raises ApiFailure, NoAnswer among them after about `within` seconds.
        """
        deadline = time.monotonic() + within
        path = notebook_path(namespace, name)
        try:
            try:
                answer = self._ask(path, within)
            except AnswerTooLarge:
                raise
            except NoAnswer:
                # A kept connection may be closed by the server in the very moment in which it is used.
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                answer = self._ask(path, left)
        except NotFound as error:
            if error.reason == NO_SUCH_OBJECT:
                return None
            raise
        with self._parsing:
            record = notebook_record(_parsed(answer))
        if record is None:
            raise NoAnswer(answered="the answer is not a Notebook, or was cut off")
        return record

    def _ask(self, path: str, within: float) -> bytes:
        return self._api.get_text(path, METADATA_ONLY, within, LARGEST)


def _parsed(answer: bytes) -> dict[str, Any]:
    try:
        data = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
