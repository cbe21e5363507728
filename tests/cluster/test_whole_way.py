"""From the Notebook that the form writes to a TensorFlow cell's output in its pod, and back; a real node."""

from __future__ import annotations

import json
import re
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

import nbformat
import pytest

from bitfusion_client.request.quantities import parse_quantity
from bitfusion_client.text_table import box
from tests.bitfusion_device_plugin.injector.pods import container, named, pod
from tests.bitfusion_device_plugin.injector.webhooks import COLLECTOR, applied, katib_collected, recommended
from tests.cluster import units
from tests.cluster.api_client import Object
from tests.cluster.installation import NOTEBOOK_IMAGE, Installation, Notebook, User
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
from tests.cluster.pods import SECURITY, Pods
from tests.cluster.served_notebook import JupyterServer, ServedKernel
from tests.support.machine import scaled
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


def check_jupyterlabs_part(notebook: Notebook, kernel: ServedKernel) -> None:
    """It works behind NB_PREFIX with Kubeflow's flags; pages of the server itself alone may change things."""
    listed = notebook.exec("sh", "-c", "(jupyter labextension list; jupyter server extension list) 2>&1")
    words = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", listed).split())
    assert "kubeflow-bitfusion v0.1.0 enabled OK" in words, listed
    assert "jupyter_ext.server 0.1.0 OK" in words, listed
    server = notebook.jupyter()
    told = server.ask("GET", "/bitfusion/api/state")
    assert [each["id"] for each in told["kernels"]] == [kernel.id]
    assert told["pool"]["error"] is None
    assert told["sizes"][0]["words"] == "-n 1 -p 0.5", "the pod's budget comes first"
    verb = f"/bitfusion/api/kernels/{kernel.id}/keep"
    assert server.ask("POST", verb, {})["message"]
    foreign = JupyterServer(server.url)  # without the cookie
    with pytest.raises(urllib.error.HTTPError) as refused:
        foreign.ask("POST", verb, {})
    with refused.value as answer:
        assert (answer.code, json.loads(answer.read())["code"]) == (403, "forbidden")


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
    check_jupyterlabs_part(notebook, kernel)

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


def test_an_idle_notebook_gives_its_gpu_to_one_of_another_namespace_and_waits_for_it_afterwards(
    installation: Installation, user: User
) -> None:
    whole, pool = {"bitfusion.io/gpu-amount": "1"}, installation.pool
    idle_soon = [{"name": "BITFUSION_IDLE_RELEASE", "value": "1m"}]
    with ExitStack() as stack:
        other_user = stack.enter_context(installation.user())
        notebooks = [user.notebook("idle", whole, env=idle_soon), other_user.notebook("other", whole)]
        idle, other = (opened(notebook) for notebook in notebooks)
        stack.enter_context(pool.held())  # units of two GPUs are given out, and the pool has one left
        assert run(idle, "x = 41") == [""]
        began = time.monotonic()
        cells = stack.enter_context(ThreadPoolExecutor(2))
        learned = cells.submit(run, other, TRAINS)
        wait_until(lambda: pool.status()["waiting"], "the other notebook's wait", 60)
        wait_until(lambda: [each["kernel"]["state"] for each in user.leases()] == ["idle"], user.leases, 15)
        assert learned.result(scaled(150)) == ["learned True\n"]
        assert time.monotonic() - began > 50
        assert user.leases() == []
        again = cells.submit(run, idle, "print('x' in globals())")
        wait_until(lambda: pool.status()["waiting"], "the idle notebook's wait", 60)
        other.end()
        (told,) = again.result(scaled(60))
        assert "This notebook gave its GPU back at " in told
        assert told.endswith("False\n")
        assert len(user.leases()) == 1


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


def collected(made: Object) -> Object:
    """As Katib's webhook leaves a trial's pod, and the Vertical Pod Autoscaler's behind it."""
    made = applied(made, [katib_collected, recommended])
    collector = named(made["spec"]["containers"], COLLECTOR)
    collector |= {"image": SMALL, "command": ["/bin/busybox", "sleep", "1000"], "securityContext": SECURITY}
    return made


def test_a_trial_of_katib_holds_its_size_once_and_its_end_is_seen(
    installation: Installation, user: User
) -> None:
    """Two GPUs, all that there are: a wrapping within the wrapping would wait for ever."""
    cluster, namespace = installation.cluster, user.namespace
    line = """python3 -c 'import time; print("accuracy=0.9", flush=True); time.sleep(10)'"""
    asking = container(
        {"bitfusion.io/gpu-amount": "2"},
        "training-container",
        NOTEBOOK_IMAGE,
        command=["sh", "-c"],
        args=[line],
        securityContext=SECURITY,
    )
    trial = pod(asking, annotations={"auto-management/bitfusion": "all"}, restartPolicy="Never", volumes=[])
    trial["spec"]["terminationGracePeriodSeconds"] = 1
    path = f"/api/v1/namespaces/{namespace}/pods"
    with pod_webhook(cluster, "katib.kubeflow.org", namespace, collected) as asked:

        def called() -> bool:
            cluster.client.create(path, trial, dryRun="All")
            return bool(asked)

        wait_until(called, "Katib's webhook is called", 20)
        made = cluster.client.create(path, trial)
    assert named(made["spec"]["containers"], "training-container")["resources"]["limits"] == {
        **{"cpu": "50m", "memory": "128Mi"},
        "bitfusion.io/gpu": "200",
    }
    assert made["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "50m", "memory": "128Mi"}
    name = made["metadata"]["name"]

    def told() -> str:
        done = cluster.try_kubectl("-n", namespace, "describe", "pod", name)
        return done.stdout + done.stderr

    wait_until(lambda: len(user.leases()) == 1, told, 120)
    (lease,) = user.leases()
    assert len(lease["devices"]) == 2

    def seen() -> str:
        command = ("sh", "-c", "cat /var/log/katib/metrics.log /var/log/katib/*.pid")
        done = cluster.try_kubectl("-n", namespace, "exec", name, "-c", COLLECTOR, "--", *command)
        return done.stdout

    wait_until(lambda: seen().endswith("completed\n"), lambda: seen() + told(), 60)
    assert "accuracy=0.9\n" in seen()
    wait_returned(user)
    cluster.client.delete(f"{path}/{name}")


ASKED = {"cpu": "200m", "memory": "400Mi"}


@pytest.mark.parametrize(("cpu", "memory"), [("50m", "128Mi"), ("300m", "600Mi")], ids=["lowered", "raised"])
def test_a_pod_weighs_on_its_node_what_a_later_webhook_has_left_of_it(
    installation: Installation, user: User, cpu: str, memory: str
) -> None:
    """As with a Vertical Pod Autoscaler; the init container, which it does not see, outweighs nothing."""
    cluster, node = installation.cluster, installation.node
    pods = Pods(node, user.namespace)
    left = {"cpu": cpu, "memory": memory}
    path = f"/api/v1/namespaces/{user.namespace}/pods"

    def change(made: Object) -> Object:
        recommended(made, cpu, memory)
        return made

    with pod_webhook(cluster, "vpa-webhook-config", user.namespace, change) as asked:

        def called() -> bool:
            plain = pod(container(securityContext=SECURITY), annotations=None)
            cluster.client.create(path, plain, dryRun="All")
            return bool(asked)

        wait_until(called, "the other webhook is called", 20)
        before = units.allocated(cluster, node.name)
        limits = {**ASKED, "bitfusion.io/gpu-50": "1"}
        pods.make("p", "exec /bin/busybox sleep 1000", resources={"limits": limits, "requests": ASKED})
    made = pods.wait_running("p")
    after = units.allocated(cluster, node.name)
    own, ours = made["spec"]["containers"][0]["resources"], made["spec"]["initContainers"][0]["resources"]
    assert own["requests"] == {**left, "bitfusion.io/gpu": "50"}
    smaller = left if cpu == "50m" else ASKED
    assert (ours["requests"], ours["limits"]) == (smaller, smaller)
    grown = {name: after[name] - before[name] for name in ("cpu", "memory", "bitfusion.io/gpu")}
    shown = {name: float(amount) for name, amount in grown.items()}
    print(f"\nasked for {ASKED}, left are {left}: on the node {shown} more")
    assert grown == {
        name: Fraction(*parse_quantity(amount)) for name, amount in {**left, "bitfusion.io/gpu": "50"}.items()
    }


def test_kinds_of_containers_and_images(
    installation: Installation, user: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a namespace with a quota and default limits; the table of docs/reference/containers.md."""
    began = time.monotonic()
    for image in kind_images():
        installation.node.import_image(image, image.name)
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
