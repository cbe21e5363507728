"""The whole process on a real Kubernetes, with the rights of the manifests' ServiceAccount and no others."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.listening.crowd import TOO_SLOW
from bitfusion_cluster.certificates.authority import new_authority
from bitfusion_cluster.certificates.authority_secret import Authorities, write_authorities
from bitfusion_cluster.program.http_connections import HEADER_SECONDS
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair, trusted
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE
from tests.cluster.quota import until_quota_refuses
from tests.cluster.tcp_proxy import TcpProxy
from tests.notebook_controller_patch.controller_process import ControllerProcess
from tests.notebook_controller_patch.installation import NAME, WEBHOOKS_PATH, Installation
from tests.support.files import replace_text
from tests.support.machine import scaled
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

OS, VERSION = "bitfusion-client/os", "bitfusion-client/version"
KINDS = ("RSA", "ECDSA", "ECDSA", "RSA")
CREATIONS = 2000


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> str:
    """A user's namespace."""
    return cluster.new_namespace(PROFILE, "user")


@pytest.fixture
def installed(cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with Installation(cluster, tmp_path) as made:
        yield made


KEYS = {
    "pool": "requests.bitfusion.io/gpu",
    "plain": "bitfusion.io/gpu",
    "limits": "limits.bitfusion.io/gpu",
    "size": "requests.bitfusion.io/gpu-50",
    "gpus": "nvidia.com/gpu",
}
GPU = "requests.nvidia.com/gpu"


def test_where_gpu_pods_compute_a_quota_by_another_key_is_told_which_one_counts(
    cluster: Cluster, installed: Installation
) -> None:
    namespace = cluster.new_namespace(PROFILE)
    place = f"/api/v1/namespaces/{namespace}"
    quotas = f"{place}/resourcequotas"
    spec = {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    for name, key in KEYS.items():
        cluster.client.create(quotas, {"metadata": {"name": name}, "spec": {"hard": {key: "0"}}})
    wait_until(
        lambda: all(one.get("status", {}).get("hard") for one in cluster.client.get(quotas)["items"]),
        "all quotas are in force",
    )
    cluster.client.create(f"{place}/pods", {"metadata": {"name": "before"}, "spec": spec})  # none limits it
    installed.start(f"--quota-keys={GPU}")

    def told() -> dict[str, str]:
        events = cluster.client.get(f"{place}/events", fieldSelector="reason=BitfusionQuotaKey")["items"]
        return {one["involvedObject"]["name"]: one["message"] for one in events}

    wait_until(lambda: len(told()) == len(KEYS), told, 30)
    assert told() == {
        name: f"This quota does not limit GPUs by {key}: use {GPU}, because notebooks compute in GPU pods."
        for name, key in KEYS.items()
    }
    cluster.client.merge(f"{quotas}/gpus", {"spec": {"hard": {KEYS["gpus"]: None, GPU: "1"}}})
    after = {"metadata": {"name": "after"}, "spec": spec}
    assert f"requested: {GPU}=1" in until_quota_refuses(cluster.client, namespace, after, quota="gpus")
    assert len(told()) == len(KEYS)


def dry_run(cluster: Cluster, namespace: str, image: str = "") -> dict[str, str]:
    """The annotations a half-GPU notebook would get."""
    notebook = form_notebook("nb", {"bitfusion.io/gpu-50": "1"}, namespace=namespace)
    if image:
        notebook["spec"]["template"]["spec"]["containers"][0]["image"] = image
    path = f"/apis/kubeflow.org/v1beta1/namespaces/{namespace}/notebooks"
    made = cluster.client.create(path, notebook, dryRun="All")
    return dict(made["metadata"]["annotations"])


def admitted(cluster: Cluster, namespace: str, image: str = "") -> dict[str, str]:
    """The same as soon as the apiserver, which hears of changed webhooks a moment later, has them called."""

    def annotations() -> dict[str, str] | None:
        found = dry_run(cluster, namespace, image)
        return found if OS in found else None

    return wait_until(annotations, limit_s=10, errors=(Refused,))


def test_from_nothing_to_ready_to_the_end(
    cluster: Cluster, installed: Installation, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = installed.start()
    installed.call(replica, failurePolicy="Fail")
    seconds = replica.wait_ready()
    annotations = admitted(cluster, user)
    assert annotations["auto-management/bitfusion"] == "injection"
    assert (annotations[OS], annotations[VERSION]) == ("ubuntu22", "454")
    secret = cluster.client.get(installed.secret_path)
    assert secret["type"] == "kubernetes.io/tls"
    assert secret["metadata"]["labels"]["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
    assert replica.metric("bitfusion_controller_info", version="0.1.0") == 1
    wait_until(lambda: replica.metric("bitfusion_reconcile_leader") == 1, limit_s=10)
    assert installed.holder()
    status, took = replica.end()
    assert status == 0
    assert took < scaled(20)
    assert installed.holder() == ""  # given back, so that another one need not wait for it
    with capsys.disabled():
        print(f"\ncontroller: ready {seconds:.1f} s after its listeners, ended {took:.1f} s after SIGTERM")


def test_a_bundle_emptied_by_kubectl_replace_is_healed_within_seconds(
    cluster: Cluster, installed: Installation, user: str
) -> None:
    replica = installed.started()
    before = installed.bundles()
    assert before[0].startswith(b"-----BEGIN CERTIFICATE-----")
    found = cluster.client.get(WEBHOOKS_PATH)
    for webhook in found["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
        webhook["failurePolicy"] = "Fail"
    for name in ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"):
        found["metadata"].pop(name, None)
    cluster.kubectl("replace", "-f", "-", input=json.dumps(found))
    wait_until(lambda: installed.bundles() == before, limit_s=8)
    assert admitted(cluster, user)
    assert replica.ask("/readyz") == (200, "ok\n")
    wait_until(lambda: len(replica.logged("caBundle written")) == 2)


def test_two_replicas_that_start_together_share_one_authority(
    cluster: Cluster, installed: Installation, user: str
) -> None:
    replicas = [installed.start(), installed.start()]
    for replica in replicas:
        replica.wait_ready()
    (created,) = [line for replica in replicas for line in replica.logged("certificate authority created")]
    assert created["secret"] == f"{installed.namespace}/bitfusion-notebook-controller-ca"
    for replica in replicas:
        installed.call(replica, failurePolicy="Fail")
        assert admitted(cluster, user)

    def leading() -> list[float]:
        return [replica.metric("bitfusion_reconcile_leader") for replica in replicas]

    wait_until(lambda: sorted(leading()) == [0, 1], limit_s=10)
    # the leader ends: the other one leads at once, since the lease was given back
    leader, other = replicas if leading()[0] else reversed(replicas)
    assert leader.end()[0] == 0
    wait_until(lambda: other.metric("bitfusion_reconcile_leader") == 1, limit_s=10)
    assert other.ask("/readyz")[0] == 200


def test_an_old_authority_is_renewed_and_both_are_trusted(
    cluster: Cluster, installed: Installation, user: str
) -> None:
    old = new_authority("old", datetime.now(timezone.utc) - timedelta(days=3000))
    secret = {
        "metadata": {"name": f"{NAME}-ca"},
        "type": "kubernetes.io/tls",
        "data": write_authorities(Authorities(old)),
    }
    cluster.client.create(f"/api/v1/namespaces/{installed.namespace}/secrets", secret)
    replica = installed.start()
    installed.call(replica, failurePolicy="Fail")
    replica.wait_ready()
    wait_until(lambda: replica.logged("certificate authority renewed"), limit_s=10)
    wait_until(lambda: {bundle.count(b"BEGIN") for bundle in installed.bundles()} == {2}, limit_s=10)
    for bundle in installed.bundles():
        assert bundle.endswith(old.certificate)
    assert admitted(cluster, user)
    kept = cluster.client.get(installed.secret_path)["data"]
    assert base64.b64decode(kept["previous.crt"]) == old.certificate
    assert base64.b64decode(kept["tls.crt"]) == installed.bundles()[0][: -len(old.certificate)]


def test_without_its_webhook_configuration_a_replica_says_so_and_is_ready_when_it_comes(
    cluster: Cluster, installed: Installation
) -> None:
    cluster.client.delete(WEBHOOKS_PATH)
    replica = installed.start()
    told = (
        "MutatingWebhookConfiguration bitfusion-notebook-admission does not exist; apply it, or name "
        "another with --webhook-configuration"
    )
    wait_until(lambda: replica.logged(told), limit_s=15)
    missing = "not ready: the CA in caBundle of bitfusion-notebook-admission\n"
    wait_until(lambda: replica.ask("/readyz") == (503, missing), limit_s=10)
    cluster.kubectl("apply", "-f", "-", input=json.dumps(installed.webhooks))
    replica.wait_ready()
    # an uninstallation begins with it: nobody becomes unready
    cluster.client.delete(WEBHOOKS_PATH)
    wait_until(lambda: len(replica.logged(told)) == 2, limit_s=10)
    assert replica.ask("/readyz")[0] == 200


def test_rights_that_are_missing_are_told_and_used_when_they_come(
    cluster: Cluster, installed: Installation
) -> None:
    rights = [item for item in installed.objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    names = [f"{item['kind']}/{item['metadata']['name']}" for item in rights]
    cluster.kubectl("delete", "-n", installed.namespace, *names)
    replica = installed.start()
    wait_until(lambda: any("cannot get resource" in str(line) for line in replica.lines()), limit_s=15)
    assert replica.ask("/readyz")[0] == 503
    cluster.kubectl("apply", "-f", "-", input=as_list(rights))
    replica.wait_ready(40)


def test_image_rules_are_read_again_and_a_broken_file_changes_nothing(
    cluster: Cluster, installed: Installation, user: str, tmp_path: Path
) -> None:
    file = tmp_path / "images.yaml"
    replace_text(file, "- {image: 'team/*', os: centos8, version: 450}\n")
    replica = installed.started(f"--images={file}")
    assert admitted(cluster, user, "team/notebook:v1")[OS] == "centos8"
    replace_text(file, "- {image: 'team/*', os: ubuntu20, version: 450}\n")
    wait_until(lambda: dry_run(cluster, user, "team/notebook:v1")[OS] == "ubuntu20", limit_s=10)
    replace_text(file, "- {image: 'team/*'\n")
    wait_until(
        lambda: any("the old contents stay" in str(line["message"]) for line in replica.lines()), limit_s=10
    )
    assert dry_run(cluster, user, "team/notebook:v1")[OS] == "ubuntu20"


PATIENT = {"failurePolicy": "Fail", "timeoutSeconds": 30}
"""A failure is seen at once, and is none of a machine that stands still for some seconds."""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_certificates_renewed_under_load_fail_no_request_of_the_apiserver(
    cluster: Cluster, installed: Installation, user: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mount = MountedSecret(tmp_path / "tls", pair("ECDSA"))
    replica = installed.start(f"--certificate-folder={mount.folder}", built_in=False)
    set_bundle(cluster, trusted())
    installed.call(replica, **PATIENT)  # a failure would be seen at once
    replica.wait_ready()
    assert admitted(cluster, user)
    load = Load(cluster, user, threads=4)
    load.start()
    try:
        for number, kind in enumerate(KINDS, 1):
            mount.exchange(pair(kind))
            wait_until(partial(_renewed, replica, number), limit_s=15)
            # another caBundle makes the apiserver connect anew, as another replica of it would
            set_bundle(cluster, trusted() + "\n" * number)
            wait_until(partial(load.has_done, CREATIONS * number / len(KINDS)), limit_s=60)
    finally:
        load.stop()
    with capsys.disabled():
        print(
            f"\ncertificates exchanged {len(KINDS)} times (ECDSA to {', '.join(KINDS)}) under {load.done} "
            f"creations through the apiserver: {len(load.failures)} failed"
        )
    assert load.failures == []
    assert load.done >= CREATIONS
    answered = replica.metric("bitfusion_admission_reviews_total", webhook="notebooks", outcome="patched")
    assert answered >= CREATIONS


@pytest.mark.long
@pytest.mark.timeout(120)
def test_replicas_are_exchanged_under_load_without_a_failed_request(
    cluster: Cluster, installed: Installation, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = installed.started("--drain=10")
    # stands for the Service: new connections go to a replica that is ready
    with TcpProxy(replica.port) as service:
        installed.call_port(service.port, **PATIENT)
        assert admitted(cluster, user)
        load = Load(cluster, user, threads=4)
        load.start()
        try:
            for _ in range(3):
                fresh = installed.start("--drain=10")
                fresh.wait_ready()
                replica.process.send_signal(signal.SIGTERM)
                wait_until(partial(_unready, replica), limit_s=10)
                service.target = fresh.port
                wait_until(partial(service.has_left, replica.port), limit_s=10)  # it drains for 10 s
                wait_until(partial(load.has_done, load.done + 200), limit_s=30)
                # a second signal ends the drain, which lasts until everybody calls the fresh one
                assert replica.end()[0] == 0
                wait_until(partial(load.has_done, load.done + 100), limit_s=30)
                replica = fresh
        finally:
            load.stop()
        installed.call_port(replica.port)
    with capsys.disabled():
        print(f"\n3 replicas exchanged under {load.done} creations: {len(load.failures)} failed")
    assert load.failures == []


@pytest.mark.long
@pytest.mark.timeout(60)
def test_connections_that_the_apiserver_opens_in_reserve_stay_open(
    cluster: Cluster, installed: Installation, user: str
) -> None:
    """In a burst it opens more than it uses. A creation fails if we close one that it is about to use."""
    replica = installed.started()
    installed.call(replica, **PATIENT)
    assert admitted(cluster, user)
    for threads in (8, 16, 32):
        load = Load(cluster, user, threads)
        load.start()
        wait_until(partial(load.has_done, threads), limit_s=30)
        load.stop()
        assert load.failures == []
    time.sleep(HEADER_SECONDS + 1)
    assert replica.metric("bitfusion_admission_connections_closed_total", reason=TOO_SLOW) == 0


def as_list(objects: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def set_bundle(cluster: Cluster, bundle: str) -> None:
    """As cert-manager's injector does."""
    found = cluster.client.get(WEBHOOKS_PATH)
    text = base64.b64encode(bundle.encode()).decode()
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": text}
        for index in range(len(found["webhooks"]))
    ]
    cluster.client.patch(WEBHOOKS_PATH, operations)


def _renewed(replica: ControllerProcess, times: int) -> bool:
    return len(replica.logged("certificate renewed")) == times


def _unready(replica: ControllerProcess) -> bool:
    return replica.ask("/readyz")[0] == 503


class Load:
    """Dry-run creations of notebooks that ask, each of which must come back with our annotations."""

    def __init__(self, cluster: Cluster, namespace: str, threads: int) -> None:
        self._cluster = cluster
        self._path = f"/apis/kubeflow.org/v1beta1/namespaces/{namespace}/notebooks?dryRun=All"
        self._body = json.dumps(
            form_notebook("nb", {"bitfusion.io/gpu-50": "1"}, namespace=namespace)
        ).encode()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self._lock = threading.Lock()
        self.done = 0
        self.failures: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def has_done(self, creations: float) -> bool:
        return self.done >= creations

    def _run(self) -> None:
        context = ssl.create_default_context(cafile=str(self._cluster.ca))
        host, _, port = self._cluster.server.removeprefix("https://").partition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=scaled(40), context=context)
        headers = {"Authorization": f"Bearer {self._cluster.token}", "Content-Type": "application/json"}
        while not self._stopping.is_set():
            try:
                connection.request("POST", self._path, self._body, headers)
                answer = connection.getresponse()
                made: dict[str, Any] = json.loads(answer.read())
                annotated = OS in (made.get("metadata", {}).get("annotations") or {})
                problem = "" if answer.status == 201 and annotated else f"{answer.status} {str(made)[:300]}"
            except (OSError, ValueError, http.client.HTTPException) as error:
                problem = repr(error)
                connection.close()
            with self._lock:
                self.done += 1
                if problem:
                    self.failures.append(problem)
        connection.close()
