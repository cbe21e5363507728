"""A release: what is in it, and that the same commit gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.tools.clones import clone, commit, git
from tools import dist


def test_an_archive_says_nothing_of_the_disk(tmp_path: Path) -> None:
    found = []
    for number, mask in enumerate((0o022, 0o077)):
        folder = tmp_path / str(number)
        before = os.umask(mask)
        try:
            (folder / "a").mkdir(parents=True)
            for name in ("a/run", "a/b", "c")[:: 1 if number else -1]:
                (folder / name).write_text(name)
                os.utime(folder / name, (number, number))
            (folder / "a" / "run").chmod(0o755 & ~mask)
        finally:
            os.umask(before)
        found.append(dist.archive(folder.rglob("*"), folder, "x-1", 7))
    assert found[0] == found[1]
    with tarfile.open(fileobj=io.BytesIO(found[0])) as tar:
        every = [(each.name, each.mode, each.mtime, each.uid, each.uname) for each in tar.getmembers()]
    assert every == [
        ("x-1/a/b", 0o644, 7, 0, ""),
        ("x-1/a/run", 0o755, 7, 0, ""),
        ("x-1/c", 0o644, 7, 0, ""),
    ]
    assert gzip.decompress(found[0])


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    (tmp_path / "SHA256SUMS").write_text(dist.sums([tmp_path / "b", tmp_path / "a"]))
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path)
    assert done.returncode == 0


def test_the_version_of_a_chart() -> None:
    assert dist.chart_version('apiVersion: v2\nappVersion: "1"\nversion: "0.1.0"\n') == "0.1.0"
    assert dist.chart_version("version: 0.1.0-rc.1\n") == "0.1.0-rc.1"


@pytest.mark.long
@pytest.mark.timeout(180)
def test_two_clones_make_the_same_release(tmp_path: Path) -> None:
    names, state = {}, commit()
    for number, mask in enumerate((0o022, 0o077)):
        before = os.umask(mask)
        try:
            folder = clone(tmp_path / f"clone-{number}", state)
        finally:
            os.umask(before)
        (folder / "kubeflow.yaml").write_text("an admin's own\n")
        if number:
            (folder / "README.md").write_text("changed since\n")
        done = subprocess.run(
            [sys.executable, "-m", "tools.dist"],
            cwd=folder,
            env={**os.environ, "TZ": f"Etc/GMT+{number}", "PYTHONPATH": "", "LC_ALL": "C"},
            stdout=subprocess.PIPE,
            text=True,
            umask=mask,
        )
        assert done.returncode == 0
        assert ("without these changes" in done.stdout) == bool(number)
        made = folder / "dist"
        assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=made).returncode == 0
        names[number] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.iterdir()}
    assert names[0] == names[1]
    charts = {"kubeflow-bitfusion-0.1.0.tgz"} if (folder / "charts").is_dir() else set()
    assert set(names[0]) == charts | {
        "SHA256SUMS",
        "kubeflow-bitfusion-manifests-0.1.0.tar.gz",
        "kubeflow_bitfusion-0.1.0-py3-none-any.whl",
        "kubeflow_bitfusion-0.1.0.tar.gz",
    }
    date = int(git(folder, "log", "-1", "--format=%ct"))
    with tarfile.open(made / "kubeflow_bitfusion-0.1.0.tar.gz") as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
        assert {each.mtime for each in tar.getmembers()} == {date}
    assert {"Makefile", "tools/images/plan.py", "manifests/base/kustomization.yaml"} <= inside
    assert "kubeflow.yaml" not in inside
    with tarfile.open(made / "kubeflow-bitfusion-manifests-0.1.0.tar.gz") as tar:
        assert "kubeflow-bitfusion-manifests-0.1.0/manifests/base/kustomization.yaml" in tar.getnames()
    with zipfile.ZipFile(made / "kubeflow_bitfusion-0.1.0-py3-none-any.whl") as wheel:
        assert "bitfusion_client/__init__.py" in wheel.namelist()
        # Its dates are in steps of two seconds.
        assert {each.date_time for each in wheel.infolist()} == {time.gmtime(date - date % 2)[:6]}
