"""What is mounted in a container that asks, and what of its own stands in the way."""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.raw_objects import init_containers_of, mapping, mappings, text
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import (
    CLIENT_FOLDER,
    CLIENT_VOLUME,
    COMMAND_FILE,
    COMMAND_PATH,
    IDENTITY_PATH,
    IDENTITY_SECRET,
    IDENTITY_VOLUME,
    INIT_CONTAINER,
    PODS,
    VMWARE,
    VMWARE_TLS_PATH,
    VOLUME_PATH,
)

LONGEST_PATH = 100  # characters, within a message
SAYING = ("name", "subPath", "subPathExpr", "readOnly")  # what a mount says besides where it is

_NOT_ALWAYS = (COMMAND_PATH, VMWARE_TLS_PATH, IDENTITY_PATH)

MOUNTED_THERE = f"is the place of the client, {CLIENT_FOLDER}"
MOUNT_ELSEWHERE = "Mount it at another path."

Mount = dict[str, Any]


class VolumeNames(NamedTuple):
    """What our volumes are called in a pod."""

    client: str = CLIENT_VOLUME
    identity: str = IDENTITY_VOLUME


USUAL_NAMES = VolumeNames()


def volume_names(spec: Mapping[str, Any]) -> VolumeNames:
    """The names that they have, or will have: another webhook may have renamed all volumes of a pod.

    The client's is the one that our init container fills, the other is the identity's Secret.
    """
    for container in init_containers_of(spec) if spec.get("initContainers") else ():
        if container.get("name") == INIT_CONTAINER:
            return _names_now(
                container, {text(each.get("name")): each for each in mappings(spec.get("volumes"))}
            )
    return USUAL_NAMES


def _names_now(filling: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]]) -> VolumeNames:
    filled = [
        text(mount.get("name"))
        for mount in mappings(filling.get("volumeMounts"))
        if _path_of(mount) == VOLUME_PATH and "emptyDir" in volumes.get(text(mount.get("name")), ())
    ]
    secrets = [
        name
        for name, volume in volumes.items()
        if mapping(volume.get("secret")).get("secretName") == IDENTITY_SECRET
    ]
    return VolumeNames(
        CLIENT_VOLUME if CLIENT_VOLUME in volumes else [*filled, CLIENT_VOLUME][0],
        IDENTITY_VOLUME if IDENTITY_VOLUME in volumes else [*secrets, IDENTITY_VOLUME][0],
    )


def client_mounts(
    container: Mapping[str, Any], kind: str, command_path: bool, volumes: VolumeNames
) -> list[Mount]:
    """What is to be mounted, in this order.

    Raises WrongKey: the container mounts something of its own where the client has to be.
    """
    name = text(container.get("name"))
    own = own_paths(container, volumes)
    for path in own:
        if _meet(path, CLIENT_FOLDER):
            shown = one_line(path, LONGEST_PATH)
            spelled = f'mountPath {shown} of container "{name}"'
            raise WrongKey("mountPath", path, MOUNTED_THERE, MOUNT_ELSEWHERE, spelled)
    mounts = [_mount(volumes.client, CLIENT_FOLDER, name)]
    if command_path and not any(_meet(path, COMMAND_PATH) for path in own):
        mounts.append(_mount(volumes.client, COMMAND_PATH, f"{name}/{COMMAND_FILE}"))
    if kind == PODS:
        return mounts
    mounts.append(_mount(volumes.identity, IDENTITY_PATH))
    if kind == VMWARE and not any(_meet(path, VMWARE_TLS_PATH) for path in own):
        mounts.append(_mount(volumes.identity, VMWARE_TLS_PATH))
    return mounts


def own_paths(container: Mapping[str, Any], volumes: VolumeNames) -> list[str]:
    """Where the container mounts what is not ours: volumes, and devices of volumes."""
    paths = [
        _path_of(mount)
        for mount in mappings(container.get("volumeMounts"))
        if mount.get("name") not in volumes
    ]
    devices = mappings(container.get("volumeDevices"))
    return paths + [_plain(text(device.get("devicePath"))) for device in devices]


def with_mounts(
    present: Sequence[Mapping[str, Any]], wanted: Sequence[Mount], volumes: VolumeNames
) -> list[Mapping[str, Any]]:
    """A container's mounts with those of ours: what is there stays, what is missing comes last.

    A mount of our volumes that says something else at the same path is replaced. One that an earlier pass has
    made, and in whose way something has come since, is taken out; so is one of another kind of client, which
    the administrator has changed meanwhile.
    """
    paths = {mount["mountPath"] for mount in wanted}
    dropped = {path for path in _NOT_ALWAYS if path not in paths}
    result = [mount for mount in present if not _is_dropped(mount, dropped, volumes)]
    places: dict[str, int] = {}  # of ours, by their path
    for place, mount in enumerate(result):
        if mount.get("name") in volumes:
            places.setdefault(_path_of(mount), place)
    for mount in wanted:
        known = places.get(mount["mountPath"])
        if known is None:
            result.append(mount)
        elif any(result[known].get(key) != mount.get(key) for key in SAYING):
            result[known] = mount
    return result


def _path_of(mount: Mapping[str, Any]) -> str:
    return _plain(text(mount.get("mountPath")))


def _is_dropped(mount: Mapping[str, Any], paths: Container[str], volumes: VolumeNames) -> bool:
    return mount.get("name") in volumes and _path_of(mount) in paths


def _mount(volume: str, path: str, part: str = "") -> Mount:
    mount: Mount = {"name": volume, "mountPath": path, "readOnly": True}
    return {**mount, "subPath": part} if part else mount


def _plain(path: str) -> str:
    """A path as the kubelet understands it, from the root and without detours."""
    if (
        path[:1] == "/"
        and path[1:2] not in ("/", "")
        and path[-1] != "/"
        and "//" not in path
        and "/." not in path
    ):
        return path  # most are plain
    return posixpath.normpath("/" + path.lstrip("/"))


def _meet(path: str, other: str) -> bool:
    """Whether one path is the other, or a folder above or below it."""
    return f"{other}/".startswith(f"{path.rstrip('/')}/") or path.startswith(f"{other}/")
