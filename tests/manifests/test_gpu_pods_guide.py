"""The pages about GPU pods, and the tutorial: commands run on the test cluster, tables as in the code.

What a pod's programs do on real nodes is shown by tests/cluster/test_gpu_pods.py. Here our own programs are
stand-ins' processes, and no kubelet runs a pod: see tests/cluster/test_docs_kubeflow.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from bitfusion_client.gpu_pods.settings import parse_settings, settings_from_text
from bitfusion_client.kubernetes.raw_objects import labels_of
from bitfusion_client.pod import pod_contract
from bitfusion_pods.places.network_policies import EGRESS, direction
from tests.cluster.cluster import Cluster
from tests.cluster.guide import (
    BASH,
    INSTALL,
    NOTEBOOK,
    PROFILE,
    PROFILE_STEP,
    ROOT,
    Reader,
    blocks,
    places,
)
from tests.cluster.test_docs_kubeflow import run_deployments
from tests.cluster.zsh import zsh
from tests.manifests.installed import kubeflow_namespace, namespaces, remove
from tests.pods.pod.golden_pods import golden_pod
from tests.support.waiting import wait_until
from tests.test_words import texts

DOCS = ROOT / "docs"
SIZES, ERRORS = DOCS / "reference" / "gpu-pods.md", DOCS / "reference" / "messages.md"
HUB_PAGE, LIMITS_PAGE, KUEUE_PAGE = (
    DOCS / "how-to" / f"{name}.md" for name in ("jupyterhub-gpu-pods", "quotas-gpu-pods", "kueue")
)
RULES = ROOT / "examples" / "gpu-pods"
NOT_RULES = {"dra-claim-templates", "all-settings"}
HUB = "jupyterhub"
KEEPS = {True: "the cluster", False: "TensorFlow, PyTorch, JAX"}
WORDS = [*(ROOT / "bitfusion_pods").rglob("*.py"), ROOT / "bitfusion_client" / "errors.py"]
WORDS += (ROOT / "bitfusion_client" / "gpu_pods").rglob("*.py")
START_SCRIPT = ROOT / "bitfusion_pods" / "agent" / "bitfusion"


WITH = {
    "create pods": "{x} {x}",
    "create secrets": "{x} {x}",
    "requested, 0 allowed": "requested, {x} allowed",
}
"""What stands in the table for what the code fills in."""


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = page.read_text(encoding="utf-8")
    part = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    rows = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert rows is not None
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[0].splitlines()[2:]]


def test_the_table_of_sizes_is_that_of_the_files() -> None:
    expected = []
    for file in RULES.glob("*.yaml"):
        if file.stem in NOT_RULES:
            continue
        for rule in parse_settings(yaml.safe_load(file.read_text()), file.name).rules:
            parts = rule.share is not None or rule.memory is not None
            kept = KEEPS[rule.keeps_memory] if parts else "–"
            expected.append(
                [f"`{file.name}`", f"`{rule.name}`", rule.describe(), "yes" if rule.isolated else "no", kept]
            )
    shown = [[cell.strip(" |") for cell in row] for row in table(SIZES, "Sizes")]
    assert sorted(shown) == sorted(expected)


def test_the_words_of_errors_are_those_of_the_code() -> None:
    everything = "\n".join(text for path in WORDS for _, text in texts(path)) + START_SCRIPT.read_text()
    shown = [row[0].strip("| ") for row in table(ERRORS, "With GPU pods")]
    assert len(shown) > 12
    for words in shown:
        for wanted in words.strip("`").split("`, `"):
            for spelled, variable in WITH.items():
                wanted = wanted.replace(spelled, variable)
            assert wanted in everything, words


def test_the_settings_of_a_hub_are_read() -> None:
    written = [block.commands for block in blocks(page=HUB_PAGE) if "pods.json" in block.commands]
    text = re.search(r"^\{.*\}$", written[0], re.MULTILINE)
    assert text is not None
    settings = settings_from_text(text[0].replace("$REGISTRY", "registry.example.com/team"))
    assert (settings.cpu, settings.memory) == ("4", "16Gi")
    chart, alone = (
        yaml.safe_load(each)["singleuser"]
        for each in re.findall(r"(?ms)^```yaml\n(.*?)^```$", HUB_PAGE.read_text(encoding="utf-8"))
    )
    role = yaml.safe_load_all((ROOT / "manifests/components/gpu-pods-jupyterhub/rbac.yaml").read_text())
    assert chart["serviceAccountName"] == next(role)["metadata"]["name"]
    variables = alone["extraEnv"]
    assert (ROOT / variables["BITFUSION_CLIENT"].partition("site-packages/")[2]).is_file()
    (mount,) = alone["storage"]["extraVolumeMounts"]
    assert variables["BITFUSION_PODS_SETTINGS"] == f"{mount['mountPath']}/pods.json"
    server: dict[str, object] = {}
    gpu_pod = golden_pod("whole")
    policy = {
        "spec": {"podSelector": {}, "policyTypes": [EGRESS], "egress": chart["networkPolicy"]["egress"]}
    }
    for port, is_open in ((settings.port, True), (settings.port + 1, False)):
        assert direction([policy], EGRESS, server, gpu_pod, HUB, port).is_open is is_open


@pytest.fixture
def around() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["bash", pytest.param("zsh", marks=pytest.mark.long)])
def shell(request: pytest.FixtureRequest) -> Sequence[str]:
    """The command of the reader's shell."""
    return BASH if request.param == "bash" else zsh()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.runs(*places(INSTALL, PROFILE_STEP, NOTEBOOK))
def test_a_notebook_of_kubeflow_gets_the_client_for_gpu_pods(
    cluster: Cluster, tmp_path: Path, around: ExitStack, shell: Sequence[str]
) -> None:
    around.enter_context(kubeflow_namespace(cluster, PROFILE))
    around.enter_context(cluster.notebook_controller("1.8", PROFILE))
    around.callback(remove, cluster, "kubeflow")
    run_deployments(cluster, tmp_path, "kubeflow", around)
    reader = Reader(cluster, tmp_path, shell=shell)
    reader.follow(INSTALL, PROFILE_STEP, NOTEBOOK)
    pod = cluster.client.get(f"/api/v1/namespaces/{PROFILE}/pods/bitfusion-sample-0")
    (init,) = pod["spec"]["initContainers"]
    assert init["args"][-2:] == [pod_contract.PODS, ""]
    settings = next(each["value"] for each in init["env"] if each["name"] == pod_contract.ENV_SETTINGS)
    assert json.loads(settings)["rules"][0]["name"] == "whole"
    assert init["image"] == "registry.example.com/team/client:0.1.0"
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert [name for name in limits if "bitfusion" in name or "nvidia" in name] == []  # no units, no GPU
    wishes = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert "nvidia.com/gpu.present" in str(wishes)
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["spec"]["tolerations"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in pod["spec"]["containers"][0]["env"]
    assert "notebook-name" in labels_of(pod)  # whom the NetworkPolicy lets in


@pytest.mark.runs("docs/how-to/quotas-gpu-pods.md", "docs/how-to/jupyterhub-gpu-pods.md")
def test_the_commands_for_limits_and_for_a_hub_do_what_they_say(
    cluster: Cluster, tmp_path: Path, around: ExitStack, shell: Sequence[str]
) -> None:
    around.enter_context(namespaces(cluster, {PROFILE: {}, HUB: {}}))
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        for name in (
            *("bitfusion-gpu-pods-only", "bitfusion-gpu-pods-gate"),
            *("bitfusion-notebook-account", "bitfusion-notebook-secrets"),
        ):
            around.callback(cluster.kubectl, "delete", "--ignore-not-found", kind, name)
    reader = Reader(cluster, tmp_path, shell=shell)
    for page in (LIMITS_PAGE, HUB_PAGE):
        for block in blocks(page=page):
            reader.run(block)
    quota = f"/api/v1/namespaces/{PROFILE}/resourcequotas/gpus"
    wait_until(lambda: cluster.client.get(quota).get("status", {}).get("hard"), "the quota is counted", 20)
    assert cluster.client.get(quota)["status"]["hard"] == {"requests.nvidia.com/gpu": "4"}
    config = cluster.client.get(f"/api/v1/namespaces/{HUB}/configmaps/bitfusion-gpu-pods")
    assert json.loads(config["data"]["pods.json"])["memory"] == "16Gi"


@pytest.mark.runs("docs/how-to/kueue.md")
def test_the_kueue_component_goes_into_the_readers_folder(cluster: Cluster, tmp_path: Path) -> None:
    reader = Reader(cluster, tmp_path)
    reader.run(blocks(INSTALL)[0])
    for block in blocks(page=KUEUE_PAGE):
        reader.run(block)
    built = reader.shell("kubectl kustomize my-bitfusion")
    assert "kubeflow-bitfusion-kueue-view" in built.stdout
