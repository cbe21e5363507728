"""`kubectl` is asked by an argument list, and whatever it does is told in words."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bitfusion_device_plugin.units_report.cluster_objects import cluster_objects
from bitfusion_device_plugin.units_report.kubectl import (
    ClusterUnreadable,
    ask_kubectl,
    parse_list,
    read_objects,
)
from tests.bitfusion_device_plugin.units_report.raw import node, pod
from tests.support.machine import scaled

ALL = "kubectl get nodes,pods,resourcequotas --all-namespaces -o json"
LIST = json.dumps({"kind": "List", "items": [node(), pod()]})


class Kubectl:
    """A `kubectl` of the test's own, alone on its PATH with the usual commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arguments = folder / "arguments"
        self.environ = {"PATH": f"{folder}:{os.environ['PATH']}"}

    def does(self, script: str) -> None:
        file = self.folder / "kubectl"
        file.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {self.arguments}\n{script}\n')
        file.chmod(0o755)

    def prints(self, text: str) -> None:
        (self.folder / "answer").write_text(text)
        self.does(f"cat {self.folder}/answer")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    found = Kubectl(tmp_path)
    monkeypatch.setenv("PATH", found.environ["PATH"])  # by which it is found
    return found


def refusal(call: object) -> tuple[str, str]:
    assert callable(call)
    with pytest.raises(ClusterUnreadable) as caught:
        call()
    return caught.value.answered, caught.value.next_step


def test_it_is_asked_once_for_everything_with_the_options_passed_on(kubectl: Kubectl) -> None:
    kubectl.prints(LIST)
    assert cluster_objects(ask_kubectl("my; context", "/etc/a b")) == cluster_objects([node(), pod()])
    assert kubectl.arguments.read_text().splitlines() == [
        "--context=my; context",
        "--kubeconfig=/etc/a b",
        *ALL.split()[1:],
        "--request-timeout=30s",
    ]


def test_no_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(ask_kubectl) == (
        "kubectl cannot be started: No such file or directory",
        f"install kubectl, or run it elsewhere: {ALL} | bitfusion-pool status --kubernetes -",
    )


def test_somebody_who_may_not_look(kubectl: Kubectl) -> None:
    kubectl.does('echo "Error from server (Forbidden): pods is forbidden" >&2; exit 1')
    assert refusal(ask_kubectl) == (
        "kubectl failed: Error from server (Forbidden): pods is forbidden",
        "it must be allowed to list nodes, pods and resourcequotas of all namespaces; check with "
        "`kubectl auth can-i list pods --all-namespaces`",
    )


def test_a_failure_without_a_word(kubectl: Kubectl) -> None:
    kubectl.does("exit 3")
    assert refusal(ask_kubectl)[0] == "kubectl failed: exit status 3"


@pytest.mark.parametrize("script", ["exec sleep 600", "echo '{'; exec sleep 600", "exec >&-; exec sleep 600"])
def test_an_api_server_that_hangs(kubectl: Kubectl, script: str) -> None:
    kubectl.does(script)
    began = time.monotonic()
    assert refusal(lambda: ask_kubectl(limit_s=0.5)) == (
        "kubectl has not answered within 0.5 s",
        "see what delays it: kubectl get nodes --request-timeout=10s",
    )
    assert time.monotonic() - began < scaled(30)


def test_more_than_is_read(kubectl: Kubectl) -> None:
    kubectl.does("exec yes")
    assert refusal(lambda: ask_kubectl(most_bytes=1 << 20)) == (
        "kubectl printed more than 1 MiB, which is the most that is read",
        "look at one namespace at a time: kubectl get nodes,pods,resourcequotas --namespace NAMESPACE -o json"
        " | bitfusion-pool status --kubernetes -",
    )


def test_a_file_that_is_too_large_and_one_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    assert refusal(lambda: read_objects(str(file))) == (
        f"{file} cannot be read: No such file or directory",
        "name a file with kubectl's output",
    )
    file.write_text(LIST)
    assert cluster_objects(read_objects(str(file))) == cluster_objects([node(), pod()])
    assert refusal(lambda: read_objects(str(file), most_bytes=10))[0].startswith("kubectl printed more than")


@pytest.mark.parametrize(
    ("found", "answered"),
    [
        (b"", "kubectl's output is empty"),
        (b" \n", "kubectl's output is empty"),
        (b"No resources found", "kubectl's output is not JSON or is incomplete (18 bytes)"),
        (LIST[:-9].encode(), f"kubectl's output is not JSON or is incomplete ({len(LIST) - 9} bytes)"),
        (b"\xff\xfe\x00", "kubectl's output is not JSON or is incomplete (3 bytes)"),
        (b"[" * 100_000, "kubectl's output is nested too deeply"),
        (b'{"kind": "Status", "code": 403}', "kubectl's output is not a list of objects but Status"),
        (b"[1]", "kubectl's output is not a list of objects but something else"),
        (b'{"items": {}}', "kubectl's output is not a list of objects but something else"),
        (
            b'{"kind": "List", "items": [{"kind": "Pod"}, 7]}',
            "kubectl's output has no nodes, so it is incomplete",
        ),
        (
            b'{"kind": "List", "items": [{"kind": "Node"}, {"kind": "ResourceQuota"}]}',
            "kubectl's output has no pods: perhaps you may not list them",
        ),
    ],
)
def test_what_is_no_list(found: bytes, answered: str) -> None:
    assert refusal(lambda: parse_list(found)) == (answered, f"pass the output of: {ALL}")
