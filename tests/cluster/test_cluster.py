"""The test cluster itself: what tests of other rooms rely on."""

from __future__ import annotations

import json
import socket

import pytest

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster, KubectlFailed
from tests.cluster.components import ComponentFailed, marked_processes
from tests.support.machine import scaled
from tests.support.notebooks import bare_notebook, container
from tests.support.waiting import wait_until


def test_kubectl_speaks_with_a_kubernetes_of_the_stated_version(cluster: Cluster) -> None:
    versions = json.loads(cluster.kubectl("version", "--output", "json"))
    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"] == "v1.34.4"


def test_kubectl_that_fails_raises_with_its_words(cluster: Cluster) -> None:
    with pytest.raises(KubectlFailed, match='namespaces "no-such" not found'):
        cluster.kubectl("get", "namespace", "no-such")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_notebook_of_each_served_version_is_stored_as_v1(cluster: Cluster, version: str) -> None:
    namespace = cluster.new_namespace()
    made = bare_notebook({**container(), "anything": {"goes": 1}}, name=f"made-as-{version}", version=version)
    cluster.client.create(f"/apis/kubeflow.org/{version}/namespaces/{namespace}/notebooks", made)
    stored = cluster.client.get(f"/apis/kubeflow.org/v1/namespaces/{namespace}/notebooks/made-as-{version}")
    assert stored["spec"] == made["spec"]


def test_a_namespace_carries_its_labels_and_takes_pods_at_once(cluster: Cluster) -> None:
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    namespace = cluster.new_namespace(labels)
    assert (
        cluster.client.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"].items() >= labels.items()
    )
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)


def test_the_controller_manager_makes_the_pod_of_a_stateful_set(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {
        "metadata": {"name": "s"},
        "spec": {"selector": {"matchLabels": labels}, "serviceName": "", "template": template},
    }
    cluster.client.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", body)
    wait_until(lambda: cluster.client.exists(f"/api/v1/namespaces/{namespace}/pods/s-0"), limit_s=20)


def test_a_service_account_has_no_right_that_it_was_not_given(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    config = cluster.service_account_kubeconfig(namespace, "default")
    who = json.loads(cluster.kubectl("auth", "whoami", "--output", "json", kubeconfig=config))
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("get", "pods", kubeconfig=config)
    assert config.stat().st_mode & 0o077 == 0


def test_the_apiserver_comes_back_on_its_port_with_its_data(cluster: Cluster) -> None:
    # With SIGTERM it would wait a minute for the watches of the controller-manager: see the outages.
    namespace = cluster.new_namespace()
    cluster.apiserver.kill()
    assert not cluster.apiserver.running
    with pytest.raises(OSError, match="refused"):
        cluster.client.get(f"/api/v1/namespaces/{namespace}")
    cluster.apiserver.start()
    assert cluster.client.get(f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace


def test_a_frozen_apiserver_takes_connections_and_answers_nobody(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    host, port = cluster.server.removeprefix("https://").split(":")
    cluster.apiserver.freeze()
    try:
        with socket.create_connection((host, int(port)), timeout=scaled(5)) as connection:
            connection.settimeout(0.5)
            connection.sendall(b"is anybody there?")
            with pytest.raises(TimeoutError):
                connection.recv(1)
    finally:
        cluster.apiserver.thaw()
    assert cluster.client.exists(f"/api/v1/namespaces/{namespace}")


def test_a_component_that_cannot_start_tells_its_last_words(cluster: Cluster) -> None:
    broken = cluster.component("broken", ["/bin/sh", "-c", "echo the disk is full; exit 3"], lambda: False)
    with pytest.raises(ComponentFailed, match=r"^broken ended; its last lines:\nthe disk is full$"):
        broken.start()
    slow = cluster.component("slow", ["/bin/sleep", "60"], lambda: False)
    with pytest.raises(ComponentFailed, match=r"^slow was not ready within \d+ s; its last lines:"):
        slow.start(limit_s=0.2)
    slow.kill()


def test_the_codes_own_client_reaches_the_cluster(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    api = cluster.api()
    assert api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace
    api.close()


def test_a_watch_tells_what_happens_and_ends_when_it_is_closed(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen = []
    with cluster.client.watch(path) as watch:
        cluster.client.create(path, {"metadata": {"name": "told"}})
        for event in watch:
            seen.append(event["object"]["metadata"]["name"])
            if "told" in seen:
                watch.close()
    assert "told" in seen


def test_an_error_of_the_apiserver_keeps_its_words(cluster: Cluster) -> None:
    with pytest.raises(Refused, match=r'^404 NotFound: namespaces "no-such" not found$'):
        cluster.client.get("/api/v1/namespaces/no-such")


def test_the_clusters_processes_are_known_and_not_the_tests_own(cluster: Cluster) -> None:
    known = {each.pid for each in cluster.components.values()} | {cluster.guardian_pid}
    assert set(marked_processes(cluster.folder)) == known
