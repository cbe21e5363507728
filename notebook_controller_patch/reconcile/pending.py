"""Pending changes: what the next start of a running notebook will change, for a person and as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.annotations import format_request_annotation
from bitfusion_client.kubernetes.carried_annotations import is_carried_annotation
from bitfusion_client.kubernetes.names import ANNOTATION_PENDING, ANNOTATION_RUNNING
from bitfusion_client.kubernetes.request import request_from_kubernetes
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_cluster.notebooks.notebook_record import ContainerRecord

LONGEST_TEXT = 400  # characters
NO_GPU = "no GPU"
NO_SIZE = "none"  # the value of `bitfusion.io/running-request` without GPUs


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that waits for the next start, as two annotations of the Notebook keep it.

    Attributes:
        text: ``bitfusion.io/pending``, for a person: ``1 GPU instead of 2 GPUs, from the next start``.
        running_size: ``bitfusion.io/running-request``, the size that the notebook runs with, as `size_text`
            spells it; None if the size is not what changes, or if the running one cannot be
            read or is very long.
    """

    text: str
    running_size: str | None = None

    def annotations(self) -> dict[str, str]:
        """What is written on the Notebook."""
        written = {ANNOTATION_PENDING: self.text}
        if self.running_size is not None:
            written[ANNOTATION_RUNNING] = self.running_size
        return written


def noted_change(annotations: Mapping[str, str]) -> PendingChange | None:
    """The change that the annotations of a Notebook say is pending; None if they name none."""
    text = annotations.get(ANNOTATION_PENDING)
    return None if text is None else PendingChange(text, annotations.get(ANNOTATION_RUNNING))


def pending_change(
    request: GpuRequest | None,
    template: Mapping[str, str],
    current: Mapping[str, Any],
    containers: Sequence[ContainerRecord],
) -> PendingChange | None:
    """What the next start will change; None when nothing is pending.

    Args:
        request: What the Notebook asks for.
        template: The annotations that the template would get now, were the notebook stopped.
        current: Those with which the notebook runs.
        containers: Of the notebook's StatefulSet.
    """
    names = sorted(
        name
        for name in {*current, *template}
        if is_carried_annotation(name) and current.get(name) != template.get(name)
    )
    if not names:
        return None
    running_size: str | None
    try:
        running = _running_request(current, containers)
        before, running_size = describe(running), size_text(running)
        if len(running_size) > LONGEST_TEXT:
            running_size = None
    except InvalidRequest:
        before, running_size = "a wrong size", None
    after = describe(request)
    if after != before:
        return PendingChange(_sentence(f"{after} instead of {before}"), running_size)
    return PendingChange(_sentence(", ".join(_difference(name, current, template) for name in names)))


def describe(request: GpuRequest | None) -> str:
    """A request for a person: ``2 GPUs × 50 %``, or ``no GPU``."""
    return request.describe() if request else NO_GPU


def size_text(request: GpuRequest | None) -> str:
    """A request as the annotations spell it, ``-n 2 -p 0.5``; ``none`` without GPUs."""
    return format_request_annotation(request) if request else NO_SIZE


def _running_request(current: Mapping[str, Any], containers: Sequence[ContainerRecord]) -> GpuRequest | None:
    limits: dict[str, str] = {}
    for container in containers:
        limits.update((name, str(value)) for name, value in container.limits)
    return request_from_kubernetes(limits, current)


def _difference(name: str, current: Mapping[str, Any], template: Mapping[str, str]) -> str:
    if name not in template:
        return f"without {name}"
    instead = f" instead of {current[name]}" if name in current else ""
    return f"{name} {template[name]}{instead}"


def _sentence(change: str) -> str:
    change = " ".join(change.split())
    if len(change) > LONGEST_TEXT:
        change = change[: LONGEST_TEXT - 1] + "…"
    return change + ", from the next start"
