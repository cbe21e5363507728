"""What the tests of the manifests share: building an overlay, finding an object in it."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.support.objects import objects_of

MANIFESTS = Path(__file__).parents[2] / "manifests"
INSTALLED = ("kubeflow", "standalone", "cert-manager")  # each installs the controller
OVERLAYS = (*INSTALLED, "validating-policy")
NAMESPACES = {"kubeflow": "kubeflow", "standalone": "bitfusion-system", "cert-manager": "kubeflow"}
CONTROLLER = "bitfusion-notebook-controller"
WEBHOOKS = "bitfusion-notebook-admission"
INJECTOR = "bitfusion-injector"
POD_WEBHOOKS = "bitfusion-pod-injection"
PROCESSES = (CONTROLLER, INJECTOR)  # each has a Deployment, a Service and an account of its name
POLICY = "bitfusion-sizes"
NOTEBOOKS = "/apis/kubeflow.org/v1beta1/namespaces/{namespace}/notebooks"  # as the form posts them

Object = dict[str, Any]
Objects = list[Object]


def build(cluster: Cluster, overlay: str) -> Objects:
    """The objects of an overlay."""
    text = cluster.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    return objects_of(text)


def build_own(
    cluster: Cluster, resources: Sequence[str], components: Sequence[str] = (), **more: Any
) -> Objects:
    """The objects of an administrator's own folder, which names folders of ours and has `more` of its own."""
    with tempfile.TemporaryDirectory(dir=cluster.folder) as folder:
        manifests = os.path.relpath(MANIFESTS, os.path.realpath(folder))
        kustomization = {
            "resources": [f"{manifests}/{each}" for each in resources],
            "components": [f"{manifests}/components/{each}" for each in components],
            **more,
        }
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(kustomization))
        text = cluster.kubectl("kustomize", folder)
    return objects_of(text)


def of_kind(objects: Objects, kind: str) -> Objects:
    return [item for item in objects if item["kind"] == kind]


def one(objects: Objects, kind: str, name: str = CONTROLLER) -> Object:
    """The one object of that kind and name."""
    found = [item for item in of_kind(objects, kind) if item["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pod_template(objects: Objects, name: str = CONTROLLER) -> Object:
    """A copy, which a test may spoil."""
    template: Object = copy.deepcopy(one(objects, "Deployment", name)["spec"]["template"])
    return template


def container(objects: Objects, name: str = CONTROLLER) -> Object:
    (only,) = pod_template(objects, name)["spec"]["containers"]
    return dict(only)


def rules(objects: Objects, process: str = CONTROLLER) -> Iterator[tuple[str, str, str, str, str]]:
    """Every right of a process, taken apart: scope, group, resource, name ("" for all), verb."""
    for kind, scope in (("ClusterRole", "cluster"), ("Role", "namespace")):
        for role in of_kind(objects, kind):
            if not role["metadata"]["name"].startswith(process):
                continue
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for name in rule.get("resourceNames", [""]):
                            for verb in rule["verbs"]:
                                yield scope, group, resource, name, verb
