"""A folder for kustomize that puts our files into Kubeflow's own manifests of the form.

Kubeflow's names, the same from 1.4 to 1.11: Deployment ``jupyter-web-app-deployment`` with the container
``jupyter-web-app``, and a ConfigMap that its manifests generate as ``jupyter-web-app-config`` with the key
``spawner_ui_config.yaml``, all in the namespace ``kubeflow``. Merging into the generated ConfigMap, rather
than patching it, gives it a new name, so that the form restarts with the new list.
What differs is the tool. Up to 1.6 Kubeflow demands kustomize 3.2.0, which knows neither components nor
``patches`` with a file: for these, and 1.7, the folder is an overlay over Kubeflow's. From 1.8 on (kustomize
5) it is a component, which can be listed beside others.
"""

from __future__ import annotations

import json

CONFIG_FILE = "spawner_ui_config.yaml"
HOOK_FILE = "bitfusion_form_hook.py"
PATCH_FILE = "form-deployment.yaml"
KUSTOMIZATION = "kustomization.yaml"

NAMESPACE = "kubeflow"
CONFIG_MAP = "jupyter-web-app-config"
DEPLOYMENT = "jupyter-web-app-deployment"
CONTAINER = "jupyter-web-app"
HOOK_MAP = "bitfusion-form-hook"
HOOK_FOLDER = "/etc/bitfusion"

VERSIONS = ("1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11")
OVERLAY_VERSIONS = VERSIONS[:4]
DEFAULT_BASE = "../upstream/overlays/istio"  # beside `upstream` in apps/jupyter/jupyter-web-app


def is_overlay(version: str) -> bool:
    """Whether this Kubeflow (one of `VERSIONS`) gets an overlay; else a component."""
    return version in OVERLAY_VERSIONS


def folder(version: str, base: str, config: str | None, hook: str | None) -> dict[str, str]:
    """Names and texts of the folder's files; `config` and `hook` are texts of files, None without."""
    files = {KUSTOMIZATION: _kustomization(version, base, config is not None, hook is not None)}
    if config is not None:
        files[CONFIG_FILE] = config
    if hook is not None:
        files[HOOK_FILE] = hook
        files[PATCH_FILE] = _deployment_patch()
    return files


def _kustomization(version: str, base: str, has_config: bool, has_hook: bool) -> str:
    overlay = is_overlay(version)
    if overlay:
        lines = [
            f"# Kubeflow's notebook form with GPU sizes, for Kubeflow {version}. Build or name this folder",
            "# in place of the one under `resources`.",
            "apiVersion: kustomize.config.k8s.io/v1beta1",
            "kind: Kustomization",
            f"namespace: {NAMESPACE}",
            "resources:",
            f"- {json.dumps(base)}",
        ]
    else:
        lines = [
            f"# GPU sizes in Kubeflow's notebook form, for Kubeflow {version}. Name this folder under",
            "# `components` of the kustomization whose `resources` have the form.",
            "apiVersion: kustomize.config.k8s.io/v1alpha1",
            "kind: Component",
        ]
    lines.append("configMapGenerator:")
    for name, file, merged in ((CONFIG_MAP, CONFIG_FILE, True), (HOOK_MAP, HOOK_FILE, False)):
        if has_config if merged else has_hook:
            lines += [f"- name: {name}", f"  namespace: {NAMESPACE}"]
            lines += ["  behavior: merge"] if merged else []
            lines += ["  files:", f"  - {file}"]
    if has_hook:
        lines += ["patchesStrategicMerge:", f"- {PATCH_FILE}"] if overlay else []
        lines += [] if overlay else ["patches:", f"- path: {PATCH_FILE}"]
    return "\n".join(lines) + "\n"


def _deployment_patch() -> str:
    return f"""\
# The form's backend reads the hook when it starts; its image and command stay as they are.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {DEPLOYMENT}
  namespace: {NAMESPACE}
spec:
  template:
    spec:
      containers:
      - name: {CONTAINER}
        env:
        - name: GUNICORN_CMD_ARGS
          value: --config {HOOK_FOLDER}/{HOOK_FILE}
        volumeMounts:
        - name: {HOOK_MAP}
          mountPath: {HOOK_FOLDER}
          readOnly: true
      volumes:
      - name: {HOOK_MAP}
        configMap:
          name: {HOOK_MAP}
"""
