"""docs/how-to/install.md on a real API server: by helm and by kustomize, and the doctor's word on it.

Images are built as `played_builder` has it. Our programs and the form's Jobs run as processes with the rights
that were installed, other programs on paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.charts.everything import everything
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.guide import DOCS, REGISTRY, Block, Reader, blocks
from tests.cluster.helm import Helm
from tests.kubeflow_bitfusion.installed_cluster import used_kubeflow
from tests.manifests.built import PROCESSES
from tests.manifests.played_jobs import played_jobs
from tests.manifests.stand_in import StandIn
from tests.support.documents import ROOT, shell_blocks
from tests.support.run_blocks import ran
from tests.support.waiting import wait_until
from tests.tools.played_builder import DIGEST

pytestmark = [pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(300)]
PAGE = DOCS / "how-to" / "install.md"
TUTORIAL = DOCS / "tutorials" / "kubeflow.md"
HELM, KUSTOMIZE, VMWARE, DOCTOR, MOVE, UNINSTALL = (
    *("With helm", "With kustomize", "For VMware's product", "Check the installation"),
    *("Move from an older installation", "Uninstall"),
)


@pytest.fixture
def reader(cluster: Cluster, helm: Helm, tmp_path: Path) -> Iterator[Reader]:
    """In a clone with images that are built, on a Kubeflow with users."""
    with ExitStack() as around:
        around.enter_context(used_kubeflow(cluster, tmp_path))
        ours = [around.enter_context(StandIn(cluster, tmp_path, "kubeflow", name=each)) for each in PROCESSES]
        no_job = played_jobs(cluster, tmp_path)

        def schedulable(pod: Object) -> bool:
            return no_job(pod) and all(each.ready(pod) for each in ours)

        around.enter_context(cluster.node_stub(schedulable=schedulable))
        found = Reader(cluster, tmp_path, cloned=True)
        (found.bridge / "helm").symlink_to(helm.program)
        found.run(blocks(page=DOCS / "how-to" / "images.md")[0])
        yield found


def form(cluster: Cluster) -> str:
    """What the notebook form offers."""
    maps = cluster.client.get("/api/v1/namespaces/kubeflow/configmaps")["items"]
    (text,) = (
        each["data"]["spawner_ui_config.yaml"] for each in maps if "spawner_ui_config.yaml" in each["data"]
    )
    return str(text)


def is_well(reader: Reader, doctor: Block) -> None:
    wait_until(
        lambda: reader.shell(doctor.commands).returncode == 0,
        lambda: reader.shell(doctor.commands).stdout,
        60,
    )


def taken_away(cluster: Cluster, before: set[str]) -> None:
    wait_until(
        lambda: everything(cluster) <= before, lambda: f"nothing is left: {everything(cluster) - before}", 60
    )


@pytest.mark.runs(
    "docs/how-to/install.md",
    "docs/how-to/images.md#Use what was built",
    "README.md#Get it#make images",
    *(f"docs/tutorials/kubeflow.md#{each}" for each in ("2. Install", "3. Look at it", "The first GPU cell")),
)
def test_every_command_of_the_page(cluster: Cluster, reader: Reader) -> None:
    install, wrong, values = blocks(HELM, page=PAGE)
    apply, mine = blocks(KUSTOMIZE, page=PAGE)
    vmware, doctor, move, uninstall, old = blocks(VMWARE, DOCTOR, MOVE, UNINSTALL, page=PAGE)
    before, form_before = everything(cluster), form(cluster)

    reader.run(wrong)
    reader.run(values)
    template = reader.shell(f"{install.commands.rstrip().replace('install', 'template')} -f my-values.yaml")
    assert template.returncode == 0, template.stdout
    assert "nvidia.com/mig-3g.20gb: '{gpus}'" in template.stdout
    reader.run(install)
    is_well(reader, doctor)
    assert f"{REGISTRY}/notebook@{DIGEST}" in form(cluster)
    *three, gpu_pods = blocks(page=TUTORIAL)
    together = "".join(block.commands for block in three if block.language == "sh")
    (as_in_readme,) = (each for each in shell_blocks((ROOT / "README.md").read_text()) if "helm" in each)
    assert together.endswith(as_in_readme)
    ran(as_in_readme)
    reader.run(gpu_pods._replace(printed=None))  # shown by tests/cluster/test_three_commands.py
    reader.run(uninstall)
    taken_away(cluster, before)
    assert form(cluster) == form_before

    reader.run(apply)
    is_well(reader, doctor)
    reader.run(move)
    is_well(reader, doctor)
    reader.run(uninstall)
    reader.run(old)
    taken_away(cluster, before)

    (reader.folder / "vmware").mkdir()
    for name in ("client.yaml", "servers.conf", "ca.crt"):
        (reader.folder / "vmware" / name).write_text("x")
    reader.run(vmware)
    found = cluster.client.get("/api/v1/namespaces/kubeflow/configmaps/bitfusion-clients")["data"]
    assert f"{REGISTRY}/bitfusion-client-ubuntu2204:454" in found["clients.yaml"]
    reader.run(uninstall)
    cluster.client.delete("/api/v1/namespaces/kubeflow/secrets/bitfusion-issuer")
    taken_away(cluster, before)

    (reader.folder / "my-bitfusion").mkdir()
    (reader.folder / "my-bitfusion" / "pods.yaml").write_text("rules: []\n")
    reader.run(mine)
    done = reader.shell("kubectl kustomize my-bitfusion")
    assert done.returncode == 0, done.stdout
    assert "kind: Certificate\n" in done.stdout
    assert "pods.yaml: |\n    rules: []\n" in done.stdout
