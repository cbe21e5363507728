"""What the dashboard and the alerts of GPU pods show of a real kube-state-metrics.

GPU pods in all states lie in the test cluster; no kubelet runs them. Debian's promtool evaluates the queries
over six hours in which everything stays as kube-state-metrics has told it, since the first minute.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.samples import Sample

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.command.state_teller import patch
from tests.cluster.api_client import ApiClient, Object
from tests.cluster.debian_packages import unpacked
from tests.cluster.kube_state_metrics import KubeStateMetrics
from tests.cluster.quota import until_quota_refuses
from tests.manifests.kube_state_metrics import OF_GPU_PODS
from tests.manifests.promql import metrics_in
from tests.manifests.test_dashboard import DASHBOARDS, filled
from tests.manifests.test_pool_alerts import ROOT, SAMPLE
from tests.pods.pod.golden_pods import HALF, settings
from tests.pods.pod.notebook_pods import made, notebook
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

PANELS = DASHBOARDS["gpu-pods-dashboard"]["panels"]
(GROUP,) = (group for group in SAMPLE["spec"]["groups"] if group["name"] == "bitfusion-gpu-pods")
ACCOUNT = "default-editor"  # of the notebooks that GPU pods are made of
GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
NODES: dict[str, tuple[dict[str, str], str, bool]] = {
    "n1": ({GPU: "8", SLICE: "2"}, "True", False),
    "lost": ({GPU: "2"}, "Unknown", False),
    "cordoned": ({GPU: "1"}, "True", True),
}
"""What each offers, whether it is ready, and whether it takes no pods."""

ONE = 60  # all that has happened has happened in the first minute
END = 21600  # six hours
WAITED = END - ONE
GPUS, SLICES = "nvidia_com_gpu", "nvidia_com_mig_1g_5gb"


def labels(**values: str) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in values.items()) + "}"


def of(pod: str, **more: str) -> str:
    """Its namespace and name, and other labels."""
    return labels(namespace=NAMESPACES[pod], pod=pod, **more)


NAMESPACES = {
    **dict.fromkeys(("idle", "slice", "waits"), "team-a"),
    **dict.fromkeys(("half", "claims", "starts", "leaves", "evicted", "oom"), "team-b"),
}
NOTEBOOKS = {"team-a": "digits", "team-b": "speech"}
ON = {**dict.fromkeys(("idle", "slice", "half", "claims", "starts"), "n1"), "leaves": "lost"}
"""Of those that hold something; the GPU of a claim is no resource of a container."""
HOLDS = {"idle": (GPUS, 2), "slice": (SLICES, 1), **dict.fromkeys(("half", "starts", "leaves"), (GPUS, 1))}


def with_notebook(pod: str, **more: str) -> str:
    return of(pod, notebook=NOTEBOOKS[NAMESPACES[pod]], **more)


def by_resource(gpus: float, slices: float) -> dict[str, float]:
    return {labels(resource=GPUS): gpus, labels(resource=SLICES): slices}


def by_namespace() -> dict[str, float]:
    return {
        labels(namespace="team-a", resource=GPUS): 2,
        labels(namespace="team-a", resource=SLICES): 1,
        labels(namespace="team-b", resource=GPUS): 3,
    }


SHOWN: dict[tuple[str, str], Mapping[str, float]] = {
    ("GPUs of nodes", "A"): by_resource(11, 2),
    ("GPUs free", "A"): by_resource(2, 1),
    ("Held by GPU pods", "A"): by_resource(5, 1),
    ("Held by other pods", "A"): {labels(resource=GPUS): 2},
    ("GPU pods that wait", "A"): {"{}": 1},
    ("Longest wait", "A"): {"{}": WAITED},
    ("Held, by namespace", "A"): by_namespace(),
    ("GPU-hours, by namespace", "A"): by_namespace(),
    ("Now", "A"): {with_notebook(pod, node=node): ONE * 1000 for pod, node in ON.items()},
    ("Now", "B"): {of(pod, resource=what): many for pod, (what, many) in HOLDS.items()},
    ("Now", "C"): {of("idle"): END},
    ("Quota used", "A"): {
        labels(namespace="team-a", resource=f"requests.{GPU}", resourcequota="gpus"): 0.625
    },
    ("Not running yet", "A"): {
        with_notebook("waits"): WAITED,
        with_notebook("starts", node="n1"): WAITED,
    },
    ("GPU pods that wait, by namespace", "A"): {labels(namespace="team-a"): 1},
    ("Held, by the kernel's state", "A"): {
        labels(resource=GPUS, state="idle"): 2,
        labels(resource=SLICES, state="running"): 1,
    },
    ("Held, by the kernel's state", "B"): by_resource(5, 1),
    ("Evicted, or out of memory", "A"): {
        with_notebook("evicted", reason="Evicted"): 1,
        with_notebook("oom", reason="OOMKilled"): 1,
    },
    ("Being deleted", "A"): {with_notebook("leaves", node="lost"): WAITED},
}


class Maker:
    """Makes the objects, with what a scheduler and a kubelet would write."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def nodes(self) -> None:
        for name, (offers, ready, closed) in NODES.items():
            amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **offers}
            self._client.create(
                "/api/v1/nodes",
                {
                    "metadata": {"name": name},
                    "spec": {"unschedulable": closed},
                    "status": {
                        "capacity": amounts,
                        "allocatable": amounts,
                        "conditions": [{"type": "Ready", "status": ready}],
                    },
                },
            )

    def namespace(self, name: str) -> Object:
        """With a notebook's pod, which is returned as a model."""
        self._client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}"
        self._client.create(f"{path}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        pod = self.pod(name, f"{NOTEBOOKS[name]}-0")
        self.bind(pod, "n1")
        model = notebook()
        model["metadata"] |= {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        return model

    def pod(
        self, namespace: str, name: str, container: str = "main", gpus: int = 0, **metadata: Any
    ) -> Object:
        resources = {"limits": {GPU: str(gpus)}} if gpus else {}
        what = {"name": container, "image": "some/image:1", "resources": resources}
        spec = {"serviceAccountName": ACCOUNT, "containers": [what]}
        return self.create({"metadata": {"namespace": namespace, "name": name, **metadata}, "spec": spec})

    def create(self, pod: Object) -> Object:
        return self._client.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)

    def bind(self, pod: Object, node: str, phase: str = "Running", **status: Any) -> None:
        where = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        self._client.create(f"{_path(pod)}/binding", {"metadata": {"name": pod["metadata"]["name"]}, **where})
        self._client.merge(f"{_path(pod)}/status", {"status": {"phase": phase, **status}})

    def quota(self, namespace: str) -> None:
        body = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": "8"}}}
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        self._client.create(path, body)
        limits = {"resources": {"limits": {GPU: "9"}}}
        spec = {"containers": [{"name": "c", "image": "x", **limits}]}
        too_much = {"metadata": {"name": "too-much"}, "spec": spec}
        until_quota_refuses(self._client, namespace, too_much, quota="gpus")

    def state(self, pod: Object, activity: KernelActivity) -> None:
        self._client.merge(_path(pod), patch(activity))

    def delete(self, pod: Object) -> None:
        self._client.delete(_path(pod))


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def make_everything(make: Maker) -> None:
    make.nodes()
    a, b = (make.namespace(name) for name in NOTEBOOKS)
    make.quota("team-a")
    whole = {"settings": settings("whole"), "request": GpuRequest(1)}

    def of_model(model: Object, name: str, **given: Any) -> Object:
        return make.create(
            made(pod=model, of_template=None, container="digits", **{**whole, **given}, name=name)
        )

    idle = of_model(a, "idle", request=GpuRequest(2))
    make.bind(idle, "n1")
    make.state(idle, KernelActivity("idle", 1767225600.0, 1767225600.5))
    piece = of_model(a, "slice", settings=settings("mig"), request=GpuRequest(1, 0.1))
    make.bind(piece, "n1")
    make.state(piece, KernelActivity("running", 1767225600.0))
    of_model(a, "waits")
    make.bind(of_model(b, "half", settings=settings("hami"), request=HALF), "n1")
    make.bind(of_model(b, "claims", settings=settings("dra")), "n1")
    make.bind(of_model(b, "starts"), "n1", "Pending")
    leaves = of_model(b, "leaves")
    make.bind(leaves, "lost")
    make.delete(leaves)  # which no kubelet hears
    make.bind(of_model(b, "evicted"), "n1", "Failed", reason="Evicted")
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    told = {"name": "program", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    make.bind(of_model(b, "oom"), "n1", "Failed", containerStatuses=[told])
    # Others': a job whose container is called so; a pod that one owns, as Spark has them; one that waits.
    job = make.pod("team-a", "job", "program", 1)
    make.bind(job, "n1")
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "job",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    executor = make.pod("team-a", "executor", "executor", 1, ownerReferences=[owner])
    make.bind(executor, "n1")
    make.pod("team-b", "pending", gpus=1)


@pytest.fixture(scope="module")
def told(kube_state_metrics: KubeStateMetrics) -> list[Sample]:
    """By a kube-state-metrics with the options of the docs, when it has seen everything."""
    make_everything(Maker(kube_state_metrics.cluster.client))
    page = (ROOT / "docs/how-to/monitoring.md").read_text(encoding="utf-8")
    options = re.findall(r"^  - (--metric-\S+)$", page, re.MULTILINE)
    assert options
    kube_state_metrics.start(options)

    def everything() -> list[Sample] | None:
        samples = kube_state_metrics.samples()

        def seen(metric: str, label: str) -> set[str]:
            return {each.labels[label] for each in samples if each.name == metric}

        used = [each.value for each in samples if each.labels.get("type") == "used"]
        there = seen("kube_pod_info", "pod") >= {*NAMESPACES, "pending"}
        return samples if there and seen("kube_node_info", "node") == set(NODES) and used == [5] else None

    return wait_until(everything, "kube-state-metrics has seen all pods, nodes and the quota", 30)


def series(samples: Iterable[Sample]) -> list[dict[str, str]]:
    """As promtool reads them: the same each minute, and each time is the first minute."""
    found = []
    for each in samples:
        if each.name not in OF_GPU_PODS:
            continue
        value = ONE if each.name.endswith(("_created", "_timestamp", "_time")) else each.value
        text = ", ".join(f"{name}={json.dumps(label)}" for name, label in each.labels.items())
        found.append({"series": f"{each.name}{{{text}}}", "values": f"{value:g}+0x{END // 60}"})
    return found


def promtool(folder: Path, test: Mapping[str, Any]) -> None:
    """Run its test of rules, with our alerts."""
    (folder / "alerts.yaml").write_text(yaml.safe_dump({"groups": [GROUP]}))
    whole = {
        "rule_files": ["alerts.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **test}],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(whole, width=10000))
    program = unpacked(["prometheus"]) / "usr" / "bin" / "promtool"
    for words in (["check", "rules", "alerts.yaml"], ["test", "rules", "test.yaml"]):
        done = subprocess.run(
            [program, *words], cwd=folder, capture_output=True, text=True, timeout=scaled(60), check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_and_label_that_is_asked_for_is_there(told: list[Sample]) -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    asked += [rule["expr"] for rule in GROUP["rules"]]
    assert set().union(*map(metrics_in, asked)) == set(OF_GPU_PODS)
    for name, wanted in OF_GPU_PODS.items():
        there = set().union(*(each.labels for each in told if each.name == name))
        assert there >= set(wanted), name
    # for the dashboard's variable of resources
    offered = [each.labels for each in told if each.name == "kube_node_status_allocatable"]
    assert {each["resource"] for each in offered if each["unit"] == "integer"} == {GPUS, SLICES, "pods"}


def test_the_panels_show_what_is_there(told: list[Sample], tmp_path: Path) -> None:
    queries = {(panel["title"], each["refId"]): each["expr"] for panel in PANELS for each in panel["targets"]}
    assert queries.keys() == SHOWN.keys()
    expected = [
        {
            # an hour, which has 61 minutes in it, as both its ends count; promtool refuses to look at six
            "expr": filled(query.replace("$__range", "59m")),
            "eval_time": f"{END}s",
            "exp_samples": [{"labels": name, "value": value} for name, value in SHOWN[panel].items()],
        }
        for panel, query in queries.items()
    ]
    promtool(tmp_path, {"input_series": series(told), "promql_expr_test": expected})


def test_without_the_option_only_the_kernels_states_are_missing(
    kube_state_metrics: KubeStateMetrics, told: list[Sample]
) -> None:
    assert {each.name for each in told} >= set(OF_GPU_PODS)
    kube_state_metrics.start()
    wait_until(
        lambda: (
            set(OF_GPU_PODS) - {each.name for each in kube_state_metrics.samples()}
            == {"kube_pod_annotations"}
        ),
        "it tells all the rest",
        30,
    )


def alert(text: str, **labels_of_it: str) -> dict[str, Any]:
    """As it is to fire."""
    return {"exp_labels": {**labels_of_it, "severity": "warning"}, "exp_annotations": {"summary": text}}


def test_alerts_are_for_pods_that_do_not_start_or_do_not_go(told: list[Sample], tmp_path: Path) -> None:
    waiting = [
        alert(
            f"The GPU pod {NAMESPACES[pod]}/{pod} has not started for 19m 0s",
            namespace=NAMESPACES[pod],
            pod=pod,
        )
        for pod in ("waits", "starts")
    ]
    leaving = alert(
        "The GPU pod team-b/leaves was to end 19m 0s ago, and holds its GPUs on lost",
        **{"namespace": "team-b", "pod": "leaves", "node": "lost"},
    )
    expected = [
        ("15m", "BitfusionGpuPodDoesNotStart", []),
        ("10m", "BitfusionGpuPodNotGone", []),
        ("20m", "BitfusionGpuPodDoesNotStart", waiting),
        ("20m", "BitfusionGpuPodNotGone", [leaving]),
        ("6h", "BitfusionGpuPodLeftBehind", []),
    ]
    promtool(tmp_path, {"input_series": series(told), "alert_rule_test": _tests(expected)})


def test_an_alert_is_for_pods_whose_notebook_is_gone(told: list[Sample], tmp_path: Path) -> None:
    """Kubernetes would delete them at once: here only what is told of the notebook's pod goes."""
    left = [each for each in told if each.labels.get("pod") != "speech-0"]
    behind = [
        alert(
            f"The GPU pod team-b/{pod} is there without its notebook's pod speech-0",
            **{"namespace": "team-b", "pod": pod, "owner_name": "speech-0"},
        )
        for pod in ("half", "claims", "starts", "evicted", "oom")
    ]
    expected = [("4m", "BitfusionGpuPodLeftBehind", []), ("5m", "BitfusionGpuPodLeftBehind", behind)]
    promtool(tmp_path, {"input_series": series(left), "alert_rule_test": _tests(expected)})


def _tests(expected: Iterable[tuple[str, str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    return [{"eval_time": at, "alertname": name, "exp_alerts": alerts} for at, name, alerts in expected]
