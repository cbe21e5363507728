"""What keeps a node from starting the pod: the image, the volumes, the container; in plain words. Pure.

Sources as in `stages`; the words of the registries are containerd's (core/remotes/docker, core/transfer).
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from bitfusion_pods.places.events import PodEvent

_ASK = "ask your administrator"
_LONGEST = 120  # of what somebody else has said

IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
_CONTAINER_REASONS = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
)
_HOOK_REASONS = ("PreCreateHookError", "PreStartHookError", "PostStartHookError")
_PASSES = ("failed to sync", "context deadline exceeded", "failed to reserve container name")
"""Parts of what a kubelet says that it tries again with success: its caches are new, its runtime is slow."""

NO_CLAIM = "FailedResourceClaimCreation"
"""Of a pod at which no scheduler looks then (pkg/controller/resourceclaim/controller.go)."""

_MOUNT_REASONS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_NODE_REASONS = (
    "FailedCreatePodSandBox",
    "FailedPodSandBoxStatus",
    "NetworkNotReady",
    "FailedPrepareDynamicResources",
)
_PROGRESS_REASONS = ("Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the node has not started it.

    Attributes:
        words: What is wrong.
        next_step: What to do.
        passes: The kubelet tries again, often with success.
        meanwhile: What to say until it has lasted too long; empty: nothing.
    """

    words: str
    next_step: str
    passes: bool = False
    meanwhile: str = ""


def newest(events: list[PodEvent]) -> PodEvent | None:
    """The newest that tells how the start goes on; of those that come in one second, the trouble last.

    A mount that has failed and then succeeded leaves its event behind: what comes after it is newer.
    """
    known = (*_MOUNT_REASONS, *_NODE_REASONS, *_PROGRESS_REASONS)
    return next((event for event in events if event.reason in known), None)


def event_trouble(event: PodEvent, node: str, pod: str) -> Trouble | None:
    """What an event says is wrong; None: nothing. `pod` is the pod's name, and its Secret's."""
    said, node = one_line(event.message, _LONGEST), node or "its node"
    if event.reason in _MOUNT_REASONS:
        return _volumes(event.message, said, pod)
    if event.reason == "FailedPrepareDynamicResources":
        told = f"{node} cannot prepare its devices: {said}"
        return Trouble(told, f"{_ASK} about the device driver.", True, "its devices are being prepared")
    if event.reason in _NODE_REASONS:
        if "no runtime for" in event.message:
            handler = one_line(event.message.partition("no runtime for ")[2].partition(" is")[0], 60)
            told = f"{node} has no container runtime {handler}"
            return Trouble(told, f"{_ASK}: the rule's runtimeClassName names it.")
        told = f"{node} cannot set up its network: {said}"
        return Trouble(told, f"{_ASK} about the node's network plugin.", True, "its network is being set up")
    return None


def _volumes(message: str, said: str, pod: str) -> Trouble:
    meanwhile = "its volumes are being attached"
    volume = one_line(message.partition('volume "')[2].partition('"')[0], 60)
    if "Multi-Attach error" in message:
        told = f"the volume {volume} is in use on another node, and only one node can mount it"
        cure = (
            "use a volume for many nodes (ReadWriteMany) as home, let GPU pods run on the notebook's node, "
            "or start the notebook on a GPU node."
        )
        return Trouble(told, cure, True, meanwhile)
    if pod and f'secret "{pod}" not found' in message:
        # made a moment after the pod: until it has lasted too long it is nothing to be told
        told = f"the pod's Secret {pod} does not exist: somebody deleted it"
        return Trouble(told, "run the cells again from the first one.", True, "")
    for kind in ("configmap", "secret"):
        if f'{kind} "' in message and "not found" in message:
            name = one_line(message.partition(f'{kind} "')[2].partition('"')[0], 60)
            told = f'the {kind} "{name}", which the pod mounts, does not exist'
            return Trouble(told, f"it was there when the notebook started: {_ASK}.", True, meanwhile)
    what = f"the volume {volume}" if volume else "its volumes"
    why = one_line(message.rpartition(" : ")[2] or said, _LONGEST)
    return Trouble(f"{what} cannot be mounted: {why}", f"{_ASK} about the storage.", True, meanwhile)


def claim_trouble(message: str) -> Trouble:
    """Why a pod's ResourceClaim is not made, as an event `NO_CLAIM` says."""
    said = one_line(message.partition(": ")[2] or message, _LONGEST)
    name = message.partition('resource claim template "')[2].partition('"')[0]
    if name and message.endswith("not found"):
        told = f'the ResourceClaimTemplate "{one_line(name, 60)}" is not in this namespace'
        return Trouble(
            told,
            f"{_ASK} for the ResourceClaimTemplates of the rules for GPU pods, which each namespace needs.",
        )
    return Trouble(
        f"its ResourceClaim cannot be created: {said}", f"{_ASK} about the device driver.", passes=True
    )


def container_trouble(reason: str, message: str, node: str) -> Trouble | None:
    """What a waiting container says is wrong; None: nothing, it is being made."""
    node = node or "its node"
    if reason in IMAGE_REASONS:
        return _image(reason, message, node)
    if reason in _CONTAINER_REASONS or reason in _HOOK_REASONS:
        passes = any(part in message for part in _PASSES)
        found = _config(message)
        return Trouble(found.words, found.next_step, passes) if passes else found
    return None


_IMAGE_TEXTS = (
    # parts of what is said, in small letters; words; what to do; the first that fits tells most
    (
        ("no such host", "dial tcp", "i/o timeout", "connection refused", "x509", "tls: "),
        "{node} cannot reach the registry of the image {image}",
        f"run the cell again; if that does not help, {_ASK} about the node's network.",
    ),
    (
        ("unauthorized", "authentication required", "access denied", "forbidden"),
        "the registry does not let this pod pull the image {image}",
        "the notebook's imagePullSecrets are those of its GPU pod: they may have expired.",
    ),
    (
        ("no space left",),
        "{node} has no space for the image {image}",
        f"{_ASK} to clean up the node's disk.",
    ),
    (
        ("no match for platform",),
        "the image {image} is not built for the processor of {node}",
        f"{_ASK} for a GPU image in the settings for GPU pods.",
    ),
    (
        ("not found", "manifest unknown"),
        "the image {image} is no longer in its registry",
        "choose another image for the notebook, or push this one again.",
    ),
)


def _image(reason: str, message: str, node: str) -> Trouble:
    image = one_line(message.partition('image "')[2].partition('"')[0], _LONGEST) or "of the pod"
    low = message.lower()
    if reason == "InvalidImageName" or "invalid reference format" in low:
        return Trouble(f"the image's name is not valid: {one_line(message, _LONGEST)}", f"{_ASK}.")
    if reason == "ErrImageNeverPull":
        cure = f"{_ASK}: the image must be loaded on the GPU nodes, or imagePullPolicy changed."
        return Trouble(f"the image {image} is not on {node} and may not be pulled", cure)
    for parts, told, cure in _IMAGE_TEXTS:
        if any(part in low for part in parts):
            return Trouble(told.replace("{node}", node).replace("{image}", image), cure)
    why = one_line(message, _LONGEST) or reason
    return Trouble(f"{node} cannot pull the image: {why}", f"{_ASK} about the image and its registry.")


def _config(message: str) -> Trouble:
    for kind in ("configmap", "secret"):
        if f'{kind} "' in message and "not found" in message:
            name = one_line(message.partition(f'{kind} "')[2].partition('"')[0], 60)
            told = f'the {kind} "{name}", from which the pod takes a variable, does not exist'
            return Trouble(told, f"it was there when the notebook started: {_ASK}.")
    if "runAsNonRoot" in message:
        told = (
            "the image would run as root, or as a user without a numeric id, "
            "which the pod must not do (runAsNonRoot)"
        )
        return Trouble(told, "choose an image with a numeric user id, or set runAsUser for the notebook.")
    return cannot_run(message)


def cannot_run(message: str) -> Trouble:
    """The container could not be started at all."""
    said = one_line(message, _LONGEST)
    if '"/bin/sh"' in message or "`/bin/sh`" in message:  # runc's words, and crun's
        told = "the image has no shell (/bin/sh), which a GPU pod needs to start"
        return Trouble(told, "choose a notebook image with /bin/sh and Python 3.10 or newer.")
    if "nvidia-container-cli" in message or "nvidia-container-runtime" in message:
        why = one_line(message.rpartition("nvidia-container-cli: ")[2], _LONGEST)
        return Trouble(
            f"NVIDIA's runtime could not give the GPU to the container: {why}", f"{_ASK} about the node."
        )
    return Trouble(f"the container cannot be started: {said}", "give this message to your administrator.")
