"""Kubernetes Events about a notebook: its change, its request, its pod that was made again or not made.

`kubectl describe notebook` and the notebook's page in Kubeflow's dashboard show them.

An Event's name follows from the notebook's uid, the reason and the words, so one that is sent again, by any
replica, exists already (409). It is sent before `bitfusion.io/pending` is written: the other order could lose
it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bitfusion_client.kubernetes.names import PODS_WEBHOOK
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU
from bitfusion_client.request.decimals import plain_number
from bitfusion_cluster.api.events import NORMAL, WARNING, Said, about, event_object
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal

PENDING = "BitfusionChangePending"
APPLIED = "BitfusionChangeApplied"
WITHDRAWN = "BitfusionChangeWithdrawn"
REFUSED = "BitfusionRequestRefused"
REMADE = "BitfusionPodRemade"
INJECTOR_AWAY = "BitfusionInjectorAway"
INJECTOR_BACK = "BitfusionInjectorBack"
QUOTA_EXCEEDED = "BitfusionQuotaExceeded"

COMPONENT = "bitfusion-notebook-controller"


def change_pending(text: str) -> Said:
    """`text` as `PendingChange` has it: ``1 GPU instead of 2 GPUs, from the next start``."""
    return Said(
        NORMAL,
        PENDING,
        f"Bitfusion: {text}. To apply it, stop and start the notebook when it suits you; it is not "
        "restarted automatically.",
    )


def change_applied(size: str) -> Said:
    """`size` is what the notebook has: ``1 GPU × 50 %``, or ``no GPU``.

    True of one that runs and of one that is stopped: it may be started while this is told, and two wordings
    would be two Events.
    """
    return Said(
        NORMAL,
        APPLIED,
        f"The change has been made: from now on this notebook starts with {size} of Bitfusion.",
    )


def change_withdrawn(size: str) -> Said:
    """The change was taken back before the next start; `size` is what the notebook keeps."""
    return Said(NORMAL, WITHDRAWN, f"The Bitfusion change is no longer pending: this notebook keeps {size}.")


def request_refused(message: str) -> Said:
    """`message` is the refusal that a form would have shown."""
    return Said(WARNING, REFUSED, f"{message} Until this is corrected, the notebook gets no Bitfusion GPU.")


def pod_remade() -> Said:
    """A pod that could never start was deleted, so that the StatefulSet makes a right one."""
    return Said(
        NORMAL,
        REMADE,
        "This notebook's pod was made without the Bitfusion client and could never have started. "
        "It is being created again; nothing that was running was stopped.",
    )


def injector_away(since: datetime) -> Said:
    """The API server refused the pod, because nobody could put the client into it.

    `since`: when that was noticed, in UTC; so that another absence is another Event.
    """
    return Said(
        WARNING,
        INJECTOR_AWAY,
        "This notebook cannot start yet: it asks for GPUs of Bitfusion, and the program that puts the client "
        f"into its pod, the pod injector, does not answer the cluster (noticed at {_time(since)}). It starts "
        "by itself within seconds once the injector is back. Administrators: this is the webhook "
        f"{PODS_WEBHOOK}.",
    )


def injector_back(since: datetime) -> Said:
    """The pod that was refused has been made; `since` as of `injector_away`."""
    return Said(
        NORMAL,
        INJECTOR_BACK,
        f"The pod injector of Bitfusion, which was away at {_time(since)}, responds again: this notebook's "
        "pod has been created.",
    )


def quota_exceeded(namespace: str, refusal: QuotaRefusal) -> Said:
    """The API server refused the pod, because the namespace's quota of units is used up.

    Kubeflow tells the API server's own words on the Notebook, after each try; `occasion` is that try.
    """
    asks = f"this notebook asks for {refusal.requested}"
    if not refusal.limited:
        found = f"namespace {namespace} may not use units of Bitfusion, but {asks}"
        cure = f"ask your administrator for units (quota {refusal.quota})"
    elif refusal.requested > refusal.limited:
        found = f"namespace {namespace} may have {_units(refusal.limited)} of Bitfusion at a time, but {asks}"
        cure = (
            "stop it, choose a smaller size and start it again, or ask your administrator for more units "
            f"(quota {refusal.quota})"
        )
    else:
        found = (
            f"namespace {namespace} may have {_units(refusal.limited)} of Bitfusion at a time, "
            f"{refusal.used} are taken, and {asks}. It starts automatically once enough are free"
        )
        cure = f"stop another notebook, or ask your administrator for more units (quota {refusal.quota})"
    return Said(
        WARNING,
        QUOTA_EXCEEDED,
        f"This notebook cannot start: {found}. What to do: {cure}.",
        refusal.when,
    )


def _units(units: int) -> str:
    gpus = plain_number(units / UNITS_PER_GPU)
    return f"{units} units ({gpus} {'GPU' if gpus == '1' else 'GPUs'})"


def _time(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def event_body(notebook: NotebookRecord, said: Said, reporter: str = "") -> dict[str, Any]:
    """The Event to be created, reported by the replica `reporter`."""
    whom = about("kubeflow.org/v1", "Notebook", notebook.namespace, notebook.name, notebook.uid)
    return event_object(whom, said, COMPONENT, reporter)
