"""What `make images` writes is read by both: its images stand everywhere, with helm and with kustomize."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.expected import comparable
from tests.cluster.cluster import Cluster, KubectlFailed
from tests.cluster.helm import Helm
from tests.manifests.built import MANIFESTS
from tests.support.objects import objects_of
from tools.chart_templates import ENGINES

PLACE = "registry.example:5000/team"
DIGEST = "sha256:" + "5" * 64
NAMES = {"client": "client", "notebookController": "notebook-controller", "pool": "pool"}
# A digest, where it was pushed; the pool was only built.
LOCK: dict[str, dict[str, str]] = {
    key: {"repository": f"{PLACE}/{name}", "tag": "0.1.0", "digest": "" if key == "pool" else DIGEST}
    for key, name in NAMES.items()
}


def component() -> dict[str, Any]:
    """The folder images-lock beside the manifests."""
    images = []
    for key, name in NAMES.items():
        image = LOCK[key]
        pinned = {"digest": image["digest"]} if image["digest"] else {"newTag": image["tag"]}
        images.append({"name": f"kubeflow-bitfusion/{name}", "newName": image["repository"], **pinned})
    return {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "images": images}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A checkout's, in which `make images` has run."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "images-lock").mkdir()
    (tmp_path / "images-lock" / "kustomization.yaml").write_text(yaml.safe_dump(component()))
    return tmp_path / "manifests"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lock_reaches_every_image(cluster: Cluster, helm: Helm, manifests: Path, engine: str) -> None:
    text = cluster.kubectl("kustomize", str(manifests / "all" / engine))
    by_kustomize = comparable(objects_of(text))
    rendered = helm.template("--no-hooks", values={"engine": engine, "images": LOCK})
    # The form's Job is a hook there, and the doctor is helm's alone.
    by_helm = {key: each for key, each in comparable(rendered).items() if key[2] != "bitfusion-doctor"}
    del by_kustomize["Job", "kubeflow", "bitfusion-form"]
    assert by_kustomize == by_helm
    assert f"{PLACE}/client@{DIGEST}" in text
    left = {"kubeflow-bitfusion/packages:0.1.0"} if engine == "vmware" else set()  # the product's
    assert {word for word in text.split() if word.startswith("kubeflow-bitfusion/")} == left


def test_without_the_lock_kustomize_names_it(cluster: Cluster, manifests: Path) -> None:
    shutil.rmtree(manifests.parent / "images-lock")
    with pytest.raises(KubectlFailed, match="images-lock"):
        cluster.kubectl("kustomize", str(manifests / "all" / "simulated"))
