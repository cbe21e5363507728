"""What the GPU pods of a notebook hold, for its budget and for people. Pure.

The annotation `pod_contract.ANNOTATION_HOLDS` says it. A user may write it, as all of an own pod: the budget
keeps one's own kernels from taking more than was meant, and is no wall; quotas are.
"""

from __future__ import annotations

from bitfusion_client.errors import WrongInput
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.annotations import parse_request_annotation
from bitfusion_client.kubernetes.raw_objects import annotations_of, labels_of, mapping, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import ANNOTATION_HOLDS, LABEL_GPU_POD_OF
from bitfusion_client.request.gpu_request import GpuRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

OVER = ("Succeeded", "Failed")
"""Phases in which the scheduler counts a pod's GPUs no more."""

MOST_PODS = 2000  # that are looked at; a namespace with so many has other problems
LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """Of one notebook's pod.

    Attributes:
        requests: What each GPU pod holds, by the pod's name.
        unreadable: Names of GPU pods that do not say what they hold; they count as nothing.
    """

    requests: tuple[tuple[str, GpuRequest], ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def held(self) -> list[GpuRequest]:
        """Without the names, as `budget.fits` takes it."""
        return [request for _, request in self.requests]


def held_gpus(pods: Iterable[Mapping[str, Any]], notebook_uid: str, without: str = "") -> HeldGpus:
    """What the GPU pods of a notebook hold.

    Args:
        pods: Raw pods, such as those with the label `LABEL_GPU_POD_OF`; others are passed over.
        notebook_uid: Of the notebook's pod.
        without: The name of a pod that does not count: the one that the caller has just made.
    """
    requests, unreadable = [], []
    for pod in gpu_pods_of(pods, notebook_uid):
        name = one_line(text(metadata_of(pod).get("name")), LONGEST_NAME)
        if without and name == without:
            continue
        try:
            request = parse_request_annotation(annotations_of(pod).get(ANNOTATION_HOLDS))
        except WrongInput:
            unreadable.append(name)
        else:
            requests.append((name, GpuRequest(request.gpus, request.partial, request.memory_mib)))
    return HeldGpus(tuple(requests), tuple(unreadable))


def gpu_pods_of(pods: Iterable[Mapping[str, Any]], notebook_uid: str) -> list[Mapping[str, Any]]:
    """Those pods that a notebook's pod has made and that are not over, as far as one looks at so many.

    One that is being deleted counts: its GPU is free only when it is gone.
    """
    found: list[Mapping[str, Any]] = []
    for pod in pods:
        if len(found) == MOST_PODS:
            break
        phase = mapping(pod.get("status")).get("phase") if isinstance(pod, dict) else OVER[0]
        if phase not in OVER and notebook_uid and labels_of(pod).get(LABEL_GPU_POD_OF) == notebook_uid:
            found.append(pod)
    return found
