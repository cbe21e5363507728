"""A notebook of the form computes in a pod on another node's GPU: two real nodes, all from the form on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.gpu_cluster import VIEWER, GpuCluster, GpuUser, gpus_installed
from tests.cluster.live_kernel import LiveKernel
from tests.cluster.node import SMALL, Node
from tests.cluster.other_webhooks import (
    ISTIO,
    POD_DEFAULTS,
    pod_default_applied,
    pod_webhook,
    sidecar_injected,
)
from tests.cluster.test_whole_way import TRAINS
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # images are built when they never were

WHERE = """
import os, socket
print(socket.gethostname(), os.getuid(), os.environ.get("NVIDIA_VISIBLE_DEVICES"), os.environ.get("TEAM"))
"""
WRITES = "open('/home/jovyan/made-there', 'w').write('of the GPU node')"


@pytest.fixture(scope="module")
def gpus(two_nodes: list[Node]) -> Iterator[GpuCluster]:
    with gpus_installed(two_nodes) as found:
        yield found


@pytest.fixture
def user(gpus: GpuCluster) -> Iterator[GpuUser]:
    with gpus.user() as found:
        yield found


def test_a_notebook_of_the_form_computes_on_another_nodes_gpu_and_gives_it_back(
    gpus: GpuCluster, user: GpuUser, capsys: pytest.CaptureFixture[str]
) -> None:
    """*restricted*, uid 1000, beside a mesh and a PodDefault, with the rights of kubeflow-edit."""
    cluster, namespace = gpus.cluster, user.namespace
    with (
        pod_webhook(cluster, ISTIO, namespace, lambda pod: sidecar_injected(pod, SMALL)) as meshed,
        pod_webhook(cluster, POD_DEFAULTS, namespace, pod_default_applied) as defaulted,
    ):
        notebook = user.notebook("mine")
        pod = notebook.wait_ready()
        assert meshed
        assert defaulted
        assert pod["spec"]["nodeName"] == gpus.nodes[0].name
        with LiveKernel(notebook.jupyter()) as kernel:
            first = kernel.run(TRAINS)
            assert first.text.endswith("learned True\n"), first.all
            gpu_pod = user.one_gpu_pod()
            assert gpu_pod["spec"]["nodeName"] == gpus.gpu_node.name
            name = gpu_pod["metadata"]["name"]
            assert gpus.held() == {f"{namespace}/{name}": 1}
            where = kernel.run(WHERE).text  # of the two units the kubelet draws one
            assert re.fullmatch(rf"{name} 1000 unit-[01] vision\n", where), where
            kernel.run(WRITES)
            assert notebook.exec("cat", "/home/jovyan/made-there") == "of the GPU node"
            shown = kernel.run("%bitfusion").text
            listed = kernel.run("!bitfusion list_gpus").text
            began = time.monotonic()
            release = kernel.start("%bitfusion release -y")
            wait_until(lambda: not gpus.held(), gpus.held, 10)
            back_s = time.monotonic() - began
            user.wait_no_gpu_pod(5)
            wait_until(lambda: not user.gpu_pod_secrets(), "its Secret goes with it", 20)
            gone_s = time.monotonic() - began
            released = release.finish().text
            second = kernel.run(TRAINS)
            assert second.text.endswith("learned True\n"), second.all
        user.wait_no_gpu_pod()
    with capsys.disabled():
        print(f"\nfirst cell {first.seconds:.1f} s:\n{first.text}\n%bitfusion:\n{shown}")
        print(f"!bitfusion list_gpus:\n{listed}")
        print(f"release (device back {back_s:.2f} s, pod gone {gone_s:.2f} s):\n{released}")
        print(f"second cell {second.seconds:.1f} s:\n{second.text}")
    assert gpus.gpu_node.name in shown
    assert name in listed


def test_the_third_of_three_notebooks_waits_with_a_reason_cancels_queues_and_computes(
    gpus: GpuCluster, user: GpuUser, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        notebooks = [user.notebook(name) for name in ("first", "second", "third")]
        first, second, third = (stack.enter_context(LiveKernel(each.jupyter())) for each in notebooks)
        for kernel in (first, second):
            assert kernel.run("6 * 7").text.endswith("42\n")
        assert sum(gpus.held().values()) == 2
        cancelled = third.start("6 * 7")
        cancelled.until_shown("no free GPU")
        third.interrupt()
        cancelled.finish(20)
        assert cancelled.status == "error"
        wait_until(lambda: len(user.gpu_pods()) == 2, user.told_of_gpu_pods, 10)
        waits = third.start("6 * 7")
        waits.until_shown("no free GPU")
        first.run("%bitfusion release -y")
        began = time.monotonic()
        assert waits.finish(60).text.endswith("42\n"), waits.all
        took = time.monotonic() - began
        holders = {name.rpartition("-gpu-")[0] for name in gpus.held()}
        assert holders == {f"{user.namespace}/{name}-0" for name in ("second", "third")}
        with capsys.disabled():
            print(f"\ncancelled:\n{cancelled.all}")
            print(f"waited, and computed {took:.1f} s after the release:\n{waits.text}")
    user.wait_no_gpu_pod()


def test_health_makes_a_pod_without_a_gpu_and_tells_image_volumes_and_connection(
    gpus: GpuCluster, user: GpuUser, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = user.notebook("mine")
    notebook.wait_ready()
    said = notebook.exec("bitfusion", "health", "--connect")
    with capsys.disabled():
        print(f"\n{said}")
    lines = said.partition("Trial pod checks:")[2].partition("\n\n")[0].splitlines()[2:]
    assert [line.partition("] ")[0] for line in lines] == ["[PASS    "] * 6, said
    told = [line.partition("Check ")[2] for line in lines]
    assert "mage" in told[1], "the kubelet's own words of the image"
    assert " at /home/jovyan" in told[2]
    assert "encrypted" in told[3]
    assert told[4].endswith(" runs there")
    user.wait_no_gpu_pod(5)
    assert not gpus.held()


def test_a_viewer_is_refused_in_plain_words(user: GpuUser, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = user.notebook("mine", account=VIEWER)
    with LiveKernel(notebook.jupyter()) as kernel:
        refused = kernel.run("6 * 7")
    with capsys.disabled():
        print(f"\n{refused.all}")
    assert refused.status == "error"
    assert "may not create pods" in refused.all
    assert "ask your administrator" in refused.all
    assert "kubeflow-edit" in refused.all
    assert not user.gpu_pods()


def test_a_readwriteonce_home_on_a_node_without_gpus_is_refused_with_the_ways_out(
    user: GpuUser, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kubeflow's form makes homes."""
    notebook = user.notebook("mine", home="ReadWriteOnce")
    with LiveKernel(notebook.jupyter()) as kernel:
        refused = kernel.run("6 * 7")
    with capsys.disabled():
        print(f"\nafter {refused.seconds:.1f} s:\n{refused.all}")
    assert refused.status == "error"
    for part in (
        "mine-home can be mounted only on node",
        "and that node",
        "ReadWriteMany",
        "rwo_anywhere",
    ):
        assert part in refused.all
    assert refused.seconds < scaled(10)
    user.wait_no_gpu_pod()
