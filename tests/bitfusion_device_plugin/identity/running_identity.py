"""`bitfusion-identity` as a process beside the cluster and a pool, with the manifests' rights alone."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import write_client_files
from bitfusion_pool.access.token_file import read_tokens
from bitfusion_pool.access.token_rules import IssuerBounds, TokenLimits
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.components import Component
from tests.manifests.built import build_own
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.objects import objects_of
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NAME = "bitfusion-identity"
SECRET = "bitfusion-client"
PROFILES = (f"{NAME}-profiles", f"{NAME}-account")
OPTED_IN = {"bitfusion.io/identity": "true"}
BOUNDS = IssuerBounds(TokenLimits(gpus=2))
_ROOT = Path(__file__).parents[3]
_MAIN = "import sys; from bitfusion_device_plugin.identity.settings import main; sys.exit(main())"


class RunningIdentity:
    """The controller's process, the pool, and what an administrator and users of the cluster do."""

    def __init__(
        self,
        cluster: Cluster,
        pool: NetworkService,
        place: Path,
        options: Sequence[str],
        namespace: str,
        source: str,
        profiles: str,
    ) -> None:
        self.cluster = cluster
        self.pool = pool
        self.issuer = place / "issuer"
        self._opted_in: set[str] = set()
        self.namespace = namespace or cluster.new_namespace(prefix="identity")
        self._apply(
            "manifests/identity/kubeflow", self.namespace, self.namespace, {"Deployment", "NetworkPolicy"}
        )
        if profiles:
            self._apply_profiles(profiles)
            options = [*options, f"--profiles={profiles}"]
        self.monitoring_port = free_port()
        kubeconfig = cluster.service_account_kubeconfig(self.namespace, NAME)
        command = place / "bitfusion-pool"
        command.write_text(
            f'#!/bin/sh\ncd {_ROOT} && exec {sys.executable} -m bitfusion_pool.admin.cli "$@"\n'
        )
        command.chmod(0o755)
        self.process: Component = cluster.component(
            f"{NAME}-{self.monitoring_port}",
            [
                *(sys.executable, "-c", _MAIN),
                f"--kubeconfig={kubeconfig}",
                f"--namespace={self.namespace}",
                f"--{source}={self.issuer}",
                f"--command={command}",
                "--bind=127.0.0.1",
                f"--monitoring-port={self.monitoring_port}",
                *options,
            ],
            self._ready,
            {"PYTHONPATH": str(_ROOT)},
        )

    def issue(self, name: str, bounds: IssuerBounds = BOUNDS) -> None:
        """Give the controller an issuer's files, as its Secret would bring them."""
        self.issuer.mkdir(exist_ok=True, mode=0o700)
        token = self.pool.token(name, may_issue=bounds)
        authority = Path(self.pool.authority).read_text()
        write_client_files(str(self.issuer), [Address(HOST, self.pool.port)], token, authority)

    def opt_in(self, namespace: str, role: bool = True, annotations: dict[str, str] | None = None) -> None:
        """What an administrator does, with the manifests."""
        if role:
            self.apply_role(namespace)
        self._opted_in.add(namespace)
        metadata = {"labels": OPTED_IN, "annotations": annotations or {}}
        self.cluster.client.merge(f"/api/v1/namespaces/{namespace}", {"metadata": metadata})

    def opt_everybody_out(self) -> None:
        """The cluster is other tests', too."""
        for namespace in self._opted_in:
            if self.cluster.client.exists(f"/api/v1/namespaces/{namespace}"):
                self.opt_out(namespace)

    def opt_out(self, namespace: str) -> None:
        labels = dict.fromkeys(OPTED_IN)
        self.cluster.client.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})

    def apply_role(self, namespace: str) -> None:
        """By the command of the guide, for a controller in this test's namespace."""
        self._apply("manifests/namespace/kubeflow", namespace, self.namespace, set())

    def secret(self, namespace: str) -> dict[str, Any] | None:
        try:
            return self.cluster.client.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    def until_secret(self, namespace: str, but: str | None = None) -> dict[str, Any]:
        """The Secret, once it has another token than `but`."""

        def found() -> dict[str, Any] | None:
            secret = self.secret(namespace)
            return secret if secret is not None and token_id(secret) != but else None

        return wait_until(found, lambda: self.process.log.read_text(), 30)

    def events(self, namespace: str, reason: str) -> list[str]:
        """The messages of Events about a namespace."""
        items = self.cluster.client.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return [one["message"] for one in items if one["reason"] == f"BitfusionIdentity{reason}"]

    def until_event(self, namespace: str, reason: str) -> str:
        return wait_until(lambda: self.events(namespace, reason), lambda: self.process.log.read_text(), 30)[0]

    def metric(self, name: str) -> float:
        for line in fetch(f"http://127.0.0.1:{self.monitoring_port}/metrics").splitlines():
            key, _, value = line.rpartition(" ")
            if key == name:
                return float(value)
        return 0.0

    def names_in_force(self) -> set[str]:
        tokens = read_tokens(str(self.pool.folder)).all
        return {one.name for one in tokens if one.issuer and one.is_good(time.time())}

    def _apply_profiles(self, label: str) -> None:
        """The components that serve every namespace with this label; the controller is in this test's."""
        local = {"annotations": {"config.kubernetes.io/local-config": "true"}}
        made = {"name": "bitfusion-profiles", "literals": [f"label={label}"], "options": local}
        built = build_own(
            self.cluster,
            ["overlays/kubeflow", "identity/kubeflow"],
            ["profiles", "profiles-label"],
            configMapGenerator=[made],
        )
        objects = [one for one in built if one["metadata"]["name"] in PROFILES]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        text = text.replace(":kubeflow:", f":{self.namespace}:")
        text = text.replace('"namespace": "kubeflow"', f'"namespace": "{self.namespace}"')
        self.cluster.kubectl("apply", "-f", "-", input=text)

    def _apply(self, folder: str, namespace: str, own: str, without: set[str]) -> None:
        """The objects of a folder for this namespace; `own` is where the controller runs."""
        built = self.cluster.kubectl("kustomize", str(_ROOT / folder))
        objects = [one for one in objects_of(built) if one["kind"] not in without]
        for one in objects:
            one["metadata"]["namespace"] = namespace
            if one["kind"].startswith("Cluster"):
                del one["metadata"]["namespace"]
            for subject in one.get("subjects", ()):
                subject["namespace"] = own
        self.cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, objects)))

    def _ready(self) -> bool:
        return bool(fetch(f"http://127.0.0.1:{self.monitoring_port}/readyz"))


@contextmanager
def running_identity(
    cluster: Cluster,
    *options: str,
    namespace: str = "",
    without_issuer: bool = False,
    profiles: str = "",
) -> Iterator[RunningIdentity]:
    """A pool's service and the controller, which ends first; in a namespace of its own by default.

    `without_issuer`: the files are handed out as they are. `profiles`: the label of those that are served.
    """
    place = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))  # a short path, for the service's socket
    pool = NetworkService(place)
    try:
        pool.start()
        source = "source-files" if without_issuer else "issuer-files"
        running = RunningIdentity(cluster, pool, place, options, namespace, source, profiles)
        try:
            running.issue("cluster")
            running.process.start(limit_s=30)
            yield running
        finally:
            running.process.stop()
            running.opt_everybody_out()
            kinds = "clusterrole,clusterrolebinding"
            cluster.kubectl("delete", kinds, NAME, f"{NAME}-profiles", "--ignore-not-found")
            kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
            cluster.kubectl("delete", kinds, f"{NAME}-account", "--ignore-not-found")
    finally:
        pool.end()
        shutil.rmtree(place)


def token_id(secret: dict[str, Any]) -> str:
    return str(secret["metadata"]["annotations"]["bitfusion.io/identity-token"])


def files(secret: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def token_in(secret: dict[str, Any]) -> str:
    """The text of the token in its client.yaml."""
    found = re.search(r"bfpool_\w+", files(secret)["client.yaml"])
    assert found
    return found[0]


def home_of(secret: dict[str, Any], folder: Path) -> dict[str, str]:
    """An environment whose home has the three files of the Secret, and in which nothing else names a pool."""
    identity = folder / ".bitfusion"
    identity.mkdir(mode=0o700, parents=True)
    for name, text in files(secret).items():
        (identity / name).write_text(text)
    others = {name: value for name, value in os.environ.items() if not name.startswith("BITFUSION_POOL")}
    return {**others, "HOME": str(folder), "BITFUSION_PYTHON": sys.executable}
