"""A real Kubernetes control plane of this machine's own: etcd, apiserver and controller-manager.

No kubelet and no scheduler run: `node_stub` lets pods run, `notebook_controller` stands for Kubeflow's.
`tests.cluster.node` adds a real node.
Everything lies in one private temporary folder, every port is a free one of 127.0.0.1.
"""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.binaries import Binaries
from tests.cluster.components import Component, ComponentFailed, Guardian, marked_processes
from tests.cluster.keys import FRONT_PROXY, SERVICE_NETWORK, Keys, write_keys, write_kubeconfig
from tests.cluster.node_stub import NodeStub, translated
from tests.cluster.notebook_controller import INFORMER_DELAY_S, Kubeflow, NotebookController
from tests.support.machine import scaled
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from bitfusion_cluster.api.client import KubernetesApi

_CRD = Path(__file__).parent / "notebook_crd.yaml"
_START_ATTEMPTS = 3

AGGREGATION = (
    f"--requestheader-client-ca-file={FRONT_PROXY}-ca.crt",
    f"--requestheader-allowed-names={FRONT_PROXY}",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-username-headers=X-Remote-User",
    f"--proxy-client-cert-file={FRONT_PROXY}.crt",
    f"--proxy-client-key-file={FRONT_PROXY}.key",
)
"""Options of an apiserver that has others behind it, by APIServices; files of the cluster's folder."""


class LeftBehind(Exception):
    """Processes of a cluster that are alive after its end."""


class Cluster:
    """One running control plane, its clients, and its parts to stop and start.

    `Cluster.start()` makes one and `end()` ends it; tests get the run's through the fixture `cluster`.
    """

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        apiserver_options: Sequence[str] = (),
        nodes: Sequence[str] = (),
    ) -> None:
        self._apiserver_options = tuple(apiserver_options)
        self._nodes = tuple(nodes)
        self.binaries = binaries
        self.folder = folder
        """Private; goes with the cluster."""
        self.start_s = 0.0
        """Seconds from nothing to ready, the build of the binaries not counted."""
        self._guardian = Guardian(folder)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closing = ExitStack()
        port, self._etcd_port, self._peer_port, self._manager_port = free_ports(4)
        self.server = f"https://127.0.0.1:{port}"
        self.port = port
        self._advertised = own_address()
        self._keys: Keys = write_keys(folder, self._advertised, nodes)
        self.kubeconfig: Path = write_kubeconfig(
            folder / "admin.kubeconfig", self.server, self._keys.ca, self.token
        )
        """Of an admin."""
        self.client = ApiClient(self.server, self.ca, self.token)
        """An admin's plain client; for the code's own see `api`."""
        self._closing.callback(self.client.close)
        self.etcd = self._own("etcd", self._etcd_command(), self._etcd_ready)
        self.apiserver = self._own("kube-apiserver", self._apiserver_command(), self._apiserver_ready)
        self.controller_manager = self._own(
            "kube-controller-manager", self._manager_command(), self._manager_ready
        )

    @classmethod
    def start(
        cls, binaries: Binaries, apiserver_options: Sequence[str] = (), nodes: Sequence[str] = ()
    ) -> Cluster:
        """Start one and wait until it is ready: namespaces get their ServiceAccount, Notebooks are served.

        With `apiserver_options` besides its own, and ready for real nodes (`tests.cluster.node`) of these
        names.

        Raises ComponentFailed with the words of the component that did not start.
        """
        for attempt in range(1, _START_ATTEMPTS + 1):
            folder = Path(tempfile.mkdtemp(prefix="kubeflow-bitfusion-cluster-"))
            cluster = cls(binaries, folder, apiserver_options, nodes)
            try:
                cluster._start()
            except ComponentFailed as failed:
                cluster.end()
                # Somebody took the port between our look and the start.
                if "address already in use" not in str(failed) or attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                cluster.end()
                raise
            else:
                return cluster
        raise AssertionError

    def _start(self) -> None:
        began = time.monotonic()
        self.etcd.start(wait=False)
        self.apiserver.start(wait=False)
        self.etcd.wait_ready()
        self.apiserver.wait_ready()
        self.controller_manager.start()  # ends when the apiserver is not healthy within 20 s
        self.kubectl("apply", "--server-side", "--filename", str(_CRD))
        wait_until(
            lambda: self.client.get("/apis/kubeflow.org/v1beta1/notebooks"),
            "Notebooks are served",
            20,
            errors=(Refused,),
        )
        self._wait_service_account("default")
        self.start_s = time.monotonic() - began

    def end(self) -> None:
        """End every process and remove the folder; raises LeftBehind if one is still alive."""
        self._closing.close()
        for component in reversed(list(self.components.values())):
            component.kill()  # the data goes too: nothing to save
        self._guardian.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        left = marked_processes(self.folder)
        if left:
            raise LeftBehind(f"processes of the test cluster are alive after its end: {left}")

    @property
    def components(self) -> dict[str, Component]:
        """By name, in the order in which they start."""
        return {each.name: each for each in (self.etcd, self.apiserver, self.controller_manager)}

    @property
    def ca(self) -> Path:
        """The authority of the apiserver's certificate."""
        return self._keys.ca

    @property
    def token(self) -> str:
        """Of an admin (system:masters)."""
        return self._keys.admin_token

    def node_token(self, name: str) -> str:
        """Of the kubelet of a node that `start` was told of."""
        return self._keys.node_tokens[name]

    def note_cgroup(self, folder: Path) -> None:
        """Have the guardian remove it, when its processes have ended."""
        self._guardian.add_cgroup(folder)

    @property
    def guardian_pid(self) -> int:
        return self._guardian.pid

    def component(
        self,
        name: str,
        command: Sequence[str],
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        kind: type[Component] = Component,
    ) -> Component:
        """Another process beside the cluster, not started yet.

        A test may start and stop it; it is none of the test's leftovers, and ends with the cluster.
        """
        return kind(name, command, self.folder, self._guardian, ready, environment)

    def api(self, kubeconfig: Path | None = None) -> KubernetesApi:
        """The code's own client, as admin or as the user of that kubeconfig."""
        from bitfusion_cluster.api.client import KubernetesApi

        return KubernetesApi.load(str(kubeconfig or self.kubeconfig))

    def client_as(self, token: str, agent: str = "test-harness") -> ApiClient:
        """A plain client of another user; closed with the cluster."""
        client = ApiClient(self.server, self.ca, token, agent)
        self._closing.callback(client.close)
        return client

    def notebook_controller(
        self,
        kubeflow: Kubeflow,
        namespace: str | None = None,
        informer_delay_s: float = INFORMER_DELAY_S,
        generates_names: bool = False,
    ) -> NotebookController:
        """Our stub of Kubeflow's notebook controller, for `with`; of all namespaces when none is given."""
        client = ApiClient(self.server, self.ca, self.token, "notebook-controller")
        return NotebookController(client, kubeflow, namespace, informer_delay_s, generates_names)

    def node_stub(
        self,
        namespace: str | None = None,
        schedulable: Callable[[Object], bool] = translated,
        termination_s: float = 0.0,
    ) -> NodeStub:
        """A node that exists on paper and lets pods run, for `with`; see NodeStub."""
        client = ApiClient(self.server, self.ca, self.token, "node-stub")
        return NodeStub(client, namespace, schedulable, termination_s)

    def kubectl(
        self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None, limit_s: float = 50
    ) -> str:
        """What `kubectl` prints on stdout; raises KubectlFailed with its stderr when it fails."""
        done = self.try_kubectl(*arguments, input=input, kubeconfig=kubeconfig, limit_s=limit_s)
        if done.returncode != 0:
            raise KubectlFailed(done)
        return done.stdout

    def try_kubectl(
        self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None, limit_s: float = 50
    ) -> subprocess.CompletedProcess[str]:
        """The same with exit status and stderr (where warnings are), whatever they are."""
        return subprocess.run(
            self._kubectl_command(arguments, kubeconfig),
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            timeout=scaled(limit_s),
            env=self._kubectl_environment,
        )

    def start_kubectl(self, *arguments: str, output: BinaryIO) -> subprocess.Popen[bytes]:
        """`kubectl` in the background, with a pipe to its input, and all that it says in `output`."""
        return subprocess.Popen(
            self._kubectl_command(arguments, None),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=self._kubectl_environment,
        )

    def _kubectl_command(self, arguments: Sequence[str], kubeconfig: Path | None) -> list[str]:
        config = f"--kubeconfig={kubeconfig or self.kubeconfig}"
        return [str(self.binaries.path("kubectl")), config, *arguments]

    @property
    def _kubectl_environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}

    def new_namespace(self, labels: Mapping[str, str] | None = None, prefix: str = "test") -> str:
        """A namespace nobody else uses, ready for pods; returns its name."""
        with self._lock:
            name = f"{prefix}-{next(self._numbers)}"
        body = {"metadata": {"name": name, "labels": dict(labels or {})}}
        self.client.create("/api/v1/namespaces", body)
        self._wait_service_account(name)
        return name

    def service_account_token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """A token of that ServiceAccount, from the TokenRequest API; the ServiceAccount must exist."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.client.create(path, {"spec": {"expirationSeconds": seconds}})
        return str(answer["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig whose user is that ServiceAccount, with no more rights than it was given."""
        token = self.service_account_token(namespace, name)
        with self._lock:
            path = self.folder / f"{namespace}-{name}-{next(self._numbers)}.kubeconfig"
        return write_kubeconfig(path, self.server, self.ca, token, namespace)

    def _wait_service_account(self, namespace: str) -> None:
        # Its controller makes it; before, the apiserver refuses pods.
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(lambda: self.client.exists(path), f"ServiceAccount default in namespace {namespace}", 30)

    def _own(self, name: str, options: list[str], ready: Callable[[], bool]) -> Component:
        return self.component(name, [str(self.binaries.path(name)), *options], ready)

    def _etcd_command(self) -> list[str]:
        clients = f"http://127.0.0.1:{self._etcd_port}"
        peers = f"http://127.0.0.1:{self._peer_port}"
        return [
            "--data-dir=etcd",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str]:
        keys = self._keys
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            # A loopback address is refused here: it is told to pods as the Service's endpoint.
            f"--advertise-address={self._advertised}",
            f"--tls-cert-file={keys.certificate}",
            f"--tls-private-key-file={keys.key}",
            f"--token-auth-file={keys.tokens}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys.service_account_public}",
            f"--service-account-signing-key-file={keys.service_account_key}",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            # Webhooks by Service are called at its endpoints: nobody makes its ClusterIP work here.
            "--enable-aggregator-routing=true",
            # A real node's name is no name of DNS.
            "--kubelet-preferred-address-types=InternalIP",
            *self._apiserver_options,
        ]

    def _manager_command(self) -> list[str]:
        keys = self._keys
        # The stub of a node has no heart that beats; its pods must not be evicted for that. A real one's may
        # stand still for a while on a machine that is busy.
        heart = (
            "--node-monitor-grace-period=150s"
            if self._nodes
            else "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
        )
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={keys.service_account_key}",
            f"--root-ca-file={keys.ca}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._manager_port}",
            f"--tls-cert-file={keys.certificate}",
            f"--tls-private-key-file={keys.key}",
            heart,
        ]

    def _etcd_ready(self) -> bool:
        return "true" in fetch(f"http://127.0.0.1:{self._etcd_port}/health")

    def _apiserver_ready(self) -> bool:
        return fetch(f"{self.server}/readyz", self._keys.ca, self.token) == "ok"

    def _manager_ready(self) -> bool:
        return fetch(f"https://127.0.0.1:{self._manager_port}/healthz", self._keys.ca) == "ok"


class KubectlFailed(Exception):
    """kubectl ended with an error; `stderr` is what it said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.stderr = done.stderr
        super().__init__(f"{' '.join(done.args[3:])}: exit status {done.returncode}: {done.stderr.strip()}")


def own_address() -> str:
    """This machine's address that is no loopback one; one of the documentation's where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # asks for the route; a datagram socket sends nothing here
            address = str(probe.getsockname()[0])
        except OSError:
            return "192.0.2.1"
    return "192.0.2.1" if address.startswith("127.") else address


def fetch(address: str, ca: Path | None = None, token: str | None = None, *, verify: bool = True) -> str:
    """The body, empty while nobody serves it; `verify=False`: the server made its certificate itself."""
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if not verify:
        handlers.append(urllib.request.HTTPSHandler(context=ssl._create_unverified_context()))
    elif ca is not None:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(ca))))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=scaled(2)) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError):
        return ""
