"""What of the notebook's volumes the program's container mounts, and to which node they bind it. Pure.

| volume | in the GPU pod |
|---|---|
| claim, ReadWriteMany or ReadOnlyMany | the same claim, on any node |
| claim, ReadWriteOnce; a disk that is named in the pod | the same, on the notebook's node only |
| claim, ReadWriteOncePod | refused: no second pod ever gets it |
| emptyDir, configMap, secret, projected, downwardAPI, ephemeral | one of its own |
| hostPath | the same path, on whatever node: it is in use where all nodes have the same there (a mount of NFS, the time zone), and one that is not there fails with the kubelet's own words |
| nfs, csi and others that are not one node's | the same |
| the API's token, and what our injector has made | left out: both are made anew |

ReadWriteOnce means one node, not one pod, and the scheduler does not look at it: without a required affinity
the second pod waits for ever with "Multi-Attach error".
"""  # noqa: E501  # a row of a table is a line

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, CLIENT_VOLUME, IDENTITY_VOLUME
from bitfusion_pods.pod.cannot_copy import FilesElsewhere, NotebookUnusable, copy_of
from bitfusion_pods.pod.mount_paths import expanded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from bitfusion_client.gpu_pods.settings import PodSettings

OUR_VOLUMES = (CLIENT_VOLUME, IDENTITY_VOLUME)
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_VOLUMES = "kube-api-access-"

MANY, READERS, ONCE_POD = "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"
DISKS = (
    *(
        "awsElasticBlockStore",
        "azureDisk",
        "cinder",
        "fc",
        "gcePersistentDisk",
        "iscsi",
        "photonPersistentDisk",
    ),
    *("portworxVolume", "rbd", "scaleIO", "storageos", "vsphereVolume"),
)
"""Volumes named in the pod itself that one node has at a time; all but two of them are history."""

ONE_POD = "claim {} is ReadWriteOncePod: the notebook's pod uses it, and a second pod cannot"
ANOTHER_CLAIM = (
    "keep the files on a claim that is ReadWriteMany, or ReadWriteOnce with the notebook on a GPU node; "
    "this one's access mode cannot be changed, so copy the files."
)
ONLY_THERE = "{} can be mounted only on node {}, where the notebook runs, and that node {}"
NO_GPU = "has no GPU"
NO_NODE = "the API does not say on which node the notebook's pod runs"


@dataclass(frozen=True, slots=True)
class Mounted:
    """What the container mounts.

    Attributes:
        mounts: Its ``volumeMounts``.
        devices: Its ``volumeDevices``.
        volumes: The pod's volumes, of which each is mounted.
        node: The node on which the pod must run; empty for any.
    """

    mounts: tuple[dict[str, Any], ...]
    devices: tuple[dict[str, Any], ...]
    volumes: tuple[dict[str, Any], ...]
    node: str


def mounted(
    notebook: Mapping[str, Any],
    container: Mapping[str, Any],
    template_spec: Mapping[str, Any] | None,
    template_container: Mapping[str, Any] | None,
    claims: Mapping[str, Mapping[str, Any]],
    settings: PodSettings,
    node_lacks: str,
    template_only: bool = False,
) -> Mounted:
    """What the program's container mounts.

    Mounts are those of the template's container. What only the running one has was added by a webhook when
    its pod was made, as PodDefaults are: it is taken over unless the admin has these labels copied by which
    the webhook adds it again (`PodSettings.labels`), or it has been seen to add it again to any pod.

    Args:
        notebook: The notebook's pod.
        container: Its container.
        template_spec: The pod's spec in its StatefulSet; None where it has none or may not be read.
        template_container: The container in it.
        claims: Claims by name; one that is missing counts as ReadWriteOnce.
        settings: The admin's.
        node_lacks: Why the notebook's node can never take a GPU pod, `NO_GPU`; empty: nobody says so.
        template_only: What only the running container has is left out.

    Raises:
        FilesElsewhere: A claim that can be mounted by no GPU pod.
        NotebookUnusable: A mount that cannot be understood.
    """
    spec = mapping(notebook.get("spec"))
    chosen: list[Mapping[str, Any]] = []
    if template_container is not None:
        chosen.append(template_container)
    if template_container is None or not (settings.labels or template_only):
        chosen.append(container)
    known = _by_name(mappings(spec.get("volumes")))
    if template_spec is not None:
        known.update(_by_name(mappings(template_spec.get("volumes"))))
    dropped = _dropped(container)
    mounts = _taken(chosen, "volumeMounts", "mountPath", known, dropped)
    devices = _taken(chosen, "volumeDevices", "devicePath", known, dropped)
    mounts = [expanded(mount, container, notebook) for mount in mounts]
    names = dict.fromkeys(text(each.get("name")) for each in [*mounts, *devices])
    volumes = [copy_of(known[name]) for name in names]
    bound = [shown for shown in (_bound(volume, claims, settings) for volume in volumes) if shown]
    node = text(spec.get("nodeName")) if bound else ""
    if bound and not node:
        raise NotebookUnusable("", NO_NODE)
    if bound and node_lacks:
        raise FilesElsewhere("", ONLY_THERE.format(" and ".join(bound[:3]), node, node_lacks))
    return Mounted(tuple(mounts), tuple(devices), tuple(volumes), node)


def claim_names(notebook: Mapping[str, Any]) -> list[str]:
    """The claims of a notebook's pod, whose objects `mounted` wants to see."""
    volumes = mappings(mapping(notebook.get("spec")).get("volumes"))
    names = [text(mapping(volume.get("persistentVolumeClaim")).get("claimName")) for volume in volumes]
    return [name for name in dict.fromkeys(names) if name]


def _by_name(volumes: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {text(volume.get("name")): volume for volume in volumes if text(volume.get("name"))}


def _dropped(container: Mapping[str, Any]) -> set[str]:
    """Our volumes, whatever another webhook has called them."""
    ours = {
        text(mount.get("name"))
        for mount in mappings(container.get("volumeMounts"))
        if text(mount.get("mountPath")).rstrip("/") == CLIENT_FOLDER
    }
    return ours.union(OUR_VOLUMES)


def _taken(
    containers: Sequence[Mapping[str, Any]],
    part: str,
    key: str,
    known: Mapping[str, Mapping[str, Any]],
    dropped: set[str],
) -> list[dict[str, Any]]:
    """The mounts of the containers, each path once, without those that are made anew."""
    found: dict[str, dict[str, Any]] = {}
    for container in containers:
        for mount in mappings(container.get(part)):
            name, path = text(mount.get("name")), text(mount.get(key))
            plain = path.rstrip("/")
            if not plain or name not in known or name in dropped or plain in found:
                continue
            token = name.startswith(TOKEN_VOLUMES) and "projected" in known[name]
            if token or plain == TOKEN_PATH or f"{plain}/".startswith(f"{CLIENT_FOLDER}/"):
                continue
            found[plain] = copy_of(mount)
    return list(found.values())


def _bound(volume: Mapping[str, Any], claims: Mapping[str, Any], settings: PodSettings) -> str:
    """What binds a volume to the notebook's node, in words; empty for nothing. Raises FilesElsewhere."""
    for disk in DISKS:
        if disk in volume:
            return f"volume {text(volume.get('name'))}"
    name = text(mapping(volume.get("persistentVolumeClaim")).get("claimName"))
    if not name:
        return ""
    claim = mapping(claims.get(name))
    spec = mapping(claim.get("spec"))
    modes = mapping(claim.get("status")).get("accessModes") or spec.get("accessModes")
    modes = [text(mode) for mode in modes] if isinstance(modes, list) else []
    if ONCE_POD in modes:
        raise FilesElsewhere("", ONE_POD.format(name), ANOTHER_CLAIM)
    # both ReadWriteOnce and ReadOnlyMany: the notebook writes, so it is the first
    if MANY in modes or (modes and set(modes) == {READERS}):
        return ""
    if settings.mounts_anywhere(text(spec.get("storageClassName"))):
        return ""
    # nobody was let read it: the same as the usual one, which is right wherever it may be mounted
    return f"claim {name}" + ("" if metadata_of(claim) or modes else ", which could not be read,")
