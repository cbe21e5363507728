"""The pages on JupyterHub and Notebooks v2: their commands run on a cluster, their samples are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_device_plugin.injector.settings import read_settings
from jupyter_ext.spawner import profiles_command, workspacekind_command
from jupyter_ext.spawner.presets import presets
from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from tests.cluster.cluster import Cluster
from tests.jupyter_ext.spawner.doc_shell import ROOT, put_commands, run
from tests.jupyter_ext.spawner.workspaces import KINDS, notebooks_v2
from tests.manifests.built import CONTROLLER, INJECTOR, POD_WEBHOOKS, WEBHOOKS, build, one, pod_template
from tests.support.run_blocks import ran
from tests.support.waiting import wait_until

HUB, V2 = (
    (ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("jupyterhub-pool", "notebooks-v2")
)
HUB_PAGE = "docs/how-to/jupyterhub-pool.md"
NAMESPACE = "/api/v1/namespaces/jupyterhub"
GUIDES_REGISTRY = "REGISTRY=registry.example.com/team\n"
SIZES = parse_sizes(parse_document(example(), "sizes.yaml"))


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_tables_on_the_page_are_the_commands() -> None:
    assert blocks(HUB, "text") == ["\n".join(profiles_command.summary(presets(SIZES), False)) + "\n"]
    assert blocks(V2, "text") == ["\n".join(workspacekind_command.summary(presets(SIZES, (1, 2)))) + "\n"]


def test_the_values_on_the_page_are_yaml_of_the_chart() -> None:
    (text,) = blocks(HUB, "yaml")
    values = yaml.safe_load(text)["singleuser"]
    assert values["startTimeout"] > 300
    (rule,) = values["networkPolicy"]["egress"]
    assert rule["ports"] == [{"port": 56001, "protocol": "TCP"}]


@pytest.fixture
def shell(tmp_path: Path, cluster: Cluster) -> Path:
    """A folder with a list of sizes and the manifests, where both commands are on PATH."""
    put_commands(tmp_path / "bin", cluster)
    place = tmp_path / "place"
    place.mkdir()
    (place / "manifests").symlink_to(ROOT / "manifests")
    (place / "sizes.yaml").write_text(example(), encoding="utf-8")
    return place


@pytest.mark.runs(f"{HUB_PAGE}#1. The profiles", f"{HUB_PAGE}#2. The hub's namespace")
def test_the_hubs_namespace_is_one_that_the_injector_is_asked_about(shell: Path, cluster: Cluster) -> None:
    profiles, opt_in, _ = blocks(HUB, "sh")
    run(shell, profiles)
    assert yaml.safe_load((shell / "profiles.yaml").read_text())["singleuser"]["profileList"]
    webhook, _ = one(build(cluster, "kubeflow"), "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
    chosen = webhook["namespaceSelector"]["matchLabels"].items()
    wait_until(lambda: not cluster.client.exists(NAMESPACE), limit_s=40)
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": "jupyterhub"}})
    try:
        assert not chosen <= cluster.client.get(NAMESPACE)["metadata"]["labels"].items()
        run(shell, opt_in)
        labels = cluster.client.get(NAMESPACE)["metadata"]["labels"]
        assert chosen <= labels.items()
        assert labels["bitfusion.io/identity"] == "true"
        role = cluster.kubectl("get", "role", "--namespace", "jupyterhub", "-o", "name")
        assert "bitfusion" in role
    finally:
        cluster.client.delete(NAMESPACE)


@pytest.mark.runs(f"{HUB_PAGE}#Without Kubeflow")
def test_without_kubeflow_the_guides_folder_has_all_but_the_controller(shell: Path) -> None:
    """Of what is written, for what is applied needs images."""
    *_, leave_out = blocks(HUB, "sh")
    write_the_guides_folder(shell)
    before = {_name(item) for item in built(shell)}
    run(shell, GUIDES_REGISTRY + leave_out.replace("kubectl apply -k", "kubectl apply --dry-run=client -k"))
    ran(leave_out)
    objects = built(shell)
    after = {_name(item) for item in objects}
    gone = {("Deployment", CONTROLLER), ("MutatingWebhookConfiguration", WEBHOOKS)}
    roles = {name for name in before if name[0] == "ClusterRole" and name not in after}
    assert before - after - roles == gone
    assert all(rules.startswith("kubeflow-bitfusion-") for _, rules in roles)  # of Kubeflow's own roles
    namespaced = [item for item in objects if "namespace" in item["metadata"]]
    assert {item["metadata"]["namespace"] for item in namespaced} == {"bitfusion-system"}
    (clients,) = [item for item in objects if _name(item) == ("ConfigMap", "bitfusion-clients")]
    assert "registry.example.com/team/client" in clients["data"]["clients.yaml"]


def test_the_injector_is_told_how_much_memory_a_gpu_has_as_the_guide_says(shell: Path) -> None:
    write_the_guides_folder(shell)
    (patch,) = blocks((ROOT / "docs/how-to/memory-sizes.md").read_text(encoding="utf-8"), "yaml")
    with open(shell / "my-bitfusion" / "kustomization.yaml", "a", encoding="utf-8") as file:
        file.write(patch)
    arguments = pod_template(built(shell), INJECTOR)["spec"]["containers"][0]["args"]
    (memory,) = [text.partition("=")[2] for text in arguments if text.startswith("--gpu-memory=")]
    assert read_settings({"gpu_memory": memory, "namespace": "kubeflow"}, {}).gpu_memory == 16160


def write_the_guides_folder(shell: Path) -> None:
    page = (ROOT / "docs/tutorials/kubeflow-pool.md").read_text(encoding="utf-8")
    step = blocks(page.partition("\n## 3. Controller, injector and identity\n")[2], "sh")[0]
    run(shell, GUIDES_REGISTRY + step)


def built(shell: Path) -> list[dict[str, Any]]:
    """The objects of the guide's folder as kubectl makes them."""
    return [item for item in yaml.safe_load_all(run(shell, "kubectl kustomize my-bitfusion").stdout) if item]


def _name(item: dict[str, Any]) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


@pytest.mark.runs("docs/how-to/notebooks-v2.md")
def test_the_kind_is_applied_as_on_the_page(shell: Path, cluster: Cluster) -> None:
    (commands,) = blocks(V2, "sh")
    with notebooks_v2(cluster):
        run(shell, commands)
        options = cluster.client.get(f"{KINDS}/jupyterlab-bitfusion")["spec"]["podTemplate"]["options"]
        assert len(options["podConfig"]["values"]) == 9
        assert options["podConfig"]["values"][3]["spec"]["resources"] == {
            "limits": {"bitfusion.io/gpu-50": "1"},
            "requests": {"cpu": "2", "memory": "8Gi"},
        }


def test_what_was_added_to_a_kind_stays_when_it_is_applied_again(shell: Path, cluster: Cluster) -> None:
    (commands,) = blocks(V2, "sh")
    image = {"image": "team/other:1.0", "ports": [{"id": "jupyterlab", "port": 8888}]}
    added = {"id": "other", "spawner": {"displayName": "other"}, "spec": image}
    path = "/spec/podTemplate/options/imageConfig/values/-"
    with notebooks_v2(cluster):
        run(shell, commands)
        cluster.client.patch(f"{KINDS}/jupyterlab-bitfusion", [{"op": "add", "path": path, "value": added}])
        (shell / "sizes.yaml").write_text("sizes:\n- {label: B 10 %, share: 10 %}\n", encoding="utf-8")
        run(shell, commands)
        options = cluster.client.get(f"{KINDS}/jupyterlab-bitfusion")["spec"]["podTemplate"]["options"]
        assert [value["id"] for value in options["imageConfig"]["values"]] == ["notebook:1.0", "other"]
        configs = [value["id"] for value in options["podConfig"]["values"]]
        assert configs == ["no-gpu", "gpu-10-x1", "gpu-10-x2"]
