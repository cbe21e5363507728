"""Our programs: each ready, and of which image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitfusion_client.kubernetes.label_selectors import selects
from bitfusion_client.kubernetes.raw_objects import (
    containers_of,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    pod_spec_of,
    text,
    whole_number,
)
from bitfusion_client.one_line import one_line
from bitfusion_cluster.doctor.finding import LONGEST, Finding, fail, ok, short, warn
from bitfusion_cluster.doctor.places import (
    INJECTOR,
    OURS,
    PART_OF,
    POD_WEBHOOKS,
    deployments,
    pods,
)
from bitfusion_cluster.doctor.seen import Seen, Unseen
from bitfusion_cluster.doctor.served import own_daemon_sets

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

IMAGE = "kubeflow-bitfusion/notebook-controller"
INSTALL = (
    "install it: helm install bitfusion charts/kubeflow-bitfusion -n {}, or kubectl apply -k manifests/all/…"
)
PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")

STARTING = ("ContainerCreating", "PodInitializing")
"""Nothing of it has run, so it has no log."""


def is_installed(seen: Seen) -> bool:
    """Whether there is anything of ours; if not, that is told once. Raises Unseen."""
    return bool(_sets(seen)) or seen.one(POD_WEBHOOKS) is not None


def check_programs(seen: Seen) -> Iterator[Finding]:
    """Each Deployment and DaemonSet of ours."""
    sets = _sets(seen)
    names = {text(metadata_of(each).get("name")) for each in sets}
    if INJECTOR not in names:
        yield fail(
            short(INJECTOR), f"not installed in namespace {seen.namespace}", INSTALL.format(seen.namespace)
        )
    for each in sets:
        yield _deployment(seen, each)
    try:
        plugins = own_daemon_sets(seen)
    except Unseen:
        plugins = []  # the GPUs' own check says what is missing
    for each in plugins:
        yield _daemon_set(seen, each)
    images = {_image(each) for each in (*sets, *plugins) if IMAGE.rpartition("/")[2] in _image(each)}
    if len(images) > 1:
        yield warn(
            "images",
            f"the programs run {len(images)} different images: {', '.join(sorted(images))}",
            "apply the installation again with one images.lock.yaml: an upgrade ended halfway",
        )


def _sets(seen: Seen) -> list[RawObject]:
    return [each for each in seen.items(deployments(seen.namespace)) if _is_ours(each)]


def _is_ours(data: RawObject) -> bool:
    return labels_of(data).get(PART_OF) == OURS


def _image(data: RawObject) -> str:
    return next((text(each.get("image")) for each in containers_of(pod_spec_of(data))), "")


def _deployment(seen: Seen, data: RawObject) -> Finding:
    status = mapping(data.get("status"))
    wanted = whole_number(mapping(data.get("spec")).get("replicas"), 1)
    ready = whole_number(status.get("readyReplicas"), 0)
    updated = whole_number(status.get("updatedReplicas"), wanted)
    return _found(seen, data, seen.namespace, (ready, updated, wanted), "scale deployment {} --replicas=2")


def _daemon_set(seen: Seen, data: RawObject) -> Finding:
    status = mapping(data.get("status"))
    wanted = whole_number(status.get("desiredNumberScheduled"), 0)
    ready = whole_number(status.get("numberReady"), 0)
    updated = whole_number(status.get("updatedNumberScheduled"), wanted)
    namespace = text(metadata_of(data).get("namespace"))
    return _found(seen, data, namespace, (ready, updated, wanted), "describe daemonset {}")


def _found(seen: Seen, data: RawObject, namespace: str, pods: tuple[int, int, int], none: str) -> Finding:
    """`pods`: how many are ready, are of the newest version, and are wanted."""
    name = text(metadata_of(data).get("name"))
    ready, updated, wanted = pods
    if min(ready, updated) >= wanted > 0:
        return ok(short(name), f"{ready} of {wanted} ready, {_image(data)}")
    kubectl = f"kubectl -n {namespace}"
    if wanted == 0:
        return fail(short(name), "runs nowhere: 0 replicas are requested", f"{kubectl} {none.format(name)}")
    reason, message = _why(seen, data, namespace)
    said = f"{ready} of {wanted} ready" + f", {updated} of them updated" * (updated < wanted <= ready)
    said += f": {reason}" if reason else ""
    if reason in PULLING:
        said += f" {_image(data)}"
        todo = (
            "the nodes cannot pull this image: push it (make images REGISTRY=…) and install with -f "
            "images.lock.yaml; a private registry needs imagePullSecrets"
        )
    elif reason == "Unschedulable":
        todo = f"no node takes its pods ({message}): {kubectl} describe pods -l app.kubernetes.io/name={name}"
    elif reason in STARTING:
        todo = f"its Events say what it waits for: {kubectl} describe pods -l app.kubernetes.io/name={name}"
    elif not reason and ready >= wanted:
        todo = (
            "an upgrade is under way: look again in a minute; if it does not end: "
            f"{kubectl} describe pods -l app.kubernetes.io/name={name}"
        )
    elif not reason:
        todo = f"no pod is created: {kubectl} describe replicaset -l app.kubernetes.io/name={name}"
    else:
        todo = f"look at its log: {kubectl} logs -l app.kubernetes.io/name={name} --tail=20 --prefix"
        said += f" ({message})" if message else ""
    return (warn if ready else fail)(short(name), said, todo)


def _why(seen: Seen, data: RawObject, namespace: str) -> tuple[str, str]:
    """The first reason of a pod that is not ready, and its message; empty if no pod says one."""
    try:
        found = seen.items(pods(namespace))
    except Unseen as unseen:
        return "its pods may not be read", unseen.words
    selector = mapping(data.get("spec")).get("selector")
    for pod in found:
        if not selects(selector, labels_of(pod)):
            continue
        status = mapping(pod.get("status"))
        for container in mappings(status.get("initContainerStatuses")) + mappings(
            status.get("containerStatuses")
        ):
            state = mapping(container.get("state"))
            waiting = mapping(state.get("waiting") or state.get("terminated"))
            if container.get("ready") is not True and waiting:
                return text(waiting.get("reason")) or "ended", one_line(waiting.get("message") or "", LONGEST)
        for condition in mappings(status.get("conditions")):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return text(condition.get("reason")), one_line(condition.get("message") or "", LONGEST)
        if status.get("phase") == "Running" and any(
            each.get("ready") is not True for each in mappings(status.get("containerStatuses"))
        ):
            return "running, but not ready", ""
    return "", ""
