"""What a kubelet does for pods of our Jobs, without one: `kubeflow-bitfusion` runs, with the pod's rights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.support.machine import scaled

ROOT = Path(__file__).parents[2]
_MAIN = "import sys; from kubeflow_bitfusion.cli import main; sys.exit(main())"


def played_jobs(cluster: Cluster, folder: Path) -> Callable[[Object], bool]:
    """Whether a pod needs a node: one of a Job has run, and ended, when this returns. For NodeStub."""

    def needs_a_node(pod: Object) -> bool:
        if "batch.kubernetes.io/job-name" not in pod["metadata"].get("labels", {}):
            return True
        if pod["status"].get("phase") == "Pending":
            code = _run(cluster, folder, pod)
            path = "/api/v1/namespaces/{namespace}/pods/{name}/status".format(**pod["metadata"])
            cluster.client.merge(path, {"status": {"phase": "Failed" if code else "Succeeded"}})
        return False

    return needs_a_node


def _run(cluster: Cluster, folder: Path, pod: Object) -> int:
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    (container,) = spec["containers"]
    variables = {each["name"]: each.get("value", namespace) for each in container.get("env", ())}
    words = [*container["command"], *container.get("args", ())]
    for name, value in variables.items():
        words = [word.replace(f"$({name})", value) for word in words]
    maps = {
        each["name"]: each["configMap"]["name"] for each in spec.get("volumes", ()) if "configMap" in each
    }
    for mount in container.get("volumeMounts", ()):
        if mount["name"] in maps:
            files = folder / f"{pod['metadata']['name']}-{mount['name']}"
            files.mkdir(exist_ok=True)
            path = f"/api/v1/namespaces/{namespace}/configmaps/{maps[mount['name']]}"
            for file, text in cluster.client.get(path)["data"].items():
                (files / file).write_text(text)
            words = [word.replace(mount["mountPath"], str(files)) for word in words]
    program, *words = words
    assert program == "kubeflow-bitfusion"
    account = cluster.service_account_kubeconfig(namespace, spec["serviceAccountName"])
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *words, f"--kubeconfig={account}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=scaled(30),
    )
    print(f"{pod['metadata']['name']}: {done.stdout}")
    return done.returncode
