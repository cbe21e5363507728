"""What `make images` writes is read by both: its images stand everywhere, with helm and with kustomize."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.charts.expected import comparable
from tests.cluster.cluster import Cluster, KubectlFailed
from tests.cluster.helm import Helm
from tests.manifests.built import MANIFESTS
from tests.support.objects import objects_of
from tools.chart_templates import ENGINES
from tools.images.lock import Locked, component
from tools.images.lock import values as lock_values

PLACE = "registry.example:5000/team"
DIGEST = "sha256:" + "5" * 64
# A digest, where it was pushed; the pool was only built.
LOCKED = {
    name: Locked(f"{PLACE}/{name}", "0.1.0", "" if name == "pool" else DIGEST)
    for name in ("client", "notebook", "notebook-controller", "pool")
}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A checkout's, in which `make images` has run."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "images-lock").mkdir()
    (tmp_path / "images-lock" / "kustomization.yaml").write_text(component(LOCKED))
    return tmp_path / "manifests"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lock_reaches_every_image(cluster: Cluster, helm: Helm, manifests: Path, engine: str) -> None:
    text = cluster.kubectl("kustomize", str(manifests / "all" / engine))
    by_kustomize = comparable(objects_of(text))
    values = yaml.safe_load(lock_values(LOCKED))
    by_helm = comparable(helm.template(values={"engine": engine, **values}))
    for hook in ("bitfusion-form-give-back", "bitfusion-doctor"):  # helm's alone
        by_helm = {key: each for key, each in by_helm.items() if key[2] != hook}
    assert by_kustomize == by_helm
    assert f"value: {PLACE}/notebook@{DIGEST}" in text
    assert f"{PLACE}/client@{DIGEST}" in text
    left = {"kubeflow-bitfusion/packages:0.1.0"} if engine == "vmware" else set()  # the product's
    assert {word for word in text.split() if word.startswith("kubeflow-bitfusion/")} == left


def test_without_the_lock_kustomize_names_it(cluster: Cluster, manifests: Path) -> None:
    shutil.rmtree(manifests.parent / "images-lock")
    with pytest.raises(KubectlFailed, match="images-lock"):
        cluster.kubectl("kustomize", str(manifests / "all" / "simulated"))
