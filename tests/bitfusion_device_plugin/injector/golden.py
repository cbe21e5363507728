"""A notebook's pod of Kubeflow 1.11 before and after, in ``golden.json``: to be read, and to see any change.

Pods made by the version before go on running with what that version wrote: a change of these lines is one
that starter, kernel and identity have to stand, too. To compare: ``python -m
tests.bitfusion_device_plugin.injector.golden``; with ``--write`` the file is written anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.gpu_nodes import GpuNodes
from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import IMAGE, INJECTION, Object

FILE = Path(__file__).with_name("golden.json")
PRODUCT = InjectorSettings(
    (
        ClientRule(
            "*", "*", "vmware", "registry.local/bitfusion:1", "bitfusion-client-ubuntu2204_4.5.4-1_amd64.deb"
        ),
    )
)
PODS = InjectorSettings(
    (ClientRule("*", "*", "pods", "kubeflow-bitfusion/client:0.1.0"),),
    near_gpus=GpuNodes("nvidia.com/gpu.present", "true", "nvidia.com/gpu"),
)


def kubeflow_pod() -> Object:
    """As the API server sends it: from the form and the notebook controller, with the defaults of the API."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "mine-",
            "name": "mine-0",
            "creationTimestamp": None,
            "labels": {
                "app": "mine",
                "apps.kubernetes.io/pod-index": "0",
                "controller-revision-hash": "mine-59d8d8c9c6",
                "notebook-name": "mine",
                "statefulset": "mine",
                "statefulset.kubernetes.io/pod-name": "mine-0",
            },
            "annotations": {**INJECTION, "notebooks.kubeflow.org/server-type": "jupyter"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "mine",
                    "uid": "8ad0b0a5-9d3c-4d40-8a83-51bb0e7f0c09",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "volumes": [
                {"name": "dshm", "emptyDir": {"medium": "Memory"}},
                {"name": "mine-volume", "persistentVolumeClaim": {"claimName": "mine-volume"}},
                {"name": "kube-api-access-9kqhb", "projected": {"sources": [], "defaultMode": 420}},
            ],
            "containers": [
                {
                    "name": "mine",
                    "image": IMAGE,
                    "workingDir": "/home/jovyan",
                    "ports": [{"name": "notebook-port", "containerPort": 8888, "protocol": "TCP"}],
                    "env": [{"name": "NB_PREFIX", "value": "/notebook/ada/mine"}],
                    "resources": {
                        "limits": {"bitfusion.io/gpu-50": "2", "cpu": "600m", "memory": "1288490188800m"},
                        "requests": {"bitfusion.io/gpu-50": "2", "cpu": "500m", "memory": "1Gi"},
                    },
                    "volumeMounts": [
                        {"name": "dshm", "mountPath": "/dev/shm"},
                        {"name": "mine-volume", "mountPath": "/home/jovyan"},
                        {
                            "name": "kube-api-access-9kqhb",
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        },
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default-editor",
            "serviceAccount": "default-editor",
            "securityContext": {"fsGroup": 100},
            "hostname": "mine-0",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def golden() -> Object:
    """What the file holds: the pod, and with each kind of client its patch and what becomes of it."""
    before = kubeflow_pod()
    made: dict[str, Any] = {"before": before}
    for kind, settings in (("stand-in", DEFAULT_SETTINGS), ("vmware", PRODUCT), ("pods", PODS)):
        after = injected_pod(before, "ada", settings)
        assert not isinstance(after, Refusal), after.message
        made[kind] = {"patch": difference(before, after), "after": after}
    return made


def text() -> str:
    """The file as it has to be now."""
    return json.dumps(golden(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write golden.json anew")
    if parser.parse_args().write:
        FILE.write_text(text(), encoding="utf-8")
    if FILE.read_text(encoding="utf-8") != text():
        print(f"{FILE.name} has another pod; look at `git diff` after --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
