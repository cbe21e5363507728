"""The init containers and the volumes that bring the client into a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.raw_objects import limits_of, mapping, requests_of, text
from bitfusion_client.pod.pod_contract import (
    ENV_NOTEBOOK,
    ENV_POD_NAME,
    ENV_POD_NAMESPACE,
    ENV_POD_UID,
    ENV_SETTINGS,
    ENV_SIZES,
    IDENTITY_SECRET,
    IDENTITY_VOLUME,
    INIT_CONTAINER,
    INSTALL_COMMAND,
    LABEL_NOTEBOOK,
    PACKAGES_CONTAINER,
    PACKAGES_FOLDER,
    PACKAGES_IN_IMAGE,
    PODS,
    RUN_AS_USER,
    VMWARE,
    VOLUME_PATH,
)
from bitfusion_client.request.quantities import format_mib
from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.container_mounts import VolumeNames
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.injection.recorded_requests import (
    Record,
    escaped,
    install_arguments,
    is_ours,
    with_wrapped_lines,
)
from bitfusion_device_plugin.injector.injection.resources import COPIED_RESOURCES, at_most

NAME_TAKEN = "has the name of the injector's own init container, but is a different one"
RENAME = "Give it another name."

# What is the same in every pod is made once, and is in all of them: nobody writes to a pod that was made.

# What the downward API tells the first one. A container that asks gets none of it: its variables are its own.
_FIELDS = {
    ENV_POD_NAME: "metadata.name",
    ENV_POD_NAMESPACE: "metadata.namespace",
    ENV_POD_UID: "metadata.uid",
    ENV_NOTEBOOK: f"metadata.labels['{LABEL_NOTEBOOK}']",
}
_VARIABLES = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()
]
_COMMAND = list(INSTALL_COMMAND)
# An image that an admin has put on the nodes is not asked for at a registry, and the last words of one that
# failed are in the pod's status.
_MANNERS = {"imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "FallbackToLogsOnError"}
_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "readOnlyRootFilesystem": True,
}
_IDENTITY = {"name": IDENTITY_VOLUME, "secret": {"secretName": IDENTITY_SECRET, "optional": True}}


def with_init_containers(
    spec: Mapping[str, Any],
    present: Sequence[Mapping[str, Any]],
    records: Sequence[Record],
    client: ClientRule,
    settings: InjectorSettings,
    like: Mapping[str, Any],
    volumes: VolumeNames,
    lines: Mapping[str, str] | None,
) -> list[Mapping[str, Any]]:
    """The pod's init containers, ours first.

    Those that an earlier pass has made stay as they have become since, whoever changed them (an image from a
    mirror, resources of a LimitRange), but for place and arguments, and for what is more than `like` has now.

    Args:
        spec: The pod's.
        present: Its init containers.
        records: What the containers that ask get.
        client: Their client.
        settings: The administrator's.
        like: The container whose CPU, memory and units ours have, so that a quota is content and the pod no
            bigger, and whose user, where the pod itself names none.
        volumes: What our volumes are called.
        lines: What is to be remembered of wrapped commands; None to leave that as it is.

    Raises:
        WrongKey: Another container has one of our names.
    """
    common = _common(spec, like, volumes)
    wanted = [_installer(common, records, client, settings)]
    if client.kind == VMWARE:
        wanted += [
            _packages(common, record, client, number) for number, record in enumerate(records, start=1)
        ]
    names = {container["name"] for container in wanted}
    kept: dict[str, Mapping[str, Any]] = {}
    others = []
    for container in present:
        name = text(container.get("name"))
        if name in names:
            if name in kept or not (is_ours(container) if name == INIT_CONTAINER else _copies(container)):
                raise WrongKey("initContainers", name, NAME_TAKEN, RENAME, f'init container "{name}"')
            kept[name] = container
        else:
            others.append(container)
    ours = [_merged(kept.get(container["name"]), container) for container in wanted]
    if lines is not None:
        ours[0] = _remembering(ours[0], lines)
    return ours + others


def with_volumes(
    present: Sequence[Mapping[str, Any]],
    records: Sequence[Record],
    settings: InjectorSettings,
    names: VolumeNames,
) -> list[Mapping[str, Any]]:
    """The pod's volumes, ours last. Raises WrongKey: another volume has one of our names."""
    mib = sum(settings.volume_mib_for(record.kind) for record in records)
    client = {"name": names.client, "emptyDir": {"sizeLimit": format_mib(mib)}}
    result: list[Mapping[str, Any]] = list(present)
    ours = [(names.client, client)]
    if records[0].kind != PODS:
        ours.append((names.identity, _IDENTITY))
    for name, wanted in ours:
        same_name = [volume for volume in present if volume.get("name") == name]
        if not same_name:
            result.append(wanted)
        elif len(same_name) > 1 or not _is_like(same_name[0], wanted):
            raise WrongKey("volumes", name, NAME_TAKEN, RENAME, f'volume "{name}"')
    return result


def _installer(
    common: Mapping[str, Any], records: Sequence[Record], client: ClientRule, settings: InjectorSettings
) -> dict[str, Any]:
    image = settings.client_image if client.kind == VMWARE else client.image
    variables = _VARIABLES
    if client.kind == PODS:
        variables = [*variables, {"name": ENV_SETTINGS, "value": escaped(settings.pods.to_text())}]
    if settings.sizes:
        variables = [*variables, {"name": ENV_SIZES, "value": escaped(settings.sizes)}]
    return {
        "name": INIT_CONTAINER,
        "image": image,
        **_MANNERS,
        "command": _COMMAND,
        "args": install_arguments(records),
        "env": variables,
        **common,
    }


def _packages(common: Mapping[str, Any], record: Record, client: ClientRule, number: int) -> dict[str, Any]:
    """Copies VMware's packages for one container; ``cp`` has one target."""
    target = f"{VOLUME_PATH}/{record.container}/{PACKAGES_FOLDER}/"
    return {
        "name": PACKAGES_CONTAINER if number == 1 else f"{PACKAGES_CONTAINER}-{number}",
        "image": client.image,
        **_MANNERS,
        "command": ["cp", "-a", f"{PACKAGES_IN_IMAGE}/.", target],
        **common,
    }


def _common(spec: Mapping[str, Any], like: Mapping[str, Any], volumes: VolumeNames) -> dict[str, Any]:
    security = _SECURITY
    if not mapping(spec.get("securityContext")).get("runAsUser"):  # 0, root, would not be let in
        # That of the container is one that the cluster lets in: OpenShift gives each namespace a range, and
        # has written a user of it into every container before any webhook is asked.
        user = mapping(like.get("securityContext")).get("runAsUser") or RUN_AS_USER
        security = {**_SECURITY, "runAsUser": user}
    resources = {
        part: {name: given[name] for name in COPIED_RESOURCES if name in given}
        for part, given in (("limits", limits_of(like)), ("requests", requests_of(like)))
    }
    return {
        "resources": {part: given for part, given in resources.items() if given},
        "volumeMounts": [{"name": volumes.client, "mountPath": VOLUME_PATH}],
        "securityContext": security,
    }


def _merged(present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    if present is None:
        return wanted
    part = "args" if "args" in wanted else "command"
    resources = at_most(present.get("resources"), wanted["resources"])
    if present[part] == wanted[part] and resources == present.get("resources"):
        return present
    return {**present, part: wanted[part], "resources": resources}


def _remembering(container: Mapping[str, Any], lines: Mapping[str, str]) -> Mapping[str, Any]:
    present = container.get("env")
    variables = with_wrapped_lines(present, lines)
    return container if variables == present else {**container, "env": variables}


def _copies(container: Mapping[str, Any]) -> bool:
    command = container.get("command")
    return isinstance(command, list) and command[:3] == ["cp", "-a", f"{PACKAGES_IN_IMAGE}/."]


def _is_like(volume: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if wanted is _IDENTITY:
        return mapping(volume.get("secret")).get("secretName") == IDENTITY_SECRET
    return isinstance(volume.get("emptyDir"), dict)
