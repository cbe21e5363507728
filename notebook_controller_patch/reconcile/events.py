"""What a person is told about a notebook: Kubernetes Events, in words of the notebook, one for each change.

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
class Tell:
    """One thing to tell about a notebook; `kind` is ``Normal`` or ``Warning``."""

    kind: str
    reason: str
    message: str


def change_pending(text: str) -> Tell:
    """`text` as `pending_change` words it: ``1 GPU instead of 2 GPUs, from the next start on``."""
    return Tell(
        NORMAL,
        PENDING,
        f"Bitfusion: {text}. Stop and start the notebook when it suits you; it is not restarted for this.",
    )


def change_applied(now: str, running: bool) -> Tell:
    """`now` is what the notebook has: ``1 GPU × 50 %``, or ``no GPU``."""
    when = "This notebook now has" if running else "From its next start on this notebook has"
    return Tell(NORMAL, APPLIED, f"{when} {now} of Bitfusion.")


def change_withdrawn(now: str) -> Tell:
    """The change was taken back before the next start."""
    return Tell(NORMAL, WITHDRAWN, f"No Bitfusion change waits any more: this notebook keeps {now}.")


def request_refused(words: str) -> Tell:
    """`words` are those of the refusal a form would have shown."""
    return Tell(WARNING, REFUSED, f"{words} Until this is corrected the notebook gets no GPU of Bitfusion.")


def pod_remade() -> Tell:
    """A pod that could never start was deleted, so that the StatefulSet makes a right one."""
    return Tell(
        NORMAL,
        REMADE,
        "This notebook's pod was made without the Bitfusion client and could never have started. "
        "It is made again; nothing that ran was stopped.",
    )


def event_body(notebook: NotebookRecord, tell: Tell, reporter: str = "") -> dict[str, Any]:
    """The Event (core/v1) of a notebook.

    Its name follows from the notebook's uid and from what is said: said again, it is there already (409),
    so a repeat is never a second Event. The API server forgets Events after an hour or so.
    """
    content = "\0".join((notebook.uid, tell.reason, tell.message))
    name = f"{notebook.name[:200]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = tell.message
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
        "type": tell.kind,
        "reason": tell.reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": reporter[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
