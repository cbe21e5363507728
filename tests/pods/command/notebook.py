"""A notebook's pod on the tests' API server, and `bitfusion run` as if it ran in it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bitfusion_client.pod import pod_contract
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.quota import until_quota_refuses
from tests.cluster.rights import may
from tests.pods.command.gpu_node import COMMAND, GPU, GpuNode
from tests.support.machine import scaled
from tests.support.waiting import wait_until

NAME = "digits-0"

# What of kubeflow-edit (kubeflow/manifests 009c880, apps/profiles and common/kubeflow-roles) GPU pods need.
EDIT: list[Object] = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    {
        "apiGroups": [""],
        "resources": ["events", "persistentvolumeclaims", "resourcequotas"],
        "verbs": ["get", "list"],
    },
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch"]},
]
VIEW: list[Object] = [
    {**rule, "verbs": ["get", "list", "watch"]} for rule in EDIT if rule["resources"] != ["secrets"]
]


class Notebook:
    """Its pod, its account, and the commands in it."""

    def __init__(
        self, cluster: Cluster, namespace: str, folder: Path, node: GpuNode, run_folder: Path
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = NAME
        self.node = node
        self.run_folder = run_folder
        self._folder = folder
        self._account = folder / "account"
        self._account.mkdir()
        token = cluster.service_account_token(namespace, "default-editor")
        (self._account / "token").write_text(token)
        (self._account / "namespace").write_text(namespace)
        (self._account / "ca.crt").write_bytes(cluster.ca.read_bytes())
        host, _, port = cluster.server.removeprefix("https://").partition(":")
        self._api = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "BITFUSION_PODS_ACCOUNT": str(self._account),
        }
        node.account = self._api
        spec = {"containers": [{"name": "digits", "image": "docker.io/team/notebook:1"}]}
        self.pod = cluster.client.create(
            f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": NAME}, "spec": spec}
        )
        wait_until(lambda: self.pod_now(NAME)["status"]["phase"] == "Running", "the notebook runs")

    def pod_now(self, name: str) -> Object:
        return self.cluster.client.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def gpu_pods(self) -> list[Object]:
        listed = self.cluster.client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [pod for pod in listed if pod["metadata"]["name"].startswith(f"{self.name}-gpu-")]

    def secrets(self) -> list[Object]:
        """Those of its GPU pods."""
        path, label = f"/api/v1/namespaces/{self.namespace}/secrets", pod_contract.LABEL_GPU_POD_OF
        found: list[Object] = self.cluster.client.get(path, labelSelector=label)["items"]
        return found

    def one_gpu_pod(self, phase: str = "Running") -> str:
        """The name of the only one, once it is in this phase."""

        def there() -> str:
            (pod,) = self.gpu_pods()
            return pod["metadata"]["name"] if pod["status"]["phase"] == phase else ""

        return wait_until(there, f"a GPU pod that is {phase}", errors=(ValueError,))

    def limit(self, quota: str, key: str, most: int) -> None:
        """Make a quota of whole GPUs, or of no Secret; returns once it counts."""
        place = f"/api/v1/namespaces/{self.namespace}/resourcequotas"
        body = {"metadata": {"name": quota}, "spec": {"hard": {key: str(most)}}}
        self.cluster.client.create(place, body)
        if key == "count/secrets":
            plural, content = "secrets", {}
        else:
            container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(most + 1)}}}
            plural, content = "pods", {"spec": {"containers": [container]}}
        too_much = {"metadata": {"name": "too-much"}, **content}
        until_quota_refuses(self.cluster.client, self.namespace, too_much, plural, quota=quota)

    def environment(self, **settings: object) -> dict[str, str]:
        """That of a command in it."""
        file = self._folder / f"settings-{len(list(self._folder.iterdir()))}.json"
        file.write_text(json.dumps(settings))
        return {
            **self._api,
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "HOSTNAME": self.name,
            "BITFUSION_PODS_SETTINGS": str(file),
            "BITFUSION_PYTHON": sys.executable,
            "BITFUSION_POOL_ALL_LINES": "1",
            "XDG_RUNTIME_DIR": str(self.run_folder),
        }

    @property
    def command(self) -> str:
        """The path of `bitfusion`."""
        return str(COMMAND)

    def as_injected(self, root: Path, budget: str) -> Path:
        """What the injector's init container writes, for `start(root=…)`."""
        files = root / pod_contract.POD_FOLDER
        files.mkdir(parents=True)
        texts = {
            pod_contract.NAME_FILE: self.name,
            pod_contract.NAMESPACE_FILE: self.namespace,
            pod_contract.UID_FILE: self.pod["metadata"]["uid"],
            pod_contract.NOTEBOOK_FILE: "digits",
            pod_contract.CONTAINER_FILE: "digits",
            pod_contract.REQUEST_FILE: budget,
            pod_contract.CLIENT_FILE: pod_contract.PODS,
        }
        for name, text in texts.items():
            (files / name).write_text(text)
        return root

    def start(
        self,
        *words: str,
        stdin: int = subprocess.DEVNULL,
        root: Path | None = None,
        changed: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Command:
        """`bitfusion …` in it; `root` stands for `/bitfusion`, `changed` is of the environment."""
        given = {} if root is None else {"BITFUSION_TEST_POD_ROOT": str(root)}
        given |= changed or {}
        return Command(
            [self.command, *words],
            env=self.environment(**settings) | given,
            cwd=self._folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def run(
        self,
        *words: str,
        root: Path | None = None,
        changed: Mapping[str, str] | None = None,
        **settings: object,
    ) -> Command:
        """The same, to its end."""
        command = self.start(*words, stdin=subprocess.DEVNULL, root=root, changed=changed, **settings)
        command.finish()
        return command


class Command(subprocess.Popen[bytes]):
    """One that ends in the test; `said` and `told` are its stdout and stderr."""

    said = b""
    told = ""

    def finish(self, limit_s: float = 40.0) -> int:
        self.said, told = self.communicate(timeout=scaled(limit_s))
        self.told += told.decode()
        return self.returncode

    def until_told(self, words: str) -> str:
        """Read stderr up to a line with these words."""
        assert self.stderr is not None
        while words not in self.told:
            line = self.stderr.readline()
            assert line, f"{words!r} is not in {self.told}"
            self.told += line.decode()
        return self.told


@contextmanager
def notebook_in(
    cluster: Cluster, folder: Path, gpus: int = 2, rules: list[Object] | None = None
) -> Iterator[Notebook]:
    """One in a namespace of its own, beside a node with GPUs."""
    namespace = cluster.new_namespace({"app.kubernetes.io/part-of": "kubeflow-profile"})
    allow(cluster, namespace, EDIT if rules is None else rules)
    run_folder = Path(tempfile.mkdtemp())  # of a short path, for sockets
    keys = folder / "node"
    keys.mkdir()
    own = folder / "notebook"
    own.mkdir()
    with GpuNode(cluster, namespace, keys, run_folder, gpus) as node:
        yield Notebook(cluster, namespace, own, node, run_folder)
        for pod in cluster.client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            with contextlib.suppress(Refused):  # gone meanwhile
                cluster.client.delete(path, {"gracePeriodSeconds": 0})
    # the last process of a kernel removes its folder
    wait_until(lambda: not any(run_folder.iterdir()), "an empty run folder", 5)
    run_folder.rmdir()


def allow(cluster: Cluster, namespace: str, rules: list[Object]) -> None:
    """The account of a profile's notebooks, with these rights."""
    cluster.client.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default-editor"}}
    )
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    cluster.client.create(f"{rbac}/roles", {"metadata": {"name": "editor"}, "rules": rules})
    binding = {
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "editor"},
        "subjects": [{"kind": "ServiceAccount", "name": "default-editor", "namespace": namespace}],
    }
    cluster.client.create(f"{rbac}/rolebindings", binding)
    user = f"system:serviceaccount:{namespace}:default-editor"
    for rule in rules[:1]:
        asked = {"group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": rule["verbs"][0]}
        wait_until(partial(may, cluster.client, user, namespace=namespace, **asked), "its rights")
