"""From the Notebook that the form writes to a TensorFlow cell's output in its pod, and back; a real node."""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest

from bitfusion_client.text_table import box
from tests.cluster.installation import Installation, Notebook, User
from tests.cluster.kind_pods import KindPods, look_at_all
from tests.cluster.kinds import KINDS, kind_images
from tests.cluster.node import SMALL
from tests.cluster.other_webhooks import (
    ISTIO,
    POD_DEFAULTS,
    pod_default_applied,
    pod_webhook,
    sidecar_injected,
)
from tests.cluster.served_notebook import ServedKernel
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # images are built when they never were

TRAINS = """
import os
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
import tensorflow as tf
x = tf.random.stateless_normal((512, 8), seed=(1, 2))
y = tf.reduce_sum(x, axis=1, keepdims=True)
w = tf.Variable(tf.zeros((8, 1)))
for _ in range(200):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - y) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
print("learned", float(loss) < 1e-3)
"""
GIVEN = "import json, os; print(os.environ['BITFUSION_POOL_DEVICES'])"
RESERVED = """
!bitfusion request_gpus -n 1 -m 512 > /dev/null 2>&1
!bitfusion client -- printenv BITFUSION_POOL_DEVICES 2> /dev/null
!bitfusion release_gpus > /dev/null 2>&1
"""


def run(kernel: ServedKernel, *cells: str) -> list[str]:
    """The text below each of these cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    executed = kernel.execute(notebook)
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in executed.cells]


def opened(notebook: Notebook, name: str = "train.ipynb") -> ServedKernel:
    server = notebook.jupyter()
    server.upload(name, nbformat.v4.new_notebook())
    return server.open(name, "bitfusion")


def wait_returned(user: User) -> float:
    """Until the pool has everything back; the seconds it took."""
    began = time.monotonic()
    wait_until(lambda: not user.leases(), user.leases, 30)
    return time.monotonic() - began


def test_a_notebook_of_the_form_computes_on_its_share_and_gives_it_back(
    installation: Installation, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, namespace = installation.cluster, user.namespace
    with (
        pod_webhook(cluster, ISTIO, namespace, lambda pod: sidecar_injected(pod, SMALL)) as meshed,
        pod_webhook(cluster, POD_DEFAULTS, namespace, pod_default_applied) as defaulted,
    ):
        notebook = user.notebook("mine", {"bitfusion.io/gpu-50": "1"})
        began = time.monotonic()
        pod = notebook.wait_ready()
        runs_s = time.monotonic() - began
    assert meshed
    assert defaulted
    assert pod["spec"]["initContainers"][0]["name"] == "bitfusion-client"
    assert {"istio-proxy", "mine"} == {each["name"] for each in pod["spec"]["containers"]}
    own = next(each for each in pod["spec"]["containers"] if each["name"] == "mine")
    assert own["resources"]["limits"]["bitfusion.io/gpu"] == "50"
    assert {"name": "TEAM", "value": "vision"} in own["env"]
    assert notebook.exec("id", "-u").strip() == "1000"

    kernel = opened(notebook)
    learned, given, reserved = run(kernel, TRAINS, GIVEN, RESERVED)
    assert learned == "learned True\n"
    assert [each["memory_mib"] for each in json.loads(reserved)] == [512]
    (device,) = json.loads(given)
    assert device["simulated"] is True
    assert device["memory_mib"] * 2 == device["total_mib"]
    (lease,) = user.leases()
    assert f"{namespace}/mine" in lease["label"]

    notebook.stop()
    back_s = wait_returned(user)
    notebook.annotate({"bitfusion.io/request": "-n 1 -p 0.25"})
    pod = notebook.start()
    own = next(each for each in pod["spec"]["containers"] if each["name"] == "mine")
    assert own["resources"]["limits"]["bitfusion.io/gpu"] == "25"
    (given,) = run(opened(notebook), GIVEN)
    (device,) = json.loads(given)
    assert device["memory_mib"] * 4 == device["total_mib"]
    with capsys.disabled():
        print(f"\nnotebook created, pod ready {runs_s:.1f} s; stopped, pool has it back {back_s:.1f} s")


def test_a_running_kernel_outlives_a_restart_of_the_pools_service(
    installation: Installation, user: User
) -> None:
    kernel = opened(user.notebook("mine", {"bitfusion.io/gpu-50": "1"}))
    run(kernel, "x = 41")
    (before,) = user.leases()
    installation.pool.process.kill()
    installation.pool.process.start()
    assert run(kernel, "print(x + 1)") == ["42\n"]
    assert [lease["id"] for lease in user.leases()] == [before["id"]]
    kernel.end()
    wait_returned(user)


def test_an_eviction_gives_everything_back(installation: Installation, user: User) -> None:
    notebook = user.notebook("mine", {"bitfusion.io/gpu-amount": "1"})
    run(opened(notebook), "x = 1")
    assert len(user.leases()) == 1
    pod = notebook.wait_ready()
    installation.cluster.client.create(
        f"/api/v1/namespaces/{user.namespace}/pods/mine-0/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mine-0"}},
    )
    wait_returned(user)

    def made_anew() -> bool:
        now = notebook.pod()
        return now is not None and now["metadata"]["uid"] != pod["metadata"]["uid"]

    wait_until(made_anew, notebook.told, 60)
    assert run(opened(notebook), GIVEN)[0].count("memory_mib") == 1


def test_a_pod_that_ends_without_grace_gives_everything_back(installation: Installation, user: User) -> None:
    run(opened(user.notebook("mine", {"bitfusion.io/gpu-amount": "1"})), "x = 1")
    assert len(user.leases()) == 1
    installation.cluster.kubectl(
        "-n", user.namespace, "delete", "pod", "mine-0", "--grace-period=0", "--force", limit_s=60
    )
    # by the end of its connection, which is believed after 15 s, and not by silence, after 120 s
    assert wait_returned(user) < 100


def test_kinds_of_containers_and_images(
    installation: Installation, user: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a namespace with a quota and default limits; the table of docs/injector.md."""
    began = time.monotonic()
    installation.node.import_images(kind_images())
    imported = time.monotonic()
    pods = KindPods(user, KINDS)
    pods.limit_namespace()
    refused = pods.create()
    assert refused.keys() == {title for title, kind in KINDS.items() if kind.refused}, refused
    made = pods.wait(150)
    ready = time.monotonic()
    seen = look_at_all(pods, installation.pool, made, refused, tmp_path)
    with capsys.disabled():
        table = [(each.place.title, each.seen[:90]) for each in seen]
        print("\n" + box(["container or image", "what was seen"], table), end="")
        print(
            f"{len(seen)} containers: images {imported - began:.1f} s, pods ready {ready - imported:.1f} s, "
            f"looked into {time.monotonic() - ready:.1f} s"
        )
    wrong = {each.place.title: each.wrong for each in seen if each.wrong}
    assert not wrong, f"{wrong}\n{pods.told([each.place.pod for each in seen if each.wrong])}"
