"""The manifests as they stand, on a real kubelet: the sample's pool, the controller, a namespace's Secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api_client import Refused
from tests.cluster.node import Node
from tests.cluster.pods import Pods
from tests.cluster.project_images import project_image
from tests.support.objects import objects_of
from tests.support.waiting import wait_until

MANIFESTS = Path(__file__).parents[3] / "manifests"
HOST = "bitfusion-pool.bitfusion-pool.svc"
ADMIN = ("bitfusion-pool", "--dir", "/var/lib/bitfusion-pool/pool", "token")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def objects(node: Node, folder: str) -> list[dict[str, Any]]:
    built = node.cluster.kubectl("kustomize", str(MANIFESTS / folder))
    return objects_of(built)


def apply(node: Node, wanted: list[dict[str, Any]]) -> None:
    node.cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, wanted)))


def pod_of(node: Node, namespace: str, app: str) -> dict[str, Any]:
    """The one pod of a Deployment, once it is ready."""
    pods = Pods(node, namespace)

    def ready() -> dict[str, Any] | None:
        found = node.cluster.client.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app.kubernetes.io/name={app}"
        )["items"]
        return next((one for one in found if pods.is_ready(one["metadata"]["name"])), None)

    def told() -> str:
        return node.cluster.kubectl("describe", "pods", "-n", namespace)

    return wait_until(ready, told, 90)


def gone(node: Node, namespace: str) -> None:
    """The cluster is other tests', too, and the names are those of the manifests."""
    path = f"/api/v1/namespaces/{namespace}"
    node.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
    wait_until(lambda: not node.cluster.client.exists(path), f"namespace {namespace} gone", 90)


@pytest.fixture
def around() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(900)  # the images' packages are fetched when they are first built
def test_a_pool_in_the_cluster_gives_a_namespace_its_token_and_a_pod_no_more_than_its_quota(
    node: Node, tmp_path: Path, around: ExitStack
) -> None:
    cluster = node.cluster
    for name in ("pool", "notebook-controller"):
        node.import_image(project_image(name), f"kubeflow-bitfusion/{name}:0.1.0")

    sample = objects(node, "samples/pool")
    (deployment,) = [one for one in sample if one["kind"] == "Deployment"]
    # No provisioner is here. An emptyDir is everybody's to write, as the volumes of some are.
    deployment["spec"]["template"]["spec"]["volumes"] = [{"name": "pool", "emptyDir": {}}]
    around.callback(gone, node, "bitfusion-pool")
    apply(node, [one for one in sample if one["kind"] != "PersistentVolumeClaim"])
    pool = pod_of(node, "bitfusion-pool", "bitfusion-pool")
    inside = ("exec", "-n", "bitfusion-pool", pool["metadata"]["name"], "-c", "pool", "--")
    where = ("--files", "/var/lib/bitfusion-pool/issuer", "--server", f"{HOST}:56001")
    cluster.kubectl(*inside, *ADMIN, "create", "cluster", "--issuer", "--may-issue-gpus", "2", *where)
    issuer = tmp_path / "cluster"
    issuer.mkdir()
    for name in ("servers.conf", "client.yaml", "ca.crt"):
        (issuer / name).write_text(cluster.kubectl(*inside, "cat", f"/var/lib/bitfusion-pool/issuer/{name}"))

    around.callback(gone, node, "kubeflow")
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": "kubeflow", "labels": RESTRICTED}})
    identity = objects(node, "identity/kubeflow")
    (deployment,) = [one for one in identity if one["kind"] == "Deployment"]
    # Nobody answers DNS, or translates the Service's address.
    alias = {"ip": pool["status"]["podIP"], "hostnames": [HOST]}
    deployment["spec"]["template"]["spec"]["hostAliases"] = [alias]
    wait_until(
        lambda: cluster.client.exists("/api/v1/namespaces/kubeflow/serviceaccounts/default"), limit_s=30
    )
    around.callback(
        cluster.kubectl,
        "delete",
        "clusterrole,clusterrolebinding",
        "bitfusion-identity",
        "--ignore-not-found",
    )
    apply(node, identity)
    pod_of(node, "kubeflow", "bitfusion-identity")  # it runs and waits for its issuer
    team = cluster.new_namespace(prefix="team")
    around.callback(gone, node, team)
    cluster.kubectl("create", "quota", "gpus", "-n", team, "--hard=requests.bitfusion.io/gpu=50")
    cluster.kubectl("apply", "-n", team, "-k", str(MANIFESTS / "namespace/kubeflow"))
    cluster.kubectl("label", "namespace", team, "bitfusion.io/identity=true")
    secret = ("create", "secret", "generic", "bitfusion-issuer", "-n", "kubeflow", f"--from-file={issuer}")
    cluster.kubectl(*secret)

    def made() -> dict[str, Any] | None:
        try:
            return cluster.client.get(f"/api/v1/namespaces/{team}/secrets/bitfusion-client")
        except Refused:
            return None

    # kubelet brings the issuer's Secret into the running pod within two minutes
    found = wait_until(
        made, lambda: cluster.kubectl("logs", "-n", "kubeflow", "deploy/bitfusion-identity"), 180
    )
    assert set(found["data"]) == {"servers.conf", "client.yaml", "ca.crt"}
    listed = json.loads(cluster.kubectl(*inside, *ADMIN, "list", "--json"))
    good = [(row["name"], row["limits"]["units"]) for row in listed if row["state"] == "good"]
    assert good == [("cluster", None), (f"cluster/{team}", 50)]

    # A pod that asks Kubernetes for nothing, and takes the Secret: the limit is the pool's own.
    pods = Pods(node, team)
    cluster.client.create(f"/api/v1/namespaces/{team}/pods", taker(alias))
    wait_until(lambda: pods.is_ready("taker"), lambda: cluster.kubectl("describe", "pods", "-n", team), 90)
    # the image is the pool's, which names a folder of its own
    shell = ("env", "-u", "BITFUSION_POOL_DIR", "bitfusion-pool", "shell", "--")
    client = ("exec", "-n", team, "taker", "--", *shell, "bitfusion", "run", "-n", "1")
    assert "has a half\n" in cluster.kubectl(*client, "-p", "0.5", "--", "echo", "has a half")
    refused = cluster.try_kubectl(*client, "-p", "0.51", "--", "echo", "has more")
    assert "has more\n" not in refused.stdout
    words = "the name of your token may have 50 units, 100 are one GPU, you have or wait for 0"
    assert f"{words}, and this request is for 51" in refused.stdout + refused.stderr


def taker(alias: dict[str, Any]) -> dict[str, Any]:
    """A pod with the client's command and the namespace's Secret; nobody here answers DNS."""
    return {
        "metadata": {"name": "taker"},
        "spec": {
            "hostAliases": [alias],
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "taker",
                    "image": "kubeflow-bitfusion/pool:0.1.0",
                    "command": ["sleep", "600"],
                    "volumeMounts": [{"name": "identity", "mountPath": "/etc/bitfusion", "readOnly": True}],
                }
            ],
            "volumes": [{"name": "identity", "secret": {"secretName": "bitfusion-client"}}],
        },
    }
