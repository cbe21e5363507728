"""Building the binaries: once, whole or not at all, and with words when it cannot be done."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tests.cluster.binaries
from tests.cluster.binaries import (
    CONTROL_PLANE,
    NODE,
    Binaries,
    ClusterUnavailable,
    binaries,
    build_hash,
    cache_folder,
    cached,
    expected_build_s,
    in_minutes,
    why_unavailable,
)
from tests.support.machine import scaled
from tests.support.waiting import wait_until
from tools import environment

ROOT = Path(__file__).parent.parent.parent
WANTED = "install Go 1.21 or newer (https://go.dev/dl) to run the tests on a real Kubernetes"
# `go build … -o FILE PACKAGE`: writes FILE, slowly.
FAKE_GO = """#!/bin/sh
[ "$1" = version ] && { echo "go version go%s linux/amd64"; exit 0; }
echo "$@" >> "%s"
sleep 0.1
while [ "$1" != -o ]; do shift; done
echo made > "$2"
%s
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "1.26.1", last: str = "exit 0"
) -> Path:
    """A Go that notes its calls in the returned file."""
    calls = folder / "calls"
    calls.touch()
    go = folder / "go"
    go.write_text(FAKE_GO % (version, calls, last))
    go.chmod(0o755)
    monkeypatch.setenv("GO", str(go))
    return calls


def test_a_build_is_kept_whole_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_go(tmp_path, monkeypatch)
    said: list[str] = []
    built = binaries(said.append)
    assert built.folder == tmp_path / "cache" / "kubeflow-bitfusion" / "cluster" / build_hash()
    assert sorted(path.name for path in built.folder.iterdir()) == sorted(CONTROL_PLANE.packages)
    assert re.fullmatch(
        r"cluster: building Kubernetes \S+ from Go modules, once: 4 components, "
        "(about [0-9]+ minutes?|a minute at most) on this machine, as busy as it is now, "
        "and the download of the modules",
        said[0],
    )
    assert said[1] == "cluster: kube-apiserver (1 of 4) …"
    assert said[2].startswith("cluster: kube-apiserver (1 of 4) built in ")
    assert said[3] == "cluster: the other 3 take a minute at most"
    assert said[-1].startswith("cluster: kubectl (4 of 4) built in ")
    assert built.told.startswith("binaries built in ")
    again = binaries(said.append)
    assert (again.folder, again.told) == (built.folder, "binaries from the cache")
    assert len(calls.read_text().splitlines()) == len(CONTROL_PLANE.packages)


def test_a_cluster_without_a_node_is_built_without_a_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch)
    control_plane = binaries(lambda line: None)
    assert not control_plane.path("kubelet").exists()
    assert cached(NODE) is None
    said: list[str] = []
    node = binaries(said.append, NODE)
    assert sorted(path.name for path in node.folder.iterdir()) == ["kube-scheduler", "kubelet"]
    assert ": 2 components, " in said[0]
    assert "cluster: the other 1 takes a minute at most" in said
    assert cached() == Binaries(control_plane.folder, 0.0), "the one is not built anew for the other"


@pytest.mark.parametrize(
    ("cpus", "factor", "words"),
    [
        pytest.param(2, 1.0, "about 5 minutes", id="the machine it was measured on"),
        pytest.param(2, 3.8, "about 18 minutes", id="the same, busy"),
        pytest.param(1, 2.5, "about 24 minutes", id="one slow CPU"),
        pytest.param(8, 1.0, "about 1 minute", id="four times as many CPUs"),
        pytest.param(64, 1.0, "about 1 minute", id="more than one build can use"),
        pytest.param(64, 0.3, "a minute at most", id="and fast ones"),
    ],
)
def test_a_build_says_how_long_it_takes_on_this_machine(
    cpus: int, factor: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def measure(workers: int) -> float:
        asked.append(workers)
        return factor

    monkeypatch.setattr(tests.cluster.binaries, "measure", measure)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)))
    assert in_minutes(expected_build_s()) == words
    assert asked == [cpus], "Go compiles as many packages at once"


def test_the_rest_is_told_from_the_first_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch)
    monkeypatch.setattr(tests.cluster.binaries, "_build_one", lambda *_: 737.0)
    said: list[str] = []
    binaries(said.append)
    assert said[1:] == ["cluster: the other 3 take about 6 minutes"]


def test_the_cluster_of_a_developer_needs_one_package_beside_python() -> None:
    """`make cluster` on a fresh machine fetched TensorFlow and a browser's driver first."""
    code = (
        "import sys; sys.path.insert(0, '.'); import tests.cluster.__main__; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    others = {name for name in done.stdout.split() if not name.startswith("_")} - {"tests"}
    assert others - {"bitfusion_client"} == {"cryptography"}  # ours, of the standard library alone
    assert environment.PURPOSES["cluster"] == ["--group=cluster"]
    group = (ROOT / "pyproject.toml").read_text().partition("\ncluster = [")[2].partition("]")[0]
    assert re.findall(r'"([a-z-]+)', group) == ["cryptography"]


def test_two_builds_at_once_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = tmp_path / "goes-on"
    calls = fake_go(tmp_path, monkeypatch, last=f"while [ ! -e {goes_on} ]; do sleep 0.01; done")
    said: list[str] = []
    threads = [threading.Thread(target=binaries, args=(said.append,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting = "cluster: another run is building the binaries; waiting for it"
    wait_until(lambda: said.count(waiting) == 2, lambda: said)
    goes_on.touch()
    for thread in threads:
        thread.join(scaled(20))
    assert len(calls.read_text().splitlines()) == len(CONTROL_PLANE.packages)
    assert said.count(waiting) == 2


def test_what_a_killed_build_left_is_no_build_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch)
    torn = cache_folder() / "building-x"
    torn.mkdir(parents=True)
    (torn / "kube-apiserver").touch()
    assert cached() is None
    binaries(lambda line: None)
    assert not torn.exists()
    assert sorted(path.name for path in cache_folder().iterdir()) == sorted([build_hash(), "lock"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_build_takes_go_and_its_compilers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    calls = fake_go(tmp_path, monkeypatch, last="sleep 60")
    command = [sys.executable, "-m", "tests.cluster", "up", "--state", str(tmp_path / "running.json")]
    builder = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(calls.read_text, limit_s=20)
    (folder,) = cache_folder().glob("building-*")
    wait_until((folder / "kube-apiserver").exists, limit_s=5)
    builder.send_signal(number)
    said = builder.communicate(timeout=scaled(20))[1]
    assert said == ("cluster: not started\n" if number == signal.SIGINT else "")
    # What still ran would be a leftover of this test.
    wait_until(lambda: not folder.exists(), limit_s=10)


def test_a_failed_build_leaves_nothing_and_tells_gos_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, last='echo "dial tcp: no route to host" >&2; exit 1')
    with pytest.raises(ClusterUnavailable) as raised:
        binaries(lambda line: None)
    words = "go build k8s.io/kubernetes/cmd/kube-apiserver ended with 1: dial tcp: no route to host"
    assert str(raised.value) == f"no test cluster: {words}"
    assert [path.name for path in cache_folder().iterdir()] == ["lock"]


def test_without_go_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO", "/no/go")
    assert why_unavailable() == f"no test cluster: GO=/no/go is no program; {WANTED}"
    monkeypatch.delenv("GO")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert why_unavailable() == f"no test cluster: Go is not on PATH; {WANTED}"
    with pytest.raises(ClusterUnavailable, match="Go is not on PATH"):
        binaries()


@pytest.mark.parametrize(
    ("version", "told"), [("1.19.8", "is Go 1.19"), ("x", "does not tell its version"), ("1.21", None)]
)
def test_a_go_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, told: str | None
) -> None:
    fake_go(tmp_path, monkeypatch, version)
    go = tmp_path / "go"
    assert why_unavailable() == (told and f"no test cluster: {go} {told}; {WANTED}")


def test_with_the_binaries_at_hand_no_go_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch)
    binaries(lambda line: None)
    monkeypatch.setenv("GO", "/no/go")
    assert why_unavailable() is None
    assert binaries().told == "binaries from the cache"


@pytest.mark.long
@pytest.mark.parametrize(
    ("ci", "result", "line"),
    [
        ("false", "3 skipped", "SKIPPED [3] tests/cluster/plugin.py:"),
        ("true", "3 errors", "ERROR tests/cluster/test_cluster.py::test_kubectl_that_fails"),
    ],
)
def test_the_tests_of_the_cluster_are_skipped_with_one_line_and_fail_in_ci(
    ci: str, result: str, line: str
) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/cluster/test_cluster.py"]
    environment = {**os.environ, "GO": "/no/go", "CI": ci}
    done = subprocess.run(
        [*command, "-k", "kubectl_ or takes_pods"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=scaled(50),
    )  # fmt: skip
    assert result in done.stdout.splitlines()[-1]
    told = [each for each in done.stdout.splitlines() if each.startswith(line)]
    assert len(told) == 1
    assert f"no test cluster: GO=/no/go is no program; {WANTED}" in done.stdout
