"""A whole JupyterHub beside GPU pods, as its page has it: a user chooses a size, computes on it, and stops.

What the page's values and the command's profiles mean for the chart is `tests.cluster.hub`'s.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import yaml

from bitfusion_client.pod.pod_contract import LABEL_GPU_POD_OF
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.gpu_cluster import GpuCluster, gpus_installed
from tests.cluster.hub import NETWORK_TOOLS, Hub, Values, hub, with_values
from tests.cluster.hub_user import HubUser
from tests.cluster.images import Image, layer_of_files, small_image
from tests.cluster.live_kernel import LiveKernel
from tests.cluster.made_once import user_cache
from tests.cluster.node import Node
from tests.cluster.project_images import project_image
from tests.jupyter_ext.spawner.doc_shell import ROOT, put_commands, run
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs" / "how-to" / "jupyterhub-gpu-pods.md").read_text(encoding="utf-8")
SAMPLE = "quay.io/jupyterhub/k8s-singleuser-sample:4.2.0"
IMAGE = "registry.example.com/team/hub-notebook:1.0"
NAMESPACE = "jupyterhub"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WHERE = "import os, socket; print(socket.gethostname(), os.getuid(), os.environ['HOME'])"


@pytest.fixture(scope="module")
def gpus(two_nodes: list[Node]) -> Iterator[GpuCluster]:
    with gpus_installed(two_nodes) as found:
        image = project_image("notebook", {"NOTEBOOK_IMAGE": SAMPLE}, say=lambda line: None)
        for node in two_nodes:
            node.import_image(image, IMAGE)
            node.import_image(_network_tools(node), NETWORK_TOOLS)
        yield found


def _network_tools(node: Node) -> Image:
    cache = user_cache() / "node" / "layers"
    small = small_image(node.busybox, cache)
    return Image(
        [*small.layers, layer_of_files({"bin/iptables": (b"#!/bin/sh\n", 0o755)}, cache)], env=small.env
    )


@pytest.fixture(scope="module")
def values(gpus: GpuCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Values]:
    """The page's commands are done; the values are those that it gives, and the command's."""
    place = tmp_path_factory.mktemp("hub") / "place"
    place.mkdir()
    put_commands(place.parent / "bin", gpus.cluster)
    (place / "manifests").symlink_to(ROOT / "manifests")
    with _namespace(gpus.cluster):
        for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE.partition("\n## Without ")[0]):
            run(place, re.sub(r"(?m)^helm .*(\n  .*)*\n", "", block))
        written = yaml.safe_load((place / "profiles.yaml").read_text())
        pages = yaml.safe_load(re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)[0])
        profiles = written["singleuser"]["profileList"]
        for name, key in (("wrong", "bitfusion.io/gpu-0"), ("half", "bitfusion.io/gpu-50")):
            override = {"image": IMAGE, "extra_resource_limits": {key: "1"}}
            profiles.append({"display_name": name, "slug": name, "kubespawner_override": override})
        yield with_values(written, pages)


@contextmanager
def _namespace(cluster: Cluster) -> Iterator[None]:
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, limit_s=150)
        policies = ROOT / "manifests" / "components" / "gpu-pods-jupyterhub"
        for name in ("binding", "policy"):
            cluster.kubectl("delete", "--ignore-not-found", "-f", str(policies / f"{name}.yaml"))


@contextmanager
def home(cluster: Cluster, user: str) -> Iterator[None]:
    """A volume for the claim that the hub makes for a user."""
    folder = cluster.folder / "homes" / f"hub-{user}"
    folder.mkdir(parents=True)
    os.chown(folder, 0, 100)
    folder.chmod(0o775)
    for each in (folder.parent, cluster.folder):
        each.chmod(each.stat().st_mode | 0o111)
    spec = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "10Gi"},
        "storageClassName": "shared",
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": NAMESPACE, "name": f"claim-{user}"},
    }
    cluster.client.create("/api/v1/persistentvolumes", {"metadata": {"name": f"hub-{user}"}, "spec": spec})
    try:
        yield
    finally:
        cluster.kubectl("delete", "pods,pvc", "--all", "-n", NAMESPACE, "--now", limit_s=90)
        cluster.client.delete(f"/api/v1/persistentvolumes/hub-{user}")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def served(gpus: GpuCluster, values: Values) -> Iterator[Hub]:
    with ExitStack() as stack:
        stack.enter_context(home(gpus.cluster, "ada"))
        yield stack.enter_context(hub(gpus.cluster, gpus.nodes[0].host_address, values, NAMESPACE))


def pods(cluster: Cluster) -> dict[str, Object]:
    """Of the hub's namespace, by name."""
    return {each["metadata"]["name"]: each for each in cluster.client.get(PODS)["items"]}


def test_a_user_chooses_a_size_computes_in_a_gpu_pod_and_stops(
    gpus: GpuCluster, served: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = gpus.cluster
    ada = HubUser(served.url, "ada")
    page = ada.profiles()
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["No GPU", "GPU", "wrong", "half"]
    assert re.findall(r"<option value=.(\d). ?\w*>(.*?)</option>", page) == [("1", "1 GPU"), ("2", "2 GPUs")]
    began = time.monotonic()
    ada.choose("gpu-amount", gpus="1")
    assert ada.progress()[-1].get("ready"), told(cluster, served)
    server = pods(cluster)["jupyter-ada"]
    assert server["spec"]["nodeName"] == gpus.nodes[0].name
    ada.wait_open()
    open_s = time.monotonic() - began
    with LiveKernel(ada) as kernel:
        first = kernel.run(WHERE)
        (name,) = (each for each in pods(cluster) if each != "jupyter-ada")
        assert first.text.endswith(f"{name} 1000 /home/jovyan\n"), first.all
        assert gpus.held() == {f"{NAMESPACE}/{name}": 1}
        gpu_pod = pods(cluster)[name]
        assert gpu_pod["spec"]["nodeName"] == gpus.gpu_node.name
        # nothing of the chart's privileged container, and of the chart's labels, but the user's group
        assert not [each for each in gpu_pod["spec"].get("initContainers", []) if "block" in each["name"]]
        assert gpu_pod["metadata"]["labels"].keys().isdisjoint({"app", "component", "release"})
        assert gpu_pod["spec"]["securityContext"] == {"fsGroup": 100}
        kernel.run("open('/home/jovyan/made-there', 'w').write('there')")
        assert (
            cluster.kubectl("-n", NAMESPACE, "exec", "jupyter-ada", "--", "cat", "/home/jovyan/made-there")
            == "there"
        )
        health = kernel.run("!bitfusion health --connect")
        released = kernel.run("%bitfusion release -y")
        wait_until(lambda: not gpus.held(), gpus.held, 10)
        again = kernel.run(WHERE)
        assert again.status == "ok", again.all
        assert gpus.held()
        ada.stop()
        began = time.monotonic()
        wait_until(lambda: not pods(cluster), lambda: str(list(pods(cluster))), 60)
        gone_s = time.monotonic() - began
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    assert not cluster.client.get(secrets, labelSelector=LABEL_GPU_POD_OF)["items"]
    with capsys.disabled():
        print(f"\nopen after {open_s:.1f} s; first cell {first.seconds:.1f} s, second {again.seconds:.1f} s;")
        print(f"all gone {gone_s:.1f} s after the stop\n{first.text}\n{health.text}\n{released.text}")


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("wrong", "is not a Bitfusion size"),  # on the page of the start
        ("half", "choose one of these sizes"),  # in the first cell, since no rule of pods.yaml serves it
    ],
)
def test_a_size_that_there_is_not_is_told_where_the_user_looks(
    gpus: GpuCluster, served: Hub, profile: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ada = HubUser(served.url, "ada")
    ada.choose(profile)
    end = ada.progress()[-1]
    seen = end["message"]
    if end.get("ready"):
        ada.wait_open()
        with LiveKernel(ada) as kernel:
            seen += kernel.run("6 * 7").all
        ada.stop()
    with capsys.disabled():
        print(f"\n{profile}: {seen}")
    assert words in seen


def told(cluster: Cluster, served: Hub) -> str:
    """For failures."""
    seen = cluster.try_kubectl("-n", NAMESPACE, "describe", "pods").stdout[-5000:]
    logs = cluster.try_kubectl("-n", NAMESPACE, "logs", "jupyter-ada", "--all-containers", "--tail=40").stdout
    return f"{seen}\n{logs}\n{served.program.last_lines(40)}"
