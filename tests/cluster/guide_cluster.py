"""Real nodes as the reader of the tutorials has them: Kubeflow's namespaces, and what a data centre gives.

What this cluster has not is played, and nothing else: images that were "pushed" are built from the same
Containerfile by `image_builder`, and are on the node under the registry's name; a PersistentVolume lies on
this machine; as nobody answers DNS or translates Services' addresses, pods get the pool's address in
/etc/hosts; and Kubeflow is its namespace, the form's ConfigMap and our stub of the notebook controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster.api_client import Object
from tests.cluster.base_images import base_image
from tests.cluster.cluster import Cluster
from tests.cluster.gpu_cluster import ROLES, profile_accounts
from tests.cluster.guide import PROFILE, Build, Reader
from tests.cluster.image_builder import build
from tests.cluster.image_files import BuiltImage
from tests.cluster.installation import DEVICE_PLUGIN
from tests.cluster.node import Node, full_name
from tests.cluster.notebooks import PROFILE as PROFILE_LABELS
from tests.cluster.other_webhooks import pod_webhook
from tests.cluster.project_images import IMAGES, project_image
from tests.jupyter_ext.spawner.kubeflow_manifests import FORM, write_manifests
from tests.manifests.built import POD_WEBHOOKS, WEBHOOKS
from tests.manifests.installed import RESTRICTED
from tests.support.waiting import wait_until

SYSTEM = "kubeflow"
POOL_HOST = "bitfusion-pool.bitfusion-pool.svc"
_POOL_PODS = "/api/v1/namespaces/bitfusion-pool/pods"
_ASK_THE_POOL = ("bitfusion-identity", "bitfusion-device-plugin")
_OURS = "app.kubernetes.io/part-of=kubeflow-bitfusion"
_CLUSTER_KINDS = (
    "namespaces,mutatingwebhookconfigurations,clusterrolebindings,clusterroles,priorityclasses,"
    "validatingadmissionpolicybindings,validatingadmissionpolicies"
)


@contextmanager
def kubeflow(node: Node, folder: Path) -> Iterator[None]:
    """The platform without anything of ours; at the end everything of ours is gone, whatever happened."""
    cluster = node.cluster
    with ExitStack() as stack:
        stack.callback(_sweep, cluster)
        stack.callback(node.offer_units, 0)
        labels = {SYSTEM: RESTRICTED, PROFILE: PROFILE_LABELS}
        for name, each in labels.items():
            _create_namespace(cluster, name, each)
            stack.callback(_delete_namespace, cluster, name)
        # Before those who write to them: what is told after its namespace is gone is an error.
        cluster.kubectl("apply", "-f", str(ROLES))
        stack.callback(cluster.kubectl, "delete", "--ignore-not-found", "-f", str(ROLES))
        profile_accounts(cluster, PROFILE)
        write_manifests(folder / "kubeflow", "1.10")
        cluster.kubectl("apply", "-k", str(folder / "kubeflow" / FORM["1.10"] / "overlays" / "istio"))
        stack.enter_context(cluster.notebook_controller("1.8", PROFILE))
        yield


@contextmanager
def volume(cluster: Cluster, folder: Path) -> Iterator[None]:
    """A PersistentVolume for whoever claims one, of the kind that everybody may write to."""
    folder.mkdir()
    folder.chmod(0o777)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    path = "/api/v1/persistentvolumes"
    cluster.client.create(path, {"metadata": {"name": "of-the-guide"}, "spec": spec})
    try:
        yield
    finally:
        _delete_namespace(cluster, "bitfusion-pool")
        cluster.kubectl("delete", "persistentvolume", "of-the-guide", limit_s=90)


@contextmanager
def pool_has_a_name(cluster: Cluster) -> Iterator[None]:
    """Pods of these namespaces know the pool's Service by its name: Kubeflow's, the user's, the plugin's.

    Those that ask the pool are made once it has an address, since a name in /etc/hosts never changes.
    """

    def aliased(pod: Object) -> Object | None:
        ready = cluster.client.get(_POOL_PODS, labelSelector="app.kubernetes.io/name=bitfusion-pool")
        address = next((each["status"].get("podIP") for each in ready["items"]), None)
        if address is not None:
            pod["spec"]["hostAliases"] = [{"ip": address, "hostnames": [POOL_HOST]}]
        elif pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") in _ASK_THE_POOL:
            return None
        return pod

    with ExitStack() as stack:
        for namespace in (SYSTEM, PROFILE, DEVICE_PLUGIN):
            stack.enter_context(pod_webhook(cluster, f"names-in-{namespace}", namespace, aliased))
        yield


def bring_images(node: Node, reader: Reader) -> None:
    """What the reader has pushed is on the node, under the same name."""
    new = False
    for each in reader.pushed():
        image = _built(each, reader.folder)
        new = node.import_image(image, image.name) or new
        node.ctr("images", "tag", "--force", full_name(image.name), full_name(each.name))
    if new:
        node.keep_images()


def _built(each: Build, context: Path) -> BuiltImage:
    file = (context / each.file).resolve()
    own = context.resolve() / "manifests" / "images"
    if own in file.parents:
        assert file.name == "Containerfile"
        assert (IMAGES / file.parent.name / file.name).read_text() == file.read_text()
        # What stands for Kubeflow's image without CUDA stands for the one with it.
        arguments = {name: value.replace("-cuda", "") for name, value in each.arguments.items()}
        return project_image(file.parent.name, arguments, say=lambda line: None)
    name = f"localhost/{each.name.partition('/')[2]}"
    return build(file, context, name, base_image, each.arguments, say=lambda line: None)


def ours(cluster: Cluster) -> list[str]:
    """What of this project is in the cluster outside of the user's namespace."""
    found = cluster.kubectl("get", _CLUSTER_KINDS, "-l", _OURS, "-o", "name", "--ignore-not-found")
    inside = cluster.kubectl(
        *(
            "get",
            "all,configmaps,secrets,leases,roles,rolebindings,networkpolicies,serviceaccounts,poddisruptionbudgets",
        ),
        *("-n", SYSTEM, "-o", "name", "--ignore-not-found"),
    )
    return [*found.split(), *(name for name in inside.split() if "bitfusion" in name)]


def _sweep(cluster: Cluster) -> None:
    """What a test that failed has left in the cluster."""
    webhooks = ("mutatingwebhookconfiguration", WEBHOOKS, POD_WEBHOOKS)
    cluster.kubectl("delete", "--ignore-not-found", *webhooks)
    cluster.kubectl("delete", "--ignore-not-found", _CLUSTER_KINDS, "-l", _OURS, limit_s=90)


def _create_namespace(cluster: Cluster, name: str, labels: Object) -> None:
    path = f"/api/v1/namespaces/{name}"
    wait_until(lambda: not cluster.client.exists(path), f"the namespace {name} of another test gone", 90)
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
    account = f"{path}/serviceaccounts/default"
    wait_until(lambda: cluster.client.exists(account), f"the account of {name}", 30)


def _delete_namespace(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "--ignore-not-found", "namespace", name, limit_s=180)
