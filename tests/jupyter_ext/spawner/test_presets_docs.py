"""docs/spawner.md on JupyterHub and Notebooks v2: its commands run on a cluster, its samples are theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from jupyter_ext.spawner import profiles_command, workspacekind_command
from jupyter_ext.spawner.presets import presets
from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from tests.cluster.cluster import Cluster
from tests.jupyter_ext.spawner.doc_shell import ROOT, put_commands, run
from tests.jupyter_ext.spawner.workspaces import KINDS, notebooks_v2
from tests.manifests.built import POD_WEBHOOKS, build, one
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs/spawner.md").read_text(encoding="utf-8")
HUB, V2 = (
    re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    for title in ("JupyterHub", "Kubeflow Notebooks v2")
)
NAMESPACE = "/api/v1/namespaces/jupyterhub"
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


def test_the_hubs_namespace_is_one_that_the_injector_is_asked_about(shell: Path, cluster: Cluster) -> None:
    profiles, opt_in = blocks(HUB, "sh")
    run(shell, profiles)
    assert yaml.safe_load((shell / "profiles.yaml").read_text())["singleuser"]["profileList"]
    (webhook,) = one(build(cluster, "kubeflow"), "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
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
