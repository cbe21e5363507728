"""The pod for one program: the notebook's image, files and user, on a GPU, owned by the notebook's pod. Pure.

What is taken over is a list of its own for each part, so that nothing comes along unseen: no labels, by which
a Service would send the notebook's visitors here; no sidecars, ports, probes; no variables, which come with
the program over the stream (specs are read by viewers). Where the StatefulSet's template may be read it is
the model, since webhooks have not been at it.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_pods.values import is_name
from bitfusion_client.kubernetes.annotations import format_request_annotation
from bitfusion_client.kubernetes.raw_objects import (
    containers_of,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    text,
)
from bitfusion_client.one_line import one_line
from bitfusion_client.pod import pod_contract as pod
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.pod.cannot_copy import NotebookUnusable, copy_of
from bitfusion_pods.pod.fragment import bind_to_node, put_fragment
from bitfusion_pods.pod.image import image_of
from bitfusion_pods.pod.resources import program_resources
from bitfusion_pods.pod.secret import secret_mount, secret_volume
from bitfusion_pods.pod.volumes import mounted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.gpu_pods.settings import PodSettings
    from bitfusion_client.gpu_pods.size_rules import FilledRule

GRACE_S = 3
"""Seconds from being told to end until SIGKILL: the GPU is somebody else's then."""

LOST_NODE_S = 30
"""Seconds until Kubernetes deletes the pod of a node that does not answer."""

LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
ISTIO = "sidecar.istio.io/inject"  # read as a label today, as an annotation by older ones
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
LONGEST_LABEL = 63

# Of the pod's spec, by what they are. `hostUsers`: who is let in as restricted because of it stays so.
TAKEN = {
    "securityContext": dict,
    "serviceAccountName": str,
    "automountServiceAccountToken": bool,
    "imagePullSecrets": list,
    "priorityClassName": str,
    "dnsPolicy": str,
    "dnsConfig": dict,
    "hostAliases": list,
    "hostUsers": bool,
}

NO_CONTAINER = "the notebook's pod has no container {}"
NO_METADATA = "the API does not return the name, namespace and uid of the notebook's pod"
NO_NAME = "a GPU pod or its queue has a name that Kubernetes does not accept: {}"


def gpu_pod(
    *,
    notebook: Mapping[str, Any],
    template: Mapping[str, Any] | None,
    container: str,
    claims: Mapping[str, Mapping[str, Any]],
    filled_rule: FilledRule,
    request: GpuRequest,
    settings: PodSettings,
    name: str,
    queue: str,
    node_lacks: str = "",
    template_only: bool = False,
) -> dict[str, Any]:
    """The pod, as it is posted to the API. What is given stays as it is, and nothing of it is shared.

    Args:
        notebook: The notebook's pod, from the API.
        template: ``spec.template`` of its StatefulSet; None where it has none or may not be read.
        container: The notebook's container in it.
        claims: The claims of its volumes, by name (`volumes.claim_names`); those that may be read.
        filled_rule: `size_rules.rule_for` of the request.
        request: What the pod is to hold.
        settings: The admin's.
        name: Of the new pod, and of the Secret that it mounts.
        queue: Of Kueue's, in which it waits; empty for none (`PodSettings.queue_of`).
        node_lacks: Why the notebook's node can never take a GPU pod; empty: nobody says so.
        template_only: What only the running container mounts is left out: a webhook adds it to every pod.

    Raises:
        NotebookUnusable: The notebook's pod cannot be a model.
        FilesElsewhere: Its files cannot be mounted where a GPU is.
        InvalidRequest: Its annotation for the image names none.
    """
    own = metadata_of(notebook)
    namespace, uid, owner = (text(own.get(each)) for each in ("namespace", "uid", "name"))
    if not (namespace and uid and owner):
        raise NotebookUnusable("", NO_METADATA)
    for given in [name, *([queue] if queue else [])]:
        if not is_name(given):
            raise NotebookUnusable("", NO_NAME.format(one_line(given, LONGEST_LABEL)))
    live_spec = mapping(notebook.get("spec"))
    live = _container(live_spec, container)
    if live is None:
        raise NotebookUnusable("", NO_CONTAINER.format(one_line(container, LONGEST_LABEL)))
    template_spec = mapping(template.get("spec")) if isinstance(template, dict) else None
    templates = None if template_spec is None else _container(template_spec, container)
    spec, model = live_spec, live
    if template_spec is not None and templates is not None:
        spec, model = template_spec, templates
    files = mounted(notebook, live, template_spec, templates, claims, settings, node_lacks, template_only)
    resources = program_resources(
        model, settings, request.gpus, mapping(filled_rule.container.get("resources"))
    )
    held = GpuRequest(request.gpus, request.partial, request.memory_mib)
    options = format_request_annotation(held)
    program: dict[str, Any] = {
        "name": pod.PROGRAM_CONTAINER,
        **image_of(notebook, live, settings),
        "command": ["/bin/sh", f"{pod.CLIENT_FOLDER}/{pod.COMMAND_FILE}", "agent"],
        "args": ["--keys", pod.KEYS_PATH, "--port", str(settings.port)],
        "resources": copy_of(resources),
        "volumeMounts": [*files.mounts, secret_mount()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if files.devices:
        program["volumeDevices"] = list(files.devices)
    if isinstance(model.get("securityContext"), dict):
        program["securityContext"] = copy_of(model["securityContext"])
    if filled_rule.container.get("env"):
        program["env"] = copy_of(filled_rule.container["env"])
    result: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": _labels(notebook, settings),
            "annotations": {},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": owner,
                    "uid": uid,
                    "controller": False,
                    # true is refused to users where OwnerReferencesPermissionEnforcement is on
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            **_taken(spec, live_spec),
            "containers": [program],
            "volumes": [*files.volumes, secret_volume(name)],
            "tolerations": _tolerations(spec),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_S,
            "enableServiceLinks": False,
        },
    }
    if settings.deadline_s is not None:
        result["spec"]["activeDeadlineSeconds"] = settings.deadline_s
    put_fragment(result, settings.pod or {})
    put_fragment(result, filled_rule.pod)
    if files.node:
        bind_to_node(result["spec"], files.node)
    ours = {pod.LABEL_GPU_POD_OF: uid, ISTIO: "false"}
    waits = {KUEUE_QUEUE: queue} if queue and filled_rule.holds else {}
    holds = {pod.ANNOTATION_HOLDS: options} if filled_rule.holds else {}
    result["metadata"]["labels"].update({**ours, **waits})
    result["metadata"]["annotations"].update({**holds, ISTIO: "false"})
    return result


def _container(spec: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((each for each in containers_of(spec) if each.get("name") == name), None)


def _taken(spec: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    result = {
        name: copy_of(spec[name])
        for name, kind in TAKEN.items()
        if isinstance(spec.get(name), kind) and spec[name] not in ("", [], {})
    }
    account = text(live.get("serviceAccountName"))  # as the API has filled it in
    return {**result, "serviceAccountName": account} if account else result


def _labels(notebook: Mapping[str, Any], settings: PodSettings) -> dict[str, str]:
    present = labels_of(notebook)
    found = {name: present[name] for name in settings.labels if isinstance(present.get(name), str)}
    return {name: value for name, value in found.items() if len(value) <= LONGEST_LABEL}


def _tolerations(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notebook's, but for those of a lost node: a GPU is not held for five minutes by nobody."""
    kept = [
        copy_of(each) for each in mappings(spec.get("tolerations")) if each.get("key") not in LOST_NODE_TAINTS
    ]
    return kept + [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_S}
        for key in LOST_NODE_TAINTS
    ]
