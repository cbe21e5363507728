"""Where no node can run, one line says why and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tests.cluster.debian_packages
import tests.cluster.node
from tests.cluster.node import PACKAGES, why_no_node
from tests.support.machine import scaled

ENVIRONMENT = dict(os.environ)
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def as_root_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs these tests, and wherever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tests.cluster.node, "effective_capabilities", lambda: -1)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(tests.cluster.node, "why_no_packages", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")


def test_with_everything_at_hand_nothing_is_missing() -> None:
    assert why_no_node() is None


def test_a_user_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = "no test node: it needs root, for namespaces and mounts; run these tests as root"
    assert why_no_node() == words


@pytest.mark.parametrize(("number", "name"), [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")])
def test_root_without_rights_is_told(monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    monkeypatch.setattr(tests.cluster.node, "effective_capabilities", lambda: ~(1 << number))
    words = f"root lacks {name} here; run these tests outside of a container, or privileged"
    assert why_no_node() == f"no test node: {words}"


def test_cgroups_that_are_read_only_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    reason = str(why_no_node())
    assert reason.startswith("no test node: /sys/fs/cgroup")
    assert reason.endswith(" is read-only; run these tests outside of a container, or privileged")


def test_a_machine_without_debians_packages_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.cluster.node, "why_no_packages", lambda: "apt-get is missing: …")
    assert why_no_node() == "no test node: apt-get is missing: …"
    tests.cluster.debian_packages.packages_folder(PACKAGES).mkdir(parents=True)
    assert why_no_node() is None, "with the packages in the cache no apt is needed"


def test_a_machine_without_a_program_of_util_linux_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "nsenter" else name)
    assert why_no_node() == "no test node: nsenter is not on PATH; install util-linux"


def test_folders_that_a_node_hides_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/var/lib/tmp")
    words = "TMPDIR is /var/lib/tmp, which a node hides from its programs; choose another folder"
    assert why_no_node() == f"no test node: {words}"
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setenv("XDG_CACHE_HOME", "/run/cache")
    assert "the cache is /run/cache/kubeflow-bitfusion, which" in str(why_no_node())


@pytest.mark.long
@pytest.mark.parametrize(
    ("ci", "result", "line"),
    [
        ("false", "4 skipped", "SKIPPED [4] tests/cluster/plugin.py:"),
        ("true", "4 errors", "ERROR tests/cluster/test_node_leftovers.py::test_a_killed_run"),
    ],
)
def test_the_tests_of_nodes_are_skipped_with_one_line_and_fail_in_ci(ci: str, result: str, line: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "tests/cluster/test_node_leftovers.py",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**ENVIRONMENT, "TMPDIR": "/var/lib/tmp", "CI": ci},
        capture_output=True,
        text=True,
        timeout=scaled(50),
    )
    assert result in done.stdout.splitlines()[-1]
    assert len([each for each in done.stdout.splitlines() if each.startswith(line)]) == 1
    assert "no test node: TMPDIR is /var/lib/tmp, which a node hides from its programs" in done.stdout
