"""Kubernetes Events about a notebook: change pending, applied, withdrawn; request refused; pod made again.

`kubectl describe notebook` and the notebook's page in Kubeflow's dashboard show them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from notebook_controller_patch.reconcile.records import NotebookRecord

NORMAL, WARNING = "Normal", "Warning"

PENDING = "BitfusionChangePending"
APPLIED = "BitfusionChangeApplied"
WITHDRAWN = "BitfusionChangeWithdrawn"
REFUSED = "BitfusionRequestRefused"
REMADE = "BitfusionPodRemade"

COMPONENT = "bitfusion-notebook-controller"
LONGEST_MESSAGE = 1024  # of an Event, by the API


@dataclass(frozen=True, slots=True)
class NotebookEvent:
    """One Event about a notebook; `type` is ``Normal`` or ``Warning``."""

    type: str
    reason: str
    message: str


def change_pending(text: str) -> NotebookEvent:
    """`text` as `PendingChange` has it: ``1 GPU instead of 2 GPUs, from the next start on``."""
    return NotebookEvent(
        NORMAL,
        PENDING,
        f"Bitfusion: {text}. Stop and start the notebook when it suits you; it is not restarted for this.",
    )


def change_applied(size: str, running: bool) -> NotebookEvent:
    """`size` is what the notebook has: ``1 GPU × 50 %``, or ``no GPU``."""
    when = "This notebook now has" if running else "From its next start on this notebook has"
    return NotebookEvent(NORMAL, APPLIED, f"{when} {size} of Bitfusion.")


def change_withdrawn(size: str) -> NotebookEvent:
    """The change was taken back before the next start; `size` is what the notebook keeps."""
    return NotebookEvent(
        NORMAL, WITHDRAWN, f"No Bitfusion change is pending any more: this notebook keeps {size}."
    )


def request_refused(message: str) -> NotebookEvent:
    """`message` is the refusal that a form would have shown."""
    return NotebookEvent(
        WARNING, REFUSED, f"{message} Until this is corrected the notebook gets no GPU of Bitfusion."
    )


def pod_remade() -> NotebookEvent:
    """A pod that could never start was deleted, so that the StatefulSet makes a right one."""
    return NotebookEvent(
        NORMAL,
        REMADE,
        "This notebook's pod was made without the Bitfusion client and could never have started. "
        "It is made again; nothing that ran was stopped.",
    )


def event_body(notebook: NotebookRecord, event: NotebookEvent, reporter: str = "") -> dict[str, Any]:
    """The Event (core/v1) to be created, reported by the replica `reporter`.

    Its name follows from the notebook's uid and from reason and message: sent again, it exists already (409),
    so a repeat is never a second Event. The API server forgets Events after an hour or so.
    """
    content = "\0".join((notebook.uid, event.reason, event.message))
    name = f"{notebook.name[:200]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = event.message
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": notebook.namespace, "name": name},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "Notebook",
            "namespace": notebook.namespace,
            "name": notebook.name,
            "uid": notebook.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": reporter[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
