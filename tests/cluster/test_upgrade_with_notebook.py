"""From a version without an injector to this one, while a notebook runs; a real node.

The version before is its manifests, as they were built then (`tests/manifests/before`), run by today's image.
Its user's pods were made clients by VMware's injector, of which `vmware_translated` plays what the scheduler
sees.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.cluster.api_client import Object
from tests.cluster.guide import IMAGES, NAMESPACE, POOL, POOL_INSTALL, PROFILE, REMOVE, ROOT, Reader, blocks
from tests.cluster.guide_cluster import bring_images, kubeflow
from tests.cluster.installation import UNITS, Installation, Notebook, User
from tests.cluster.node import Node
from tests.cluster.other_webhooks import pod_webhook
from tests.cluster.pool_service import PoolService
from tests.manifests.built import CONTROLLER, POD_WEBHOOKS
from tests.support.machine import scaled
from tests.support.waiting import wait_until

BEFORE = ROOT / "tests" / "manifests" / "before" / "kubeflow.yaml"
SIZE = "bitfusion.io/gpu-50"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # images are built when they never were


def vmware_translated(pod: Object) -> Object:
    """The pod as VMware's injector leaves its limits: units in place of the size."""
    for container in pod["spec"]["containers"]:
        for part in (container.get("resources") or {}).values():
            if part.pop(SIZE, None):
                part["bitfusion.io/gpu"] = "50"
    return pod


def state(node: Node, notebook: Notebook) -> Object:
    """What would differ if anybody had touched the running notebook."""
    pod = notebook.pod()
    assert pod is not None
    path = f"/apis/apps/v1/namespaces/{PROFILE}/statefulsets/{notebook.name}"
    stateful_set = node.cluster.client.get(path)
    (container,) = pod["status"]["containerStatuses"]
    return {
        "uid": pod["metadata"]["uid"],
        "going": pod["metadata"].get("deletionTimestamp"),
        "spec": copy.deepcopy(pod["spec"]),
        "container": (container["containerID"], container["restartCount"], container["state"]),
        "generation": stateful_set["metadata"]["generation"],
        "template": stateful_set["spec"]["template"],
    }


def test_a_running_notebook_is_untouched_and_gets_the_client_at_its_next_start(
    node: Node, tmp_path: Path
) -> None:
    cluster = node.cluster
    with kubeflow(node, tmp_path), PoolService(cluster, node.host_address) as pool:
        reader = Reader(cluster, tmp_path, limit_s=300)
        reader.follow(IMAGES)
        bring_images(node, reader)
        node.offer_units(UNITS)
        cluster.kubectl("apply", "-f", str(BEFORE))
        rollout = ("-n", "kubeflow", "rollout", "status", f"deployment/{CONTROLLER}")
        cluster.kubectl(*rollout, f"--timeout={scaled(120):.0f}s", limit_s=150)
        webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        assert not cluster.client.exists(f"{webhooks}/{POD_WEBHOOKS}")

        with pod_webhook(cluster, "vmware-injector", PROFILE, vmware_translated):
            notebook = User(Installation(node, pool), PROFILE).notebook("mine", {SIZE: "1"})
            pod = notebook.wait_ready()
            assert "initContainers" not in pod["spec"]
            before = state(node, notebook)

            pool.issuer_files(reader.folder / "cluster")
            reader.run(blocks(POOL)[-1])
            reader.follow(POOL_INSTALL, NAMESPACE)
            # The new leader looks at the notebook, and leaves it running.
            notebook.annotate({"bitfusion.io/request": "-n 1 -p 0.25"})
            wait_until(lambda: "bitfusion.io/pending" in noted(node), notebook.told, 120)
            assert state(node, notebook) == before

        notebook.stop()
        pod = notebook.start()
        assert pod["spec"]["initContainers"][0]["name"] == "bitfusion-client"
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits["bitfusion.io/gpu"] == "25"
        assert "Simulated" in notebook.exec("bitfusion", "list_gpus")
        notebook.delete()
        cluster.kubectl("label", "namespace", PROFILE, "bitfusion.io/identity-")
        reader.follow(REMOVE)


def noted(node: Node) -> Object:
    """Of the Notebook."""
    path = f"/apis/kubeflow.org/v1beta1/namespaces/{PROFILE}/notebooks/mine"
    found: Object = node.cluster.client.get(path)["metadata"]["annotations"]
    return found
