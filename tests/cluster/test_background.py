"""The cluster that keeps running: the commands a developer types."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import background
from tests.cluster.__main__ import main
from tests.cluster.background import State, read_state
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.components import marked_processes
from tests.cluster.guardian import start_time
from tests.cluster.images import small_image
from tests.cluster.node import Node
from tests.support.machine import scaled
from tests.support.waiting import wait_until


@pytest.fixture
def state_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "running.json"
    yield file
    main(["down", "--state", str(file)])


@pytest.fixture
def running(cluster: Cluster, state_file: Path, capsys: pytest.CaptureFixture[str]) -> State:
    """A second cluster, in the background; the run's one has the binaries built."""
    assert main(["up", "--notebook-controller", "1.8", "--state", str(state_file)]) == 0
    state = read_state(state_file)
    assert state is not None
    first, second, third, last = capsys.readouterr().out.splitlines()
    assert first == "cluster: binaries from the cache"
    assert second.startswith("cluster: Kubernetes 1.34.4 is running since ")
    assert third == "cluster: with a stub of Kubeflow's notebook controller 1.8"
    assert last == f"export KUBECONFIG={state.kubeconfig}"
    return state


def test_up_gives_a_cluster_in_which_notebooks_run_and_down_ends_exactly_it(
    cluster: Cluster, running: State, state_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--state", str(state_file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"export KUBECONFIG={running.kubeconfig}"
    kubectl = [str(binaries().path("kubectl")), "--kubeconfig", running.kubeconfig]
    notebook = (
        '{"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": {"name": "n"},'
        ' "spec": {"template": {"spec": {"containers": [{"name": "n", "image": "i"}]}}}}'
    )
    subprocess.run([*kubectl, "apply", "-f", "-"], input=notebook.encode(), check=True, timeout=scaled(20))
    ready = [*kubectl, "wait", "--for=condition=Ready", "pod/n-0", f"--timeout={scaled(20):.0f}s"]
    wait_until(lambda: subprocess.run(ready, capture_output=True, timeout=scaled(25)).returncode == 0)

    for other in (["--notebook-controller", "1.7"], ["--node"]):
        assert main(["up", *other, "--state", str(state_file)]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "cluster: one is running already and stays as it is; end it first for another one"
    assert read_state(state_file) == running

    assert main(["import", __file__, "--state", str(state_file)]) == 1
    words = "cluster: it has no node that could run images; end it and start one with --node\n"
    assert capsys.readouterr().err == words

    assert main(["down", "--state", str(state_file)]) == 0
    assert capsys.readouterr().out == "cluster: ended\n"
    assert not running.living
    assert not Path(running.folder).exists()
    assert not state_file.exists()
    assert cluster.apiserver.running


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.parametrize("victim", ["holder", "guardian"])
def test_a_killed_holder_or_guardian_leaves_nothing_behind(
    running: State, state_file: Path, victim: str
) -> None:
    os.kill(running.processes[victim][0], signal.SIGKILL)
    wait_until(lambda: not running.complete, limit_s=5)
    if victim == "guardian":
        assert main(["status", "--state", str(state_file)]) == 3
        assert main(["down", "--state", str(state_file)]) == 0
    wait_until(lambda: not running.living, "all processes gone", 10)
    wait_until(lambda: not Path(running.folder).exists(), limit_s=10)
    assert not marked_processes(Path(running.folder))


@pytest.mark.apart
@pytest.mark.long
def test_status_tells_what_is_missing_and_up_starts_anew(
    running: State, state_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.kill(running.processes["kube-controller-manager"][0], signal.SIGKILL)
    wait_until(lambda: not running.complete, limit_s=5)
    assert main(["status", "--state", str(state_file)]) == 3
    assert "cluster: not running any more: kube-controller-manager\n" in capsys.readouterr().out
    assert main(["up", "--state", str(state_file)]) == 0
    assert "cluster: a part of it is gone; starting anew\n" in capsys.readouterr().out
    assert not running.living
    state = read_state(state_file)
    assert state is not None
    assert state.complete
    assert state.notebook_controller is None


def test_without_a_cluster_status_is_3_and_down_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "none" / "running.json")
    assert main(["status", "--state", file]) == 3
    assert main(["down", "--state", file]) == 0
    assert capsys.readouterr().out == "cluster: none is running\n" * 2


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"processes": 1}', '{"processes": {}, "more": 1}'])
def test_a_torn_state_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "running.json"
    file.write_text(text)
    assert read_state(file) is None


def test_down_spares_a_process_that_only_has_the_same_id(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        state = State(
            holder=other.pid,
            processes={"holder": (other.pid, "1")},
            folder=str(tmp_path / "gone"),
            kubeconfig="k",
            since="s",
            start_s=1.0,
            notebook_controller=None,
        )
        background._write(tmp_path / "running.json", state)
        assert main(["down", "--state", str(tmp_path / "running.json")]) == 0
        assert start_time(other.pid) is not None
    finally:
        other.kill()
        other.wait()


def test_a_cluster_that_does_not_start_tells_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    from tests.cluster.binaries import CONTROL_PLANE, build_hash, cache_folder

    broken = cache_folder() / build_hash()
    broken.mkdir(parents=True)
    for name in CONTROL_PLANE.packages:
        (broken / name).write_text(f"#!/bin/sh\necho {name} is broken here\nexit 3\n")
        (broken / name).chmod(0o755)
    assert main(["up", "--state", str(tmp_path / "running.json")]) == 1
    said = capsys.readouterr().err
    assert "the cluster did not start; the last lines of " in said
    assert "etcd ended; its last lines:\netcd is broken here" in said


@pytest.mark.apart
@pytest.mark.long
def test_up_with_a_node_runs_pods_of_imported_images(
    node: Node, tmp_path: Path, state_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(state_file)
    assert main(["up", "--node", "--state", file]) == 0
    *_, with_node, images, last = capsys.readouterr().out.splitlines()
    state = read_state(state_file)
    assert state is not None
    assert state.node is not None
    here = state.node.host_address
    assert with_node == f"cluster: with a node on which pods run; they reach this machine at {here}"
    assert images == "cluster: images for it: python -m tests.cluster import ARCHIVE, imagePullPolicy: Never"
    assert last == f"export KUBECONFIG={state.kubeconfig}"

    archive = tmp_path / "image.tar"
    small_image(node.busybox, tmp_path / "layers").write_archive(archive, "example/mine:1")
    assert main(["import", str(archive), "--state", file]) == 0
    kubectl = [str(binaries().path("kubectl")), "--kubeconfig", state.kubeconfig]
    run = ["run", "p", "--image=example/mine:1", "--image-pull-policy=Never"]
    ready = ["wait", "--for=condition=Ready", "pod/p", f"--timeout={scaled(50):.0f}s"]
    for each in (run, ready):
        subprocess.run([*kubectl, *each], check=True, capture_output=True, timeout=scaled(55))

    assert main(["import", str(tmp_path / "none"), "--state", file]) == 1
    assert "cluster: import needs the archive of an image (docker save): " in capsys.readouterr().err
    archive.write_text("no tar")
    assert main(["import", str(archive), "--state", file]) == 1
    assert capsys.readouterr().err.startswith(f"cluster: {archive} was not imported: ")

    assert main(["down", "--state", file]) == 0
    assert not state.living
    assert not any(Path(each).exists() for each in state.node.cgroups)


@pytest.mark.apart
@pytest.mark.long
def test_down_clears_away_a_node_whose_holder_and_guardian_were_killed(node: Node, state_file: Path) -> None:
    assert main(["up", "--node", "--state", str(state_file)]) == 0
    state = read_state(state_file)
    assert state is not None
    assert state.node is not None
    for victim in ("guardian", "holder"):
        os.kill(state.processes[victim][0], signal.SIGKILL)
    assert main(["down", "--state", str(state_file)]) == 0
    wait_until(lambda: not marked_processes(Path(state.folder)), limit_s=10)
    assert not any(Path(each).exists() for each in state.node.cgroups)
    assert not Path(state.folder).exists()
