"""Names in Kubernetes: resources, annotations, labels."""

from __future__ import annotations

GROUP = "bitfusion.io/"

# Resources. The unit, percent × amount, is what is scheduled and counted in quotas; nobody asks by it.
RESOURCE_UNITS = "bitfusion.io/gpu"
QUOTA_UNITS = f"requests.{RESOURCE_UNITS}"  # of a ResourceQuota
SIZE_PREFIX = "bitfusion.io/gpu-"
RESOURCE_AMOUNT = "bitfusion.io/gpu-amount"
RESOURCE_PERCENT = "bitfusion.io/gpu-percent"
RESOURCE_MEMORY = "bitfusion.io/gpu-memory"

# Annotations that VMware's injector reads.
ANNOTATION_MANAGEMENT = "auto-management/bitfusion"
ANNOTATION_CLIENT_OS = "bitfusion-client/os"
ANNOTATION_CLIENT_VERSION = "bitfusion-client/version"
ANNOTATION_FILTER = "bitfusion-client/filter"
MANAGEMENT_INJECTION = "injection"  # inject the client, leave the command alone
MANAGEMENT_NONE = "none"  # leave the pod alone

# Annotations and labels of this project.
ANNOTATION_REQUEST = "bitfusion.io/request"
ANNOTATION_PENDING = "bitfusion.io/pending"  # on a Notebook: the change that its next start will apply
ANNOTATION_RUNNING = "bitfusion.io/running-request"  # beside it: the size that the notebook runs with
ANNOTATION_GPU_IMAGE = "bitfusion.io/gpu-image"  # of its GPU pods, before the admin's list is asked
ANNOTATION_RETRY = "bitfusion.io/retry"  # touched to make a StatefulSet try a refused pod again
LABEL_REQUESTED = "bitfusion.io/requested"  # "true" on objects that ask for GPUs, for object selectors
LABEL_ADMISSION = "bitfusion.io/admission"  # "ignore" on a Notebook: it is left alone
ADMISSION_IGNORE = "ignore"
QUEUE_GATE = "bitfusion.io/queue"  # scheduling gate: the pod waits until its units of the pool are free
QUEUE_CONDITION = "bitfusion.io/PoolUnits"  # of a pod: False while it waits, with why; True once lifted
PODS_WEBHOOK = "pods.bitfusion.io"  # the injector's, as the API server names it when it does not answer


def is_size_resource(name: str) -> bool:
    """Whether a resource asks for Bitfusion GPUs, in a known size or not. The scheduled unit does not."""
    return name.startswith(SIZE_PREFIX)


def is_gpu_resource(name: str) -> bool:
    """Whether a resource in a Notebook is this project's to judge: all that begins as `RESOURCE_UNITS` does.

    Letters of any case, so that ``bitfusion.io/GPU-50`` and ``bitfusion.io/gpus`` are told that they are no
    sizes. Other resources of the group may be somebody else's.
    """
    return name[: len(RESOURCE_UNITS)].lower() == RESOURCE_UNITS
