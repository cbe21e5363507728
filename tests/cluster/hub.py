"""A whole JupyterHub on this machine, whose users' servers are pods of a test cluster's node.

JupyterHub and KubeSpawner are PyPI's, the proxy is npm's. The chart *Zero to JupyterHub* is none of them:
`configuration` does with an administrator's values what the chart does with them, and `CHART` is what of its
own values concerns users' servers (3.0 and later; pods of both were compared by hand). The hub has the rights
of the chart's Role, no more.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.components import Component
from tests.cluster.made_once import made_once, user_cache
from tests.support.ports import free_ports

PROXY = "configurable-http-proxy@5.3.0"
RELEASE = "hub"
NETWORK_TOOLS = "localhost/kubeflow-bitfusion-test/network-tools:1"
"""An image in which `iptables` does nothing."""

Values = dict[str, Any]

CHART: Values = {
    "singleuser": {
        "image": {"name": "quay.io/jupyterhub/k8s-singleuser-sample", "tag": "4.2.0"},
        "cmd": "jupyterhub-singleuser",
        "uid": 1000,
        "fsGid": 100,
        "allowPrivilegeEscalation": False,
        "serviceAccountName": None,
        "startTimeout": 300,
        "memory": {"guarantee": "1G"},
        "extraEnv": {},
        "extraLabels": {"hub.jupyter.org/network-access-hub": "true"},
        "cloudMetadata": {"blockWithIptables": True, "ip": "169.254.169.254"},
        "networkTools": {"image": {"name": NETWORK_TOOLS}},
        "storage": {
            "capacity": "10Gi",
            "homeMountPath": "/home/jovyan",
            "dynamic": {"storageAccessModes": ["ReadWriteOnce"]},
            "extraVolumes": [],
            "extraVolumeMounts": [],
        },
        "profileList": [],
    },
    "scheduling": {
        "userPods": {
            "tolerations": [("hub.jupyter.org/dedicated", "user"), ("hub.jupyter.org_dedicated", "user")]
        }
    },
}

ROLE = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]
"""Of the hub's own account."""


def with_values(*given: Mapping[str, Any]) -> Values:
    """The chart's values under those given, the last one on top. As in helm, a list replaces a list."""
    result = CHART
    for each in given:
        result = _over(result, each)
    return result


def _over(below: Values, above: Mapping[str, Any]) -> Values:
    both = {
        k: _over(below[k], v)
        for k, v in above.items()
        if isinstance(v, dict) and isinstance(below.get(k), dict)
    }
    return {**below, **above, **both}


def configuration(values: Values, namespace: str) -> Values:
    """``jupyterhub_config.json``, but for the addresses."""
    user, storage = values["singleuser"], values["singleuser"]["storage"]
    taints = values["scheduling"]["userPods"]["tolerations"]
    purpose = {"key": "hub.jupyter.org/node-purpose", "operator": "In", "values": ["user"]}
    metadata = user["cloudMetadata"]
    blocks = {
        "name": "block-cloud-metadata",
        "image": user["networkTools"]["image"]["name"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["iptables", "-A", "OUTPUT", "-d", metadata["ip"], "-j", "DROP"],
        "securityContext": {"privileged": True, "runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
    }
    spawner = {
        "namespace": namespace,
        "image": ":".join(user["image"].values()),
        "cmd": user["cmd"],
        "uid": user["uid"],
        "fs_gid": user["fsGid"],
        "allow_privilege_escalation": user["allowPrivilegeEscalation"],
        "service_account": user["serviceAccountName"],
        "start_timeout": user["startTimeout"],
        "mem_guarantee": user["memory"]["guarantee"],
        "environment": user["extraEnv"],
        "extra_labels": user["extraLabels"],
        "common_labels": {"app": "jupyterhub", "heritage": "jupyterhub", "release": RELEASE},
        "profile_list": user["profileList"],
        "node_affinity_preferred": [{"weight": 100, "preference": {"matchExpressions": [purpose]}}],
        "init_containers": [blocks] if metadata["blockWithIptables"] else [],
        "storage_pvc_ensure": True,
        "storage_capacity": storage["capacity"],
        "storage_class": storage["dynamic"].get("storageClass"),
        "storage_access_modes": storage["dynamic"]["storageAccessModes"],
        "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}},
            *storage["extraVolumes"],
        ],
        "volume_mounts": [
            {"name": "home", "mountPath": storage["homeMountPath"]},
            *storage["extraVolumeMounts"],
        ],
        "tolerations": [
            {"key": k, "operator": "Equal", "value": v, "effect": "NoSchedule"} for k, v in taints
        ],
    }
    return {
        "JupyterHub": {
            "spawner_class": "kubespawner.KubeSpawner",
            "authenticator_class": "dummy",
            "cleanup_servers": False,
            "db_url": "sqlite://",
            "tornado_settings": {"slow_spawn_timeout": 0},
        },
        "Authenticator": {"allow_all": True},
        "KubeSpawner": {name: value for name, value in spawner.items() if value is not None},
    }


def proxy_program() -> Path:
    """configurable-http-proxy, from npm into the user's cache, once."""

    def fetch(folder: Path) -> None:
        words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={folder}", PROXY]
        subprocess.run(words, check=True, capture_output=True)

    folder = made_once(user_cache() / "hub" / PROXY, fetch)
    return folder / "node_modules" / ".bin" / "configurable-http-proxy"


@contextmanager
def hub(cluster: Cluster, address: str, values: Values, namespace: str, port: int = 8888) -> Iterator[Hub]:
    """One that serves in this namespace.

    `address` is this machine's, as pods reach it; `port` is that of users' servers.
    """
    base = f"namespaces/{namespace}"
    rights = f"/apis/rbac.authorization.k8s.io/v1/{base}"
    cluster.client.create(f"/api/v1/{base}/serviceaccounts", {"metadata": {"name": "hub"}})
    cluster.client.create(f"{rights}/roles", {"metadata": {"name": "hub"}, "rules": ROLE})
    binding = {
        "metadata": {"name": "hub"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hub"},
        "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": namespace}],
    }
    cluster.client.create(f"{rights}/rolebindings", binding)
    found = Hub(cluster, address, values, namespace, port)
    try:
        found.proxy.start()
        found.program.start()
        yield found
    finally:
        found.program.kill()
        found.proxy.kill()


class Hub:
    """`program` is the hub, `proxy` what users reach it by; `url` is what they open."""

    def __init__(self, cluster: Cluster, address: str, values: Values, namespace: str, port: int) -> None:
        public, own, api = free_ports(3)
        self.url = f"http://127.0.0.1:{public}"
        folder = cluster.folder / f"hub-{secrets.token_hex(3)}"
        folder.mkdir()
        file = folder / "jupyterhub_config.json"
        written = configuration(values, namespace)
        written["JupyterHub"] |= {
            "hub_bind_url": f"http://0.0.0.0:{own}",
            "hub_connect_url": f"http://{address}:{own}",
            "cookie_secret_file": str(folder / "cookies"),
        }
        written["KubeSpawner"]["port"] = port
        written["ConfigurableHTTPProxy"] = {"should_start": False, "api_url": f"http://127.0.0.1:{api}"}
        file.write_text(json.dumps(written))
        kubeconfig = cluster.service_account_kubeconfig(namespace, "hub")
        token = {"CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16)}
        self.program: Component = cluster.component(
            folder.name,
            [sys.executable, "-m", "jupyterhub", f"--config={file}"],
            lambda: _answers(f"{self.url}/hub/health"),
            {"KUBECONFIG": str(kubeconfig), **token},
        )
        words = [f"--port={public}", "--ip=127.0.0.1", f"--api-port={api}", "--api-ip=127.0.0.1"]
        self.proxy: Component = cluster.component(
            f"{folder.name}-proxy",
            [str(proxy_program()), *words, f"--error-target=http://127.0.0.1:{own}/hub/error"],
            lambda: _answers(f"{self.url}/_chp_healthz"),
            token,
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
