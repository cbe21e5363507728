"""`bitfusion health --connect` with a real API server: a pod without a GPU is made, reached, and gone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_pods.command.trial_pod import volume_words
from tests.cluster.cluster import Cluster
from tests.pods.command.notebook import EDIT, VIEW, Notebook, notebook_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

POLICIES = Path(__file__).parents[3] / "manifests/components/gpu-pods-network-policy/network-policy.yaml"
SEES_POLICIES = [
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list"]}
]
DENY_ALL = {
    "metadata": {"name": "deny-all"},
    "spec": {"podSelector": {}, "policyTypes": ["Egress", "Ingress"]},
}


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path, rules=[*EDIT, *SEES_POLICIES]) as made:
        yield made


def said(notebook: Notebook, *options: str) -> list[str]:
    """The lines of the report."""
    done = notebook.run("health", *options)
    assert done.returncode in (0, 1), done.told
    return done.said.decode().splitlines()


def of(lines: list[str], words: str) -> str:
    """The only line that has the words."""
    (line,) = [line for line in lines if words in line]
    return line


def apply(notebook: Notebook, policy: dict[str, Any]) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{notebook.namespace}/networkpolicies"
    notebook.cluster.client.create(path, policy)


def test_each_step_is_told_and_nothing_is_left(notebook: Notebook) -> None:
    lines = said(notebook, "--connect")
    for words in (
        "Check creating a pod without a GPU: digits-0-gpu-",
        "Check image: docker.io/team/notebook:1",
        "Check volumes: ",
        "Check connection to port 8778: ",
        " runs there",
        "Check deleting it: done within ",
    ):
        assert of(lines, words).startswith("[PASS    ]"), lines
    assert not notebook.gpu_pods()
    wait_until(lambda: not notebook.secrets(), "the Secret is gone with its pod")


def test_it_takes_no_gpu_and_no_budget_and_waits_for_neither(notebook: Notebook, tmp_path: Path) -> None:
    notebook.node.gpus = 1
    root = notebook.as_injected(tmp_path / "root", "-n 1")
    holder = notebook.start("run", "-n", "1", "--", "sleep", "600", root=root)
    name = notebook.one_gpu_pod()
    done = notebook.run("health", "--connect", root=root, queues={"*": "no-such-queue"})
    assert done.returncode == 0, (done.said.decode(), done.told)
    assert notebook.one_gpu_pod() == name, "the other one runs on"
    assert notebook.node.held == 1
    holder.terminate()
    holder.finish()


def test_without_the_option_no_pod_is_made(notebook: Notebook) -> None:
    assert not any("Check creating" in line for line in said(notebook))
    assert not notebook.node.agents


def test_a_viewer_and_a_quota_are_told_in_the_words_of_a_run(cluster: Cluster, tmp_path: Path) -> None:
    with notebook_in(cluster, tmp_path, rules=VIEW) as notebook:
        line = of(said(notebook, "--connect"), "Check creating")
        assert line.startswith("[FATAL   ]"), line
        assert "may not create pods in the namespace" in line


def test_a_quota_is_told(notebook: Notebook) -> None:
    notebook.limit("none", "count/secrets", 0)
    line = of(said(notebook, "--connect"), "Check creating")
    assert "quota" in line, line
    assert not notebook.gpu_pods()


@pytest.mark.slow
def test_a_pod_that_is_not_reached_is_told_with_the_policies_and_what_opens_them(notebook: Notebook) -> None:
    apply(notebook, DENY_ALL)
    notebook.node.is_cut_off = True
    lines = said(notebook, "--connect")
    line = of(lines, "Check connection to port 8778")
    assert line.startswith("[FATAL   ]"), line
    for words in ("does not answer", "not allowed by deny-all (out of", "network-policy.yaml opens it"):
        assert words in line, line
    assert of(lines, "Check deleting it").startswith("[PASS    ]")
    assert not notebook.gpu_pods()


def test_policies_are_judged_by_both_pods(notebook: Notebook) -> None:
    found = said(notebook)
    for words in (
        "out of this pod to GPU pods, TCP port 8778: none",
        "into GPU pods from this pod, TCP port 8778",
    ):
        assert of(found, words).startswith("[PASS    ]")
    apply(notebook, DENY_ALL)
    apply(notebook, yaml.safe_load(POLICIES.read_text()))
    found = said(notebook)
    way_in, way_out = of(found, "into GPU pods"), of(found, "out of this pod")
    assert "not allowed by bitfusion-gpu-pods, deny-all. What to do: " in way_in, "digits-0 has no label"
    assert "manifests/components/gpu-pods-network-policy/network-policy.yaml" in way_in
    assert "not allowed by deny-all. What to do: " in way_out
    path = f"/api/v1/namespaces/{notebook.namespace}/pods/{notebook.name}"
    notebook.cluster.client.merge(path, {"metadata": {"labels": {"notebook-name": "digits"}}})
    assert "allowed by bitfusion-gpu-pods, deny-all" in of(said(notebook), "into GPU pods")


def test_who_may_not_see_policies_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    with notebook_in(cluster, tmp_path) as notebook:
        line = of(said(notebook), "NetworkPolicies")
    assert line == "[SKIPPED ] Check NetworkPolicies: this account may not see them"


def test_a_signal_ends_the_trial_and_its_pod(notebook: Notebook) -> None:
    notebook.node.is_cut_off = True
    trial = notebook.start("health", "--connect")
    notebook.one_gpu_pod()
    trial.send_signal(signal.SIGINT)
    assert trial.finish() == 130
    assert not notebook.gpu_pods()


def test_another_option_is_refused(notebook: Notebook) -> None:
    done = notebook.run("health", "--conect")
    assert done.returncode == 1
    assert 'health takes only --connect, not "--conect"' in done.told


def test_volumes_are_told_by_their_claims() -> None:
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "ada"}}, {"name": "shm"}]
    mounts = {"home": "/home/jovyan", "shm": "/dev/shm", "bitfusion-client": "/bitfusion"}
    program = {"volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()]}
    told = volume_words({"spec": {"volumes": volumes}}, json.loads(json.dumps(program)))
    assert told == ["claim ada at /home/jovyan", "shm at /dev/shm"]
