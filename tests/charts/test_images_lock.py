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
from tools.chart_templates import ENGINES
from tools.images.lock import Locked, component, values
from tools.images.wishes import NAMES

HELMS_OWN = ("bitfusion-doctor", "bitfusion-form-give-back")
PLACE = "registry.example:5000/team"
DIGEST = "sha256:" + "5" * 64
# A digest, where it was pushed; the pool was only built.
LOCK = {name: Locked(f"{PLACE}/{name}", "0.1.0", "" if name == "pool" else DIGEST) for name in NAMES}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A checkout's, in which `make images` has run."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "images-lock").mkdir()
    (tmp_path / "images-lock" / "kustomization.yaml").write_text(component(LOCK))
    return tmp_path / "manifests"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lock_reaches_every_image(cluster: Cluster, helm: Helm, manifests: Path, engine: str) -> None:
    text = cluster.kubectl("kustomize", str(manifests / "all" / engine))
    by_kustomize = comparable([item for item in yaml.safe_load_all(text) if item])
    rendered = helm.template(values={"engine": engine, **yaml.safe_load(values(LOCK))})
    # Of the hooks kustomize has only the form's Job, and the doctor is helm's alone.
    by_helm = {key: each for key, each in comparable(rendered).items() if key[2] not in HELMS_OWN}
    assert by_kustomize == by_helm
    assert f"value: {PLACE}/notebook@{DIGEST}\n" in text
    assert f"{PLACE}/client@{DIGEST}" in text
    left = {"kubeflow-bitfusion/packages:0.1.0"} if engine == "vmware" else set()  # the product's
    assert {word for word in text.split() if word.startswith("kubeflow-bitfusion/")} == left


def test_without_the_lock_kustomize_names_it(cluster: Cluster, manifests: Path) -> None:
    shutil.rmtree(manifests.parent / "images-lock")
    with pytest.raises(KubectlFailed, match="images-lock"):
        cluster.kubectl("kustomize", str(manifests / "all" / "simulated"))
