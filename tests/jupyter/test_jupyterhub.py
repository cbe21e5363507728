"""A whole JupyterHub over GPU pods, by the page's values, on a real API server: servers are processes here.

Without the injector; the profiles' pods with it are those of tests/jupyter_ext/spawner.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from bitfusion_client.pod.pod_contract import LABEL_GPU_POD_OF
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.hub import hub, with_values
from tests.cluster.hub_user import HubUser
from tests.cluster.live_kernel import LiveKernel
from tests.jupyter.hub_node import HubNode
from tests.support.ports import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/jupyterhub-gpu-pods.md").read_text(encoding="utf-8")
COMPONENT = ROOT / "manifests/components/gpu-pods-jupyterhub"

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]


@pytest.fixture
def around() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_user_logs_in_computes_in_a_gpu_pod_and_stops(
    cluster: Cluster, kernelspecs: Path, tmp_path: Path, around: ExitStack
) -> None:
    namespace = cluster.new_namespace()
    for name in ("policy", "binding", "rbac", "network-policy"):
        words = ("-n", namespace, "-f", str(COMPONENT / f"{name}.yaml"))
        cluster.kubectl("apply", *words)
        around.callback(cluster.kubectl, "delete", "--ignore-not-found", *words)
    config = {
        "metadata": {"name": "bitfusion-gpu-pods"},
        "data": {"pods.json": '{"cpu": "1", "memory": "1Gi"}'},
    }
    cluster.client.create(f"/api/v1/namespaces/{namespace}/configmaps", config)
    values = with_values(*map(yaml.safe_load, re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)))
    run_folder = Path(around.enter_context(tempfile.TemporaryDirectory()))  # of a short path, for sockets
    node = around.enter_context(HubNode(cluster, namespace, tmp_path, run_folder))
    served = around.enter_context(hub(cluster, "127.0.0.1", values, namespace, free_port()))

    def pods() -> dict[str, Object]:
        found = cluster.client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {each["metadata"]["name"]: each for each in found}

    ada = HubUser(served.url, "ada")
    ada.choose()
    assert ada.progress()[-1].get("ready"), served.program.last_lines(30)
    ada.wait_open()
    with LiveKernel(ada) as kernel:
        cell = kernel.run("import os; print(os.environ['HOSTNAME'])")
        (gpu_pod,) = pods().keys() - {"jupyter-ada"}
        assert cell.text.endswith(f"{gpu_pod}\n"), cell.all
        spec = pods()[gpu_pod]["spec"]
        assert (spec["serviceAccountName"], spec["securityContext"]) == (
            "bitfusion-notebook",
            {"fsGroup": 100},
        )
        assert "initContainers" not in spec, "the chart's own is privileged"
        assert node.held == 1
        assert kernel.run("%bitfusion release -y").text.startswith("1 GPU given back.")
        assert list(pods()) == ["jupyter-ada"]
        wait_until(lambda: node.held == 0, "the node hears of it")
        assert kernel.run("6 * 7").text.endswith("42\n")
        ada.stop()
    wait_until(lambda: not pods(), lambda: str(list(pods())), 30)
    secrets = f"/api/v1/namespaces/{namespace}/secrets"

    def kept() -> list[Object]:
        found: list[Object] = cluster.client.get(secrets, labelSelector=LABEL_GPU_POD_OF)["items"]
        return found

    wait_until(lambda: not kept(), "Kubernetes collects the Secrets")
    wait_until(lambda: node.held == 0, "the node hears of it")
