"""What the chart must render, from kustomize's objects: each value in a few lines that know no template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from tools.chart_templates import SWITCHES

Object = dict[str, Any]
Values = Mapping[str, Any]
IMAGES = {"notebookController": "notebook-controller", "client": "client", "pool": "pool"}
PACKAGE = "bitfusion-client-ubuntu2204_4.5.4-1_amd64.deb"
LABEL = "app.kubernetes.io/part-of=kubeflow-profile"
KINDS = {
    "networkPolicies": ("NetworkPolicy",),
    "podDisruptionBudgets": ("PodDisruptionBudget",),
    "policies": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
FILES = {
    "clients": "bitfusion-clients",
    "gpuPods": "bitfusion-gpu-pods",
    "sizes": "bitfusion-notebook-sizes",
    "clientImages": "bitfusion-client-images",
}
PROGRAMS = {
    "controller": "bitfusion-notebook-controller",
    "injector": "bitfusion-injector",
    "identity": "bitfusion-identity",
    "queue": "bitfusion-queue",
    "devicePlugin": "bitfusion-device-plugin",
}


def thrown(values: Values) -> list[str]:
    """The switches that these values throw, in the order in which kustomize would be given them."""
    defaults: Values = {"gpuPodsOnly": "None", "queue": True, "form": True, "profiles": True}
    given = dict(values)
    # Never without their policy.
    given["profiles"] = values.get("profiles", {}).get("serve", True) and values.get("policies", True)
    found = []
    for name, switch in SWITCHES.items():
        default = defaults.get(name, False)
        if given.get(name, default) != default and switch.parts(values.get("engine", "cluster-gpus")):
            found.append(name)
    return found


def expected(objects: list[Object], values: Values) -> list[Object]:
    """`objects`, changed as the values say."""
    gone = {kind for name, kinds in KINDS.items() if not values.get(name, True) for kind in kinds}
    kept = [item for item in _text(objects, values) if item["kind"] not in gone]
    for item in kept:
        _change(item, values)
    return kept


def _text(objects: list[Object], values: Values) -> list[Object]:
    text = json.dumps(objects)
    images = dict(values.get("images", {}))
    vmware = values.get("vmware", {})
    for value, name in IMAGES.items():
        text = text.replace(f"kubeflow-bitfusion/{name}:0.1.0", _reference(name, images.get(value, {})))
    text = text.replace("kubeflow-bitfusion/packages:0.1.0", _reference("packages", vmware.get("image", {})))
    text = text.replace(PACKAGE, vmware.get("package", PACKAGE))
    text = text.replace(LABEL, values.get("profiles", {}).get("label", LABEL))
    if values.get("gpuPodsOnly") == "Deny":
        text = text.replace('["Warn", "Audit"]', '["Deny"]')
    changed: list[Object] = json.loads(text)
    return changed


def _reference(name: str, image: Mapping[str, str]) -> str:
    repository = image.get("repository", f"kubeflow-bitfusion/{name}")
    digest = image.get("digest")
    return f"{repository}@{digest}" if digest else f"{repository}:{image.get('tag', '0.1.0')}"


def _change(item: Object, values: Values) -> None:
    kind, name = item["kind"], item["metadata"]["name"]
    key, _, label = values.get("profiles", {}).get("label", LABEL).partition("=")
    if kind in ("MutatingWebhookConfiguration", "ValidatingAdmissionPolicyBinding"):
        for each in item.get("webhooks") or [item["spec"].get("matchResources", {})]:
            labels = each.get("namespaceSelector", {}).get("matchLabels", {})
            if labels.pop(LABEL.partition("=")[0], None):
                labels[key] = label
    for value, config_map in FILES.items():
        if kind == "ConfigMap" and name == config_map and values.get(value):
            ((file, _),) = item["data"].items()
            item["data"][file] = yaml.safe_dump(values[value])
    if kind not in ("Deployment", "DaemonSet", "Job", "Pod"):
        return
    pod = item["spec"] if kind == "Pod" else item["spec"]["template"]["spec"]
    if item["spec"].get("replicas") == 2:
        item["spec"]["replicas"] = values.get("replicas", 2)
    if values.get("imagePullSecrets"):
        pod["imagePullSecrets"] = values["imagePullSecrets"]
    if kind != "DaemonSet" and values.get("nodeSelector"):
        pod["nodeSelector"] = values["nodeSelector"]
    if name == "bitfusion-form":
        image = values.get("images", {}).get("notebook", {})
        reference = _reference("", {"repository": "", **image})
        pod["containers"][0]["env"][-1]["value"] = (
            reference if image.get("repository") or image.get("digest") else ""
        )
    if kind in ("Job", "Pod"):
        return
    container = pod["containers"][0]
    container["args"] = _arguments(container["args"], values)
    for value, program in PROGRAMS.items():
        if name == program:
            container["args"] += values.get("extraArgs", {}).get(value, [])
    for port in container["ports"]:
        if port["containerPort"] == 8443:
            port["containerPort"] = values.get("webhookPort", 8443)


def _arguments(arguments: list[str], values: Values) -> list[str]:
    nodes = values.get("gpuNodes", {})
    given = {
        "--gpu-nodes": nodes.get("label"),
        "--gpu-taint": nodes.get("taint"),
        "--quota-keys": ",".join(nodes["quotaKeys"]) if "quotaKeys" in nodes else None,
        "--port": str(values.get("webhookPort", 8443)),
    }
    found = []
    for argument in arguments:
        option, _, default = argument.partition("=")
        text = given.get(option)
        if option == "--port" and default != "8443":  # on the nodes' network they have ports of their own
            text = None
        if text != "":
            found.append(argument if text is None else f"{option}={text}")
    return found


def comparable(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    """By kind, namespace and name; files of ConfigMaps as what they mean."""
    found = {}
    for item in objects:
        if item["kind"] == "ConfigMap":
            item = {**item, "data": {name: yaml.safe_load(text) for name, text in item["data"].items()}}
        metadata = item["metadata"]
        if "helm.sh/hook" in metadata.get("annotations", {}):
            kept = {
                name: text
                for name, text in metadata["annotations"].items()
                if not name.startswith("helm.sh/")
            }
            metadata = {**metadata, "annotations": kept} if kept else _without_annotations(metadata)
            item = {**item, "metadata": metadata}
        found[item["kind"], metadata.get("namespace", ""), metadata["name"]] = item
    return found


def _without_annotations(metadata: Object) -> Object:
    return {name: each for name, each in metadata.items() if name != "annotations"}
