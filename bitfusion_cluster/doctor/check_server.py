"""The API server, its version, Kubeflow's kinds and version."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bitfusion_client.kubernetes.raw_objects import containers_of, mapping, mappings, pod_spec_of, text
from bitfusion_cluster.api.paths import deployment_path
from bitfusion_cluster.api.server_version import VERSION_PATH, parsed_version
from bitfusion_cluster.doctor.finding import Finding, fail, ok, warn
from bitfusion_cluster.doctor.places import CONTROLLER, KUBEFLOW_GROUP
from bitfusion_cluster.doctor.seen import Seen

OLDEST, NEWEST = (1, 27), (1, 36)  # of Kubernetes, that the manifests are tried with
FORM = "jupyter-web-app-deployment"
OLDEST_KUBEFLOW = (1, 4)

_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.\d+)?")


def check_server(seen: Seen) -> Iterator[Finding]:
    """Whether the API server is one that the manifests are for."""
    answer = seen.one(VERSION_PATH) or {}
    version = parsed_version(dict(answer))
    shown = text(answer.get("gitVersion")) or "of a version that it does not report"
    said = f"Kubernetes {shown}"
    if version is None:
        yield warn("Kubernetes", said, "compare it with `kubectl version`: 1.27 to 1.36 are supported")
    elif version < OLDEST:
        yield fail("Kubernetes", f"{said} is too old", "upgrade to 1.27 or newer; 1.30 also has the policies")
    elif version > NEWEST:
        yield ok("Kubernetes", f"{said}, newer than 1.36, the newest that was tested")
    else:
        yield ok("Kubernetes", said)


def check_kubeflow(seen: Seen) -> Iterator[Finding]:
    """Whether there are Notebooks and Profiles, and of which Kubeflow."""
    kinds = {text(each.get("name")) for each in mappings((seen.one(KUBEFLOW_GROUP) or {}).get("resources"))}
    controller = seen.one(deployment_path(seen.namespace, CONTROLLER)) is not None
    if "notebooks" not in kinds:
        if controller:
            todo = (
                "install Kubeflow's notebook controller, or omit bitfusion-notebook-controller: for "
                "JupyterHub alone the "
                "injector is enough"
            )
            yield fail("Kubeflow", "the API server knows no Notebooks (kubeflow.org/v1)", todo)
        else:
            yield ok("Kubeflow", "none: pods are served, as JupyterHub creates them")
        return
    profiles = "Notebooks and Profiles" if "profiles" in kinds else "Notebooks, no Profiles"
    tag = _form_tag(seen)
    found = _VERSION.fullmatch(tag)
    version = (int(found[1]), int(found[2])) if found else None
    if version is not None and version < OLDEST_KUBEFLOW:
        yield warn("Kubeflow", f"{tag}, with {profiles}", "1.4 to 1.11 are supported: upgrade Kubeflow")
    else:
        yield ok("Kubeflow", f"{profiles}; its form is {tag}" if tag else profiles)


def _form_tag(seen: Seen) -> str:
    form = seen.one(deployment_path(seen.namespace, FORM))
    for container in containers_of(pod_spec_of(mapping(form))):
        name, _, tag = text(container.get("image")).partition("@")[0].rpartition(":")
        if name and "/" not in tag:
            return tag
    return ""
