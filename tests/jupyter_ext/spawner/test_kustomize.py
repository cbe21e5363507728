"""The written folders, built by kustomize with manifests that have Kubeflow's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeflow_bitfusion.cli import main
from tests.jupyter_ext.spawner.kubeflow_manifests import CONFIG, FORM, build, builders, one, write_manifests

SIZES = "sizes:\n- label: BITFUSION\n- {label: BITFUSION 50 %, share: 50 %, default: true}\n"
# what builds each Kubeflow's manifests: kustomize 3.2.0 up to 1.6, where somebody still has it
TOOLS = [pytest.param("kubectl", id="kubectl")] + [
    pytest.param(name, id=name.replace(" ", "-")) for name in builders() if name != "kubectl"
]


def write(tmp_path: Path, version: str, *more: str) -> Path:
    """Kubeflow's manifests with our folder; returns the folder to build."""
    form = write_manifests(tmp_path, version)
    (tmp_path / "sizes.yaml").write_text(SIZES)
    ours = form.parent / "bitfusion" if version in ("1.4", "1.6", "1.7") else tmp_path / "bitfusion"
    arguments = ["--kubeflow", version, "--kustomize", str(ours), *more]
    assert main(["form", str(tmp_path / "sizes.yaml"), "--config", str(form / CONFIG), *arguments]) == 0
    return ours if version in ("1.4", "1.6", "1.7") else beside(tmp_path, FORM[version])


def beside(tmp_path: Path, form: str) -> Path:
    text = {"resources": [f"../{form}/overlays/istio"], "components": ["../bitfusion"]}
    folder = tmp_path / "all"
    folder.mkdir(exist_ok=True)
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**kind, **text}))
    return folder


def form_container(objects: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    pod = one(objects, "Deployment", "jupyter-web-app-deployment")["spec"]["template"]["spec"]
    assert len(pod["containers"]) == 1
    return pod, pod["containers"][0]


def config_of(objects: list[dict[str, Any]]) -> tuple[str, Any]:
    found = one(objects, "ConfigMap", "jupyter-web-app-config-")
    text = found["data"]["spawner_ui_config.yaml"]
    return found["metadata"]["name"], yaml.safe_load(text)["spawnerFormDefaults"]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("version", FORM)
def test_the_form_reads_the_new_list_and_restarts_for_it(tmp_path: Path, version: str, tool: str) -> None:
    if tool == "kustomize 3" and version not in ("1.4", "1.6", "1.7"):
        pytest.skip("Kubeflow 1.8 and later want kustomize 5")
    folder = write(tmp_path, version)
    before, _ = config_of(build(tmp_path / FORM[version] / "overlays/istio", tool))
    objects = build(folder, tool)
    name, defaults = config_of(objects)
    pod, container = form_container(objects)
    assert [vendor["uiName"] for vendor in defaults["gpus"]["value"]["vendors"]][-2:] == [
        "BITFUSION",
        "BITFUSION 50 %",
    ]
    assert defaults["gpus"]["value"]["vendor"] == "bitfusion.io/gpu-50"
    assert {"name": "config-volume", "configMap": {"name": name}} in pod["volumes"]
    assert name != before  # a new name is a new template: the Deployment rolls
    assert container["image"] == "example.org/jupyter-web-app:v1"
    assert [variable["name"] for variable in container["env"]] == ["UI"]
    assert all(item["metadata"]["namespace"] == "kubeflow" for item in objects)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("version", ["1.4", "1.7", "1.8", "1.11"])
def test_the_hook_is_one_mounted_file_named_to_gunicorn(tmp_path: Path, version: str, tool: str) -> None:
    if tool == "kustomize 3" and version not in ("1.4", "1.6", "1.7"):
        pytest.skip("Kubeflow 1.8 and later want kustomize 5")
    objects = build(write(tmp_path, version, "--hook"), tool)
    pod, container = form_container(objects)
    hook = one(objects, "ConfigMap", "bitfusion-form-hook-")
    (file,) = hook["data"]
    assert {"name": "UI", "value": "default"} in container["env"]
    (arguments,) = [item["value"] for item in container["env"] if item["name"] == "GUNICORN_CMD_ARGS"]
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "bitfusion-form-hook"]
    assert arguments == f"--config {mount['mountPath']}/{file}"
    assert mount["readOnly"] is True
    volume = {"name": "bitfusion-form-hook", "configMap": {"name": hook["metadata"]["name"]}}
    assert volume in pod["volumes"]
    assert len(hook["data"][file].encode()) < 200_000  # a ConfigMap holds 1 MiB
    compile(hook["data"][file], file, "exec")
    assert "command" not in container
    assert "args" not in container


@pytest.mark.parametrize("version", ["1.7", "1.10"])
def test_the_hook_alone_leaves_the_list_as_it_is(tmp_path: Path, version: str) -> None:
    form = write_manifests(tmp_path, version)
    ours = form.parent / "bitfusion" if version == "1.7" else tmp_path / "bitfusion"
    assert main(["form", "--hook", "--kubeflow", version, "--kustomize", str(ours)]) == 0
    folder = ours if version == "1.7" else beside(tmp_path, FORM[version])
    objects = build(folder)
    assert config_of(objects) == config_of(build(form / "overlays/istio"))
    assert one(objects, "ConfigMap", "bitfusion-form-hook-")


def test_an_overlay_can_stand_elsewhere(tmp_path: Path) -> None:
    form = write_manifests(tmp_path, "1.6")
    (tmp_path / "sizes.yaml").write_text(SIZES)
    arguments = ["--kubeflow", "v1.6.1", "--base", f"../{FORM['1.6']}/overlays/istio"]
    options = ["--config", str(form / CONFIG), "--kustomize", str(tmp_path / "mine"), *arguments]
    assert main(["form", str(tmp_path / "sizes.yaml"), *options]) == 0
    assert config_of(build(tmp_path / "mine"))[1]["gpus"]["value"]["num"] == "1"
