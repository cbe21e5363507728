"""Debian packages in the cache: fetched once, whole or not at all, and with words when it cannot be done."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

import pytest

import tests.cluster.debian_packages
from tests.cluster.debian_packages import PackagesUnavailable, packages_folder, unpacked
from tests.support.machine import scaled

# `update`, `download NAME…`, `install NAME…`: notes its calls, lays a file of each name into its folder.
FAKE_APT = """#!/bin/sh
echo "$PWD $@" >> "%s"
while [ "$1" != update ] && [ "$1" != download ] && [ "$1" != install ]; do shift; done
[ "$1" = update ] && { sleep 0.1; %s; }
shift
for name; do [ "${name#-}" = "$name" ] && echo "$name" > "$name.deb"; done
"""
# `-x DEB FOLDER`
FAKE_DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin"
cp "$2" "$3/usr/bin/$(basename "$2" .deb)"
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fake_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, update: str = "exit 0") -> Path:
    """An apt and a dpkg that note their calls in the returned file."""
    calls = folder / "calls"
    calls.touch()
    for name, text in (("apt-get", FAKE_APT % (calls, update)), ("dpkg", FAKE_DPKG)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setattr(tests.cluster.debian_packages, "_PATH", f"{folder}:/usr/bin:/bin")
    return calls


def test_packages_are_fetched_once_into_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_apt(tmp_path, monkeypatch)
    folder = unpacked(["runc", "containerd", "runc"])
    assert folder.parent == tmp_path / "cache" / "kubeflow-bitfusion" / "node"
    assert sorted(path.name for path in (folder / "usr/bin").iterdir()) == ["containerd", "runc"]
    assert [path.name for path in folder.iterdir()] == ["usr"], "apt's lists and archives are gone"
    assert unpacked(["containerd", "runc"]) == folder
    update, download = calls.read_text().splitlines()
    assert update.endswith(" update")
    assert download.endswith(" download containerd runc")
    own = re.findall(r"-oDir::(?:State|State::status|Cache)=(\S+)", update)
    assert len(own) == 3
    assert all(path.startswith(str(folder.parent)) for path in own), "the machine's apt is left alone"


def test_they_come_with_what_they_need_and_this_machine_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_apt(tmp_path, monkeypatch)
    folder = unpacked(["buildah"], whole=True)
    assert [path.name for path in (folder / "usr/bin").iterdir()] == ["buildah"]
    _, fetch = calls.read_text().splitlines()
    assert fetch.endswith(" install --download-only --no-install-recommends --yes buildah")
    assert "-oDir::State::status=" not in fetch, "what is installed counts"
    assert unpacked(["buildah"]) != folder


def test_two_who_want_them_at_once_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_apt(tmp_path, monkeypatch)
    threads = [threading.Thread(target=unpacked, args=(["runc"],)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scaled(20))
    assert len(calls.read_text().splitlines()) == 2


def test_what_a_killed_fetch_left_is_no_folder_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(tmp_path, monkeypatch)
    torn = packages_folder([]).parent / "building-x"
    torn.mkdir(parents=True)
    folder = unpacked(["runc"])
    assert sorted(path.name for path in folder.parent.iterdir()) == sorted(["lock", folder.name])


def test_a_fetch_that_fails_leaves_nothing_and_tells_apts_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(tmp_path, monkeypatch, update="echo 'E: Unable to fetch'; echo more; exit 100")
    with pytest.raises(
        PackagesUnavailable,
        match=r"^no Debian packages: apt-get update ended with 100: E: Unable to fetch$",
    ):
        unpacked(["runc"])
    assert [path.name for path in packages_folder([]).parent.iterdir()] == ["lock"]


def test_a_machine_without_apt_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.cluster.debian_packages, "_PATH", "/nowhere")
    words = "no Debian packages: apt-get is missing: this needs Debian or Ubuntu"
    with pytest.raises(PackagesUnavailable, match=f"^{words}$"):
        unpacked(["runc"])


@pytest.mark.long
def test_a_package_of_debian_can_be_run_from_there() -> None:
    busybox = unpacked(["busybox-static"]) / "bin/busybox"
    assert (
        subprocess.run([busybox, "echo", "it runs"], capture_output=True, check=True).stdout == b"it runs\n"
    )
