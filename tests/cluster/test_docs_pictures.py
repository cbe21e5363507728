"""The pictures of Kubeflow show what is really printed.

``WRITE_PICTURES=1 pytest tests/cluster/test_docs_pictures.py`` makes them anew.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.node_stub import translated
from tests.cluster.notebook_controller import STOPPED
from tests.manifests.built import PROCESSES
from tests.manifests.installed import installed, kubeflow_namespace, remove
from tests.manifests.picture import terminal
from tests.manifests.stand_in import StandIn
from tests.support.machine import scaled
from tests.support.waiting import wait_until

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SAMPLE = (Path(__file__).parents[2] / "manifests" / "samples" / "notebook.yaml").read_text()
PROFILE = "team-vision"
CAPTION = (
    "Printed by kubectl on Kubernetes 1.34 with this project's controller and policy; stubs play Kubeflow's "
    "notebook controller and the node. "
)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_pictures_show_what_is_printed(cluster: Cluster, tmp_path: Path) -> None:
    with ExitStack() as around:
        around.enter_context(kubeflow_namespace(cluster, PROFILE))
        around.callback(remove, cluster, "kubeflow")
        around.enter_context(installed(cluster, "validating-policy"))
        wrong = SAMPLE.replace('gpu-50: "1"', 'gpu-amount: "0.5"').replace("bitfusion-sample", "mine")
        create = ("create", "-n", PROFILE, "--dry-run=server", "-f", "-")
        wait_until(lambda: cluster.try_kubectl(*create, input=wrong).returncode, "the policy in force", 20)
        by_policy = cluster.try_kubectl(*create, input=wrong).stderr

        around.enter_context(installed(cluster, "kubeflow"))
        ours = [
            around.enter_context(StandIn(cluster, tmp_path, "kubeflow", name=process))
            for process in PROCESSES
        ]
        around.enter_context(cluster.notebook_controller("1.7", PROFILE))
        around.enter_context(
            cluster.node_stub(
                schedulable=lambda pod: translated(pod) and all(each.ready(pod) for each in ours)
            )
        )
        for process in PROCESSES:
            limit = f"--timeout={scaled(40):.0f}s"
            cluster.kubectl("rollout", "status", "-n", "kubeflow", f"deployment/{process}", limit)
        by_webhook = cluster.try_kubectl(*create, input=wrong).stderr
        pending = told_of_a_pending_change(cluster)

    command = f"$ kubectl -n {PROFILE} create -f mine.yaml"
    refusals = terminal(
        [
            '# with bitfusion.io/gpu-amount: "0.5" in mine.yaml',
            command,
            "! " + from_file(by_webhook),
            "",
            "# the same while the controller is away, or without it: the policy",
            command,
            "! " + from_file(by_policy),
        ],
        CAPTION + "The form shows the same words behind its own.",
    )
    compare("kubeflow-refusals.svg", refusals)
    compare("kubeflow-pending.svg", terminal(pending, CAPTION + "Shortened; … stands for what is left out."))


def told_of_a_pending_change(cluster: Cluster) -> list[str]:
    """What a user types and reads when the size of a running notebook is changed."""

    def kubectl(*arguments: str) -> str:
        return cluster.kubectl("-n", PROFILE, *arguments)

    def reason(name: str) -> bool:
        return name in kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()

    path = f"/apis/kubeflow.org/v1/namespaces/{PROFILE}/notebooks/mine"

    def pending() -> bool:
        return "bitfusion.io/pending" in cluster.client.get(path)["metadata"]["annotations"]

    cluster.kubectl("create", "-n", PROFILE, "-f", "-", input=SAMPLE.replace("bitfusion-sample", "mine"))
    wait_until(lambda: "mine" in kubectl("get", "statefulsets", "-o", "name"), limit_s=20)
    kubectl("rollout", "status", "statefulset/mine", f"--timeout={scaled(30):.0f}s")
    kubectl("annotate", "notebook", "mine", "bitfusion.io/request=-n 2")
    wait_until(pending, limit_s=20)
    wait_until(lambda: reason("BitfusionChangePending"), limit_s=20)
    before = kubectl("describe", "notebook", "mine")
    # The form's stop and start buttons.
    cluster.client.merge(path, {"metadata": {"annotations": {STOPPED: "2026-01-01T00:00:00Z"}}})
    wait_until(lambda: "mine-0" not in kubectl("get", "pods", "-o", "name"), limit_s=20)
    # the Event comes before the annotation goes
    wait_until(lambda: reason("BitfusionChangeApplied") and not pending(), limit_s=20)
    cluster.client.merge(path, {"metadata": {"annotations": {STOPPED: None}}})
    wait_until(lambda: "mine-0" in kubectl("get", "pods", "-o", "name"), limit_s=20)
    after = kubectl("describe", "notebook", "mine")
    return [
        f"$ kubectl -n {PROFILE} annotate notebook mine bitfusion.io/request='-n 2'",
        "notebook.kubeflow.org/mine annotated",
        "",
        f"$ kubectl -n {PROFILE} describe notebook mine",
        *described(before),
        "…",
        *events(before),
        "",
        "# after the notebook was stopped and started in the form",
        f"$ kubectl -n {PROFILE} describe notebook mine",
        *described(after),
        "…",
        *events(after),
    ]


def described(text: str) -> list[str]:
    """Name and annotations."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Annotations:"))
    end = next(number for number, line in enumerate(lines) if line.startswith("API Version:"))
    return [lines[0], *lines[start:end]]


def events(text: str) -> list[str]:
    """The controller's Events; their age is left out, and whatever a stub's pod said."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.partition("Events:\n")[2].splitlines()]
    header, line, *rest = rows
    told = sorted(row for row in rest if row[1].startswith("Bitfusion"))
    shown = [[row[0], row[1], "…", row[-1]] for row in reversed(told)]
    table = [[header[0], header[1], header[2], header[-1]], [line[0], line[1], line[2], line[-1]], *shown]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return ["Events:"] + [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in table
    ]


def from_file(text: str) -> str:
    """The error as if the file had been named on the command line."""
    return text.strip().replace('"STDIN"', '"mine.yaml"')


def compare(name: str, picture: str) -> None:
    if os.environ.get("WRITE_PICTURES"):
        (IMAGES / name).write_text(picture)
    assert (IMAGES / name).read_text() == picture, f"docs/images/{name} shows something else"
