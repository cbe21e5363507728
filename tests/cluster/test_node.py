"""A node on which pods really run: what tests of other rooms rely on."""

from __future__ import annotations

import base64
import http.server
import json
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import units
from tests.cluster.api_client import Refused
from tests.cluster.box import NODE_MARK, Boxed
from tests.cluster.cluster import KubectlFailed
from tests.cluster.components import Component
from tests.cluster.guardian import start_time
from tests.cluster.images import Image, layer_of_files
from tests.cluster.made_once import user_cache
from tests.cluster.node import Node
from tests.cluster.pods import Pods
from tests.support.certificates import certified
from tests.support.processes import processes_with
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

SLEEP = "exec /bin/busybox sleep 1000"


@pytest.fixture
def pods(node: Node) -> Pods:
    """In a namespace of the test's own, that takes pods of the strictest kind only."""
    return Pods(node, node.cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"}))


@contextmanager
def web_server(address: str, answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answers every request on a port of this address; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(b"")

        def do_POST(self) -> None:
            self.send(self.rfile.read(int(self.headers["Content-Length"])))

        def send(self, body: bytes) -> None:
            told = answer
            if body:
                review = json.loads(body)
                told = answer.replace(b"UID", review["request"]["uid"].encode())
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((address, 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_pod_runs_and_tells_its_log_and_takes_commands(pods: Pods) -> None:
    pods.run("p", f"echo hello; {SLEEP}")
    wait_until(lambda: pods.logs("p") == "hello\n", lambda: pods.logs("p"))  # it runs before it says so
    assert pods.exec("p", "/bin/busybox", "id", "-u") == "1000\n"
    pods.delete("p")


def program_of(component: Component) -> int:
    """Its process id; that of what was started here is another."""
    assert isinstance(component, Boxed)
    return component.program_pid


def test_the_nodes_programs_are_the_unpacked_ones(pods: Pods) -> None:
    pods.run("p", SLEEP)
    node = pods.node
    ours = os.path.realpath(user_cache() / "node")
    assert os.readlink(f"/proc/{program_of(node.containerd)}/exe").startswith(ours)
    shims = [each for each in processes_with(f"{NODE_MARK}={node.folder}") if "shim" in each.command]
    assert shims
    assert all(os.readlink(f"/proc/{each.pid}/exe").startswith(ours) for each in shims)
    assert "v1.34.4" in node.cluster.kubectl("get", "node", node.name)


def test_a_pod_reaches_the_apiserver_as_in_any_cluster(pods: Pods) -> None:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    ask = (
        f'/bin/busybox wget -q -O- --no-check-certificate --header "Authorization: Bearer $(/bin/busybox cat '
        f'{account}/token)" '
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/"
    )
    pods.run("p", SLEEP)
    assert json.loads(pods.exec("p", "/bin/sh", "-c", ask))["kind"] == "APIResourceList"
    assert pods.exec("p", "/bin/busybox", "cat", f"{account}/ca.crt") == pods.node.cluster.ca.read_text()


def test_pods_and_this_machine_and_pods_among_themselves_reach_each_other(pods: Pods) -> None:
    page = "echo page > /tmp/index.html; exec /bin/busybox httpd -f -p 8080 -h /tmp"
    served = pods.run("server", page)["status"]["podIP"]
    pods.run("client", SLEEP)
    fetch = ("/bin/busybox", "wget", "-q", "-O-")
    page_seen = wait_until(
        lambda: pods.exec("client", *fetch, f"http://{served}:8080/"), limit_s=20, errors=(KubectlFailed,)
    )
    assert page_seen == "page\n"
    with web_server(pods.node.host_address, b"of the machine") as port:
        url = f"http://{pods.node.host_address}:{port}/"
        assert pods.exec("client", *fetch, url) == "of the machine"


def test_a_webhook_in_a_pod_is_called_by_its_service(pods: Pods, tmp_path: Path) -> None:
    """The pod passes on to this process, which has TLS: both directions are used."""
    name = f"webhook.{pods.namespace}.svc"
    webhook = certified(name, [name])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*webhook.write(tmp_path))
    response = {"uid": "UID", "allowed": False, "status": {"message": "said in a pod"}}
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    client, namespace = pods.node.cluster.client, pods.namespace
    with web_server(pods.node.host_address, json.dumps(answer).encode(), tls) as port:
        here = f"/bin/busybox nc {pods.node.host_address} {port}"
        pods.run("webhook", f"exec /bin/busybox nc -ll -p 8443 -e {here}", labels={"app": "webhook"})
        service = {"selector": {"app": "webhook"}, "ports": [{"port": 443, "targetPort": 8443}]}
        path = f"/api/v1/namespaces/{namespace}/services"
        client.create(path, {"metadata": {"name": "webhook"}, "spec": service})
        configuration = {
            "metadata": {"name": namespace},
            "webhooks": [
                {
                    "name": "said.in.pod",
                    "clientConfig": {
                        "service": {"name": "webhook", "namespace": namespace},
                        "caBundle": base64.b64encode(webhook.certificate).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["configmaps"],
                        }
                    ],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 10,
                }
            ],
        }
        webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        client.create(webhooks, configuration)
        try:
            wait_until(lambda: refusal(pods) == "said in a pod", lambda: refusal(pods), 30)
        finally:
            client.delete(f"{webhooks}/{namespace}")


def refusal(pods: Pods) -> str:
    """In the webhook's words, once the apiserver knows it and its endpoint."""
    path = f"/api/v1/namespaces/{pods.namespace}/configmaps"
    try:
        pods.node.cluster.client.create(path, {"metadata": {"generateName": "c-"}})
    except Refused as refused:
        return refused.message.removeprefix('admission webhook "said.in.pod" denied the request: ')
    return "it was let through"


def test_an_image_has_its_user_environment_folder_and_files(pods: Pods) -> None:
    layers = user_cache() / "node" / "layers"
    program = pods.node.busybox.read_bytes()
    image = Image(
        [
            layer_of_files({"bin/busybox": (program, 0o755), "bin/sh": (program, 0o755)}, layers),
            layer_of_files({"srv/told": (b"in the second layer\n", 0o644)}, layers),
        ],
        env={"PATH": "/bin", "WHO": "the image"},
        entrypoint=["/bin/sh", "-c"],
        cmd=[f"/bin/busybox id -u; echo $WHO; /bin/busybox cat told; {SLEEP}"],
        user="1234",
        workdir="/srv",
    )
    pods.node.import_image(image, "example/told:1")
    plain = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    drop = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "main", "image": "example/told:1", "imagePullPolicy": "Never"}
    spec = {"securityContext": plain, "containers": [{**container, "securityContext": drop}]}
    pods.create({"metadata": {"name": "p"}, "spec": spec})
    pods.wait_running("p")
    said = ["1234", "the image", "in the second layer"]  # by a pod that is running already
    wait_until(lambda: pods.logs("p").splitlines() == said, lambda: pods.logs("p"))


def test_an_image_that_nobody_imported_is_told(pods: Pods) -> None:
    pods.make("p", SLEEP, image="example/nobodys:1")

    def reason() -> str:
        (status,) = pods.get("p")["status"].get("containerStatuses") or [{}]
        return str(status.get("state", {}).get("waiting", {}).get("reason"))

    wait_until(lambda: reason() == "ErrImageNeverPull", lambda: pods.told("p"), 30)


def test_containers_outlive_containerd_and_the_kubelet(pods: Pods) -> None:
    pods.run("p", SLEEP)
    node = pods.node
    started = pods.get("p")["status"]["containerStatuses"][0]
    programs = [program_of(node.containerd), program_of(node.kubelet)]
    node.containerd.kill()
    node.kubelet.kill()
    wait_until(lambda: not any(map(start_time, programs)), limit_s=10)
    node.containerd.start()
    node.kubelet.start()
    said = wait_until(
        lambda: pods.exec("p", "/bin/busybox", "echo", "still"), limit_s=30, errors=(KubectlFailed,)
    )
    assert said == "still\n"
    assert pods.get("p")["status"]["containerStatuses"][0] == started
    pods.run("later", SLEEP)
    pods.delete("p")


def test_pods_are_placed_by_the_units_that_the_node_offers(pods: Pods) -> None:
    def ask(name: str, count: int) -> None:
        pods.make(name, SLEEP, resources={"limits": {"bitfusion.io/gpu": str(count)}})

    pods.node.offer_units(100)
    try:
        ask("first", 60)
        pods.wait_running("first")
        ask("second", 60)
        short = "1 Insufficient bitfusion.io/gpu"
        wait_until(lambda: short in pods.told("second"), lambda: pods.told("second"), 30)
        assert pods.get("second")["status"]["phase"] == "Pending"
        pods.node.kubelet.restart()
        pods.delete("first")
        pods.wait_running("second")
        units.wait_for(pods.node.cluster.client, pods.node.name, 100)
    finally:
        for name in ("first", "second"):  # the node is other tests', too, and so are its units
            pods.delete(name)
        pods.node.offer_units(0)
    pods.node.offer_units(0)  # it offers none any more
