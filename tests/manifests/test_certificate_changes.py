"""Certificates and authorities change, manifests are upgraded, and no notebook that is created is missed.

Every review comes over a connection of its own, so that each one needs the apiserver's trust at that moment.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.manifests.built import CONTROLLER, WEBHOOKS
from tests.manifests.cert_manager import CertManager
from tests.manifests.installed import cert_manager, folder, kubeflow_namespace, remove
from tests.manifests.review_load import ReviewLoad
from tests.manifests.stand_in import StandIn
from tests.support.certificates import certified
from tests.support.waiting import wait_until

BEFORE = Path(__file__).parent / "before"
CERTIFICATES = "/apis/cert-manager.io/v1/namespaces/kubeflow/certificates"
ROUNDS = 30  # reviews in each state

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def platform(cluster: Cluster) -> Iterator[ExitStack]:
    """Kubeflow's namespace and cert-manager's kinds; whatever is installed is removed at the end."""
    with ExitStack() as around:
        around.enter_context(kubeflow_namespace(cluster))
        around.enter_context(cert_manager(cluster))
        around.callback(remove, cluster, "kubeflow")
        around.callback(remove, cluster, "cert-manager")
        yield around


def bundle(cluster: Cluster) -> bytes:
    """What all webhooks trust. One that an upgrade adds has nothing until the leader looks again."""
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOKS}"

    def found() -> set[str]:
        return {each["clientConfig"].get("caBundle", "") for each in cluster.client.get(path)["webhooks"]}

    wait_until(lambda: len(found()) == 1, "one authority for every webhook", 20)
    return base64.b64decode(found().pop())


def old_authority(cluster: Cluster) -> None:
    """The built-in authority's Secret as it was once made: called as the Secret, in a UTF8String."""
    made = certified(f"{CONTROLLER}-ca", authority=True, lasts=timedelta(days=3650))
    data = {
        "tls.crt": base64.b64encode(made.certificate).decode(),
        "tls.key": base64.b64encode(made.key).decode(),
    }
    body = {"metadata": {"name": f"{CONTROLLER}-ca"}, "type": "kubernetes.io/tls", "data": data}
    cluster.client.create("/api/v1/namespaces/kubeflow/secrets", body)


def keep_the_authority(cluster: Cluster) -> None:
    """As the guide says under "cert-manager": its command is run by tests/cluster/test_docs_kubeflow.py."""
    secrets = "/api/v1/namespaces/kubeflow/secrets"
    data = cluster.client.get(f"{secrets}/{CONTROLLER}-ca")["data"]
    body = {"metadata": {"name": f"{CONTROLLER}-certificate"}, "type": "kubernetes.io/tls"}
    cluster.client.create(secrets, {**body, "data": {key: data[key] for key in ("tls.crt", "tls.key")}})


def told(capsys: pytest.CaptureFixture[str], what: str, load: ReviewLoad) -> None:
    with capsys.disabled():
        print(f"\n{what}: {load.asked} reviews, {len(load.lost)} lost {load.lost[:3] or ''}")


@pytest.mark.parametrize("first", ["cainjector", "kubelet"])
def test_authority_and_certificate_are_renewed_and_no_review_is_lost(
    cluster: Cluster, platform: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str
) -> None:
    manager = platform.enter_context(CertManager(cluster))
    ours = platform.enter_context(StandIn(cluster, tmp_path, "kubeflow", handshakes=True))
    cluster.kubectl("apply", "-k", folder("cert-manager"))
    wait_until(lambda: ours.served, "the controller is ready", 40)
    names = [each["metadata"]["name"] for each in cluster.client.get(CERTIFICATES)["items"]]
    known = bundle(cluster)
    with ReviewLoad(Room(cluster)) as load:
        load.more(ROUNDS)
        for name in [*names, *names]:
            # One of the two is up to a minute behind the other.
            manager.injecting, ours.mounting = first == "cainjector", first == "kubelet"
            manager.renew(name)
            if manager.injecting:
                wait_until(lambda: manager.injected(WEBHOOKS), "the authority in caBundle", 20)
            load.more(ROUNDS)
            manager.injecting = ours.mounting = True
            wait_until(lambda: manager.injected(WEBHOOKS), "the authority in caBundle", 20)
            load.more(ROUNDS)
    told(capsys, f"{', '.join(names)} renewed twice, {first} first", load)
    assert bundle(cluster) != known
    assert (load.lost, load.trouble) == ([], [])


@pytest.mark.parametrize("overlay", ["kubeflow", "cert-manager"])
def test_an_upgrade_restarts_no_notebook_and_loses_no_review(
    cluster: Cluster, platform: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str], overlay: str
) -> None:
    platform.enter_context(CertManager(cluster))
    ours = platform.enter_context(StandIn(cluster, tmp_path, "kubeflow", handshakes=True))
    if overlay == "kubeflow":
        old_authority(cluster)
    cluster.kubectl("apply", "-f", str(BEFORE / f"{overlay}.yaml"))
    wait_until(lambda: ours.served, "the version before is ready", 40)
    known = bundle(cluster)
    room = Room(cluster)
    platform.enter_context(cluster.notebook_controller("1.7", room.namespace))
    platform.enter_context(cluster.node_stub(room.namespace))
    with ReviewLoad(room) as load:
        room.create(limits={"bitfusion.io/gpu-50": "1"})
        pod = room.wait_running()
        wait_until(lambda: room.client.get(f"{room.stateful_sets}/mine")["status"].get("readyReplicas"))
        load.more(ROUNDS)
        ours.mounting = False  # the old pods' kubelet is a minute behind
        cluster.kubectl("apply", "-k", folder(overlay))
        wait_until(lambda: ours.served, "the new version is ready", 40)
        load.more(ROUNDS)
        ours.mounting = True
        if overlay == "cert-manager":
            wait_until(lambda: bundle(cluster) != known, "the new authority in caBundle", 40)
        load.more(ROUNDS)
        still = room.running_pod()
    told(capsys, f"overlay {overlay} upgraded with a running notebook", load)
    assert (load.lost, load.trouble) == ([], [])
    assert still["metadata"]["uid"] == pod["metadata"]["uid"]
    assert still["metadata"].get("deletionTimestamp") is None
    assert len(room.revisions()) == 1
    if overlay == "kubeflow":
        # The authority has a new name; the old one is trusted as well until it ends.
        names = [each.subject.rfc4514_string() for each in x509.load_pem_x509_certificates(bundle(cluster))]
        assert names == [f"CN={CONTROLLER}", f"CN={CONTROLLER}-ca"]


def test_from_the_built_in_authority_to_cert_manager_without_a_lost_review(
    cluster: Cluster, platform: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    platform.enter_context(CertManager(cluster))
    ours = platform.enter_context(StandIn(cluster, tmp_path, "kubeflow", handshakes=True))
    cluster.kubectl("apply", "-k", folder("kubeflow"))
    wait_until(lambda: ours.served, "the built-in authority is in caBundle", 40)
    known = bundle(cluster)
    with ReviewLoad(Room(cluster)) as load:
        load.more(ROUNDS)
        keep_the_authority(cluster)
        load.more(ROUNDS)
        cluster.kubectl("apply", "-k", folder("cert-manager"))
        wait_until(lambda: bundle(cluster) != known, "the new authority in caBundle", 40)
        load.more(ROUNDS)
        wait_until(lambda: ours.served, "the replicas of cert-manager are ready", 40)
        load.more(ROUNDS)
    old, new = ours.processes[:2]
    told(capsys, "from the built-in authority to cert-manager", load)
    assert (load.lost, load.trouble) == ([], [])
    # The old leader has not written its own authority over cert-manager's.
    assert len(old.logged("caBundle written")) == 1
    assert new.logged("caBundle written") == []
