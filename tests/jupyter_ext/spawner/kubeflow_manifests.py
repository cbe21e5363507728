"""Kubeflow's manifests of its notebook form, cut down to what ours meet: names, generator, folders.

The same from 1.4 to 1.11 but for the folder they lie in; the names are facts of Kubeflow, the text is not
theirs. The image is never run here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import cached
from tests.jupyter_ext.spawner.spawner_configs import NEWER, OLDER
from tests.support.machine import scaled

FORM = {
    "1.4": "apps/jupyter/jupyter-web-app/upstream",
    "1.6": "apps/jupyter/jupyter-web-app/upstream",
    "1.7": "apps/jupyter/jupyter-web-app/upstream",
    "1.8": "apps/jupyter/jupyter-web-app/upstream",
    "1.9": "apps/jupyter/jupyter-web-app/upstream",
    "1.10": "applications/jupyter/jupyter-web-app/upstream",
    "1.11": "applications/notebooks-v1/upstream/jupyter-web-app",
}
CONFIG = "base/configs/spawner_ui_config.yaml"

_BASE = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- deployment.yaml
namePrefix: jupyter-web-app-
namespace: kubeflow
commonLabels:
  app: jupyter-web-app
  kustomize.component: jupyter-web-app
images:
- name: jupyter-web-app
  newName: example.org/jupyter-web-app
  newTag: v1
configMapGenerator:
- envs:
  - params.env
  name: parameters
- files:
  - configs/spawner_ui_config.yaml
  name: config
"""
_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: deployment
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: jupyter-web-app
        image: jupyter-web-app
        ports:
        - containerPort: 5000
        volumeMounts:
        - mountPath: /etc/config
          name: config-volume
        env:
        - name: UI
          value: default
      volumes:
      - configMap:
          name: config
        name: config-volume
"""
_OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../base
namespace: kubeflow
"""


def write_manifests(folder: Path, version: str) -> Path:
    """Kubeflow's manifests as a checkout has them; returns the folder `upstream` of the form."""
    form = folder / FORM[version]
    files = {
        "base/kustomization.yaml": _BASE,
        "base/deployment.yaml": _DEPLOYMENT,
        "base/params.env": "JWA_UI=default\n",
        CONFIG: OLDER if version in ("1.4", "1.6", "1.7") else NEWER,
        "overlays/istio/kustomization.yaml": _OVERLAY,
    }
    for name, text in files.items():
        path = form / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return form


def builders() -> dict[str, list[str]]:
    """Commands that build a folder, by what they call themselves; the folder is their last argument."""
    found: dict[str, list[str]] = {}
    kubectl = shutil.which("kubectl")
    if kubectl is not None:
        told = subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True, text=True)
        try:
            version = json.loads(told.stdout).get("kustomizeVersion", "")
        except ValueError:
            version = ""
        if version.startswith("v5"):
            found["kubectl"] = [kubectl, "kustomize"]
    binaries = cached()
    if "kubectl" not in found and binaries is not None:
        found["kubectl"] = [str(binaries.path("kubectl")), "kustomize"]
    kustomize = shutil.which("kustomize")
    if kustomize is not None:
        told = subprocess.run([kustomize, "version"], capture_output=True, text=True)
        old = not told.stdout.lstrip().startswith("v")
        found["kustomize 3" if old else "kustomize"] = [kustomize, "build"]
    return found


def build(folder: Path, tool: str = "kubectl") -> list[dict[str, Any]]:
    """The objects that a tool makes of a folder; skips without it."""
    command = builders().get(tool)
    if command is None:
        pytest.skip(f"needs {tool} with kustomize 5")
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=scaled(50))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(objects: list[dict[str, Any]], kind: str, start: str) -> dict[str, Any]:
    """The one object of a kind whose name starts so."""
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"].startswith(start)]
    assert len(found) == 1, found
    return found[0]
