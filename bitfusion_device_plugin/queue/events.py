"""The Events of the queue: on the Notebook of a pod where there is one, else on the pod itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.raw_objects import NOTEBOOK_KIND, metadata_of, text
from bitfusion_cluster.api.events import event_object
from bitfusion_device_plugin.queue.names import DEFAULT_NAME, EVENT_PREFIX
from bitfusion_device_plugin.queue.pod_states import QueuedPod
from bitfusion_device_plugin.queue.words import Words


def event_about(pod: QueuedPod, notebook: Mapping[str, Any] | None) -> dict[str, str]:
    """Whom an Event is about: this raw Notebook, or the pod where there is none."""
    uid = text(metadata_of(notebook).get("uid")) if notebook is not None else ""
    if notebook is None or not uid:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
    return {
        "apiVersion": text(notebook.get("apiVersion")) or "kubeflow.org/v1",
        "kind": NOTEBOOK_KIND,
        "namespace": pod.namespace,
        "name": pod.notebook,
        "uid": uid,
    }


def event_body(about: Mapping[str, str], kind: str, words: Words, replica: str) -> dict[str, Any]:
    """The Event to be created. Its name follows from whom it is about and from its reason.

    So there is one for each reason, however often a notebook waits: positions change, reasons seldom.
    """
    reason = EVENT_PREFIX + words.reason
    return event_object(about, kind, reason, words.message, DEFAULT_NAME, replica, one_for_its_reason=True)
