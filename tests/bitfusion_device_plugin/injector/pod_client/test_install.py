"""The init container fills the pod's volume, whatever lies there, or says in one line why it cannot."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from bitfusion_client.pod import pod_contract
from bitfusion_client.pod.this_pod import ThisPod, is_injected, this_pod
from tests.bitfusion_device_plugin.injector.pod_client.client_image import (
    LIMIT_S,
    MAIN,
    POD,
    install,
    make_client_image,
)
from tests.support.machine import scaled
from tests.support.namespaces import with_own_mounts

SIDE = ("side", "-n 1", "100", "stand-in", "")
PACKAGE = "bitfusion-client-ubuntu2004_4.5.0-4_amd64.deb"
VMWARE = ("product", "-n 2 -m 8192", "104", "vmware", PACKAGE)
VERSIONS = "the injector and the client's image are of different versions: install both from one release"


def contents(folder: Path) -> dict[str, str]:
    """Every path below it, with what a file says; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or path.is_dir():
            said = "link" if path.is_symlink() else "folder"
        else:
            said = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = said
    return found


def test_each_container_has_its_folder(client_image: Path, volume: Path) -> None:
    done = install(client_image, volume, *MAIN, *SIDE, *VMWARE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "The bitfusion client is in pod team-a/mnist-0, for main (stand-in, -n 1 -p 0.5); side (stand-in, "
        f"-n 1); product (vmware {PACKAGE}, -n 2 -m 8192)\n"
    )
    assert sorted(os.listdir(volume)) == ["main", "product", "side"]
    assert sorted(os.listdir(volume / "main")) == ["bin", "identity", "pod", "stand-in"]
    assert sorted(os.listdir(volume / "product")) == ["bin", "identity", "packages", "pod"]
    assert os.listdir(volume / "product" / "packages") == os.listdir(volume / "main" / "identity") == []
    texts = {path.name: path.read_text() for path in (volume / "product" / "pod").iterdir()}
    assert texts == {
        pod_contract.NAME_FILE: "mnist-0",
        pod_contract.NAMESPACE_FILE: "team-a",
        pod_contract.UID_FILE: POD["BITFUSION_POD_UID"],
        pod_contract.NOTEBOOK_FILE: "mnist",
        pod_contract.CONTAINER_FILE: "product",
        pod_contract.REQUEST_FILE: "-n 2 -m 8192",
        pod_contract.UNITS_FILE: "104",
        pod_contract.CLIENT_FILE: "vmware",
        pod_contract.PACKAGE_FILE: PACKAGE,
    }
    assert this_pod(str(volume / "main")) == ThisPod(
        "mnist-0", "team-a", "mnist", "main", "-n 1 -p 0.5", "stand-in", POD["BITFUSION_POD_UID"], "50"
    )


def test_every_user_can_read_it_and_the_second_costs_no_room(client_image: Path, volume: Path) -> None:
    previous = os.umask(0o077)
    try:
        install(client_image, volume, *MAIN, *SIDE)
    finally:
        os.umask(previous)
    for path in [volume / "main", *volume.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o755 == 0o755 if path.is_dir() or path.parent.name == "bin" else mode & 0o444, path
    names = ("bin/sh", "bin/bitfusion", "stand-in/bitfusion_pool/own_files.py")
    assert all(os.path.samefile(volume / "main" / name, volume / "side" / name) for name in names)


def test_a_pod_that_belongs_to_no_notebook(client_image: Path, volume: Path) -> None:
    environ = {name: value for name, value in POD.items() if name != "BITFUSION_NOTEBOOK"}
    assert install(client_image, volume, *MAIN, environ=environ).returncode == 0
    found = this_pod(str(volume / "main"))
    assert found is not None
    assert (found.notebook, found.place) == ("", "team-a/mnist-0")


def test_a_second_run_leaves_the_same(client_image: Path, volume: Path) -> None:
    install(client_image, volume, *MAIN, *SIDE)
    before = contents(volume)
    (volume / "main" / "stand-in" / "bitfusion").unlink()
    (volume / "side" / "pod" / "request").write_text("-n 8")
    assert install(client_image, volume, *MAIN, *SIDE).returncode == 0
    assert contents(volume) == before


def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    """Killed before each of its steps in turn: no folder of a container is ever there in part."""
    image = make_client_image(tmp_path / "image", packages=[])
    whole = tmp_path / "whole"
    whole.mkdir()
    install(image, whole, *MAIN, *SIDE)
    expected = contents(whole)
    script = (image / "install").read_text()
    steps = script.count("  try ")
    position = deaths = 0
    for step in range(steps):
        position = script.index("  try ", position) + 1
        killed = script[:position] + " kill -9 $$; sleep 60\n" + script[position:]
        (image / "install").write_text(killed)
        volume = tmp_path / f"volume-{step}"
        volume.mkdir()
        died = install(image, volume, *MAIN, *SIDE)
        deaths += died.returncode == -signal.SIGKILL  # some steps are other kinds'
        for name in ("main", "side"):
            if (volume / name).exists():
                assert contents(volume / name) == contents(whole / name)
        (image / "install").write_text(script)
        assert install(image, volume, *MAIN, *SIDE).returncode == 0
        assert contents(volume) == expected
        shutil.rmtree(volume)
    assert deaths > 10


def test_what_lies_in_the_volume_is_never_followed(client_image: Path, volume: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    (foreign / "pod").mkdir(parents=True)
    (foreign / "pod" / "name").write_text("theirs")
    before = contents(foreign)
    (volume / "main").symlink_to(foreign)
    (volume / "side").mkdir()
    (volume / "side" / "pod").symlink_to(foreign / "pod")
    (volume / ".draft").symlink_to(foreign)
    assert install(client_image, volume, *MAIN, *SIDE).returncode == 0
    assert contents(foreign) == before
    assert not (volume / "main").is_symlink()
    assert (volume / "side" / "pod" / "name").read_text() == "mnist-0"
    assert sorted(os.listdir(volume)) == ["main", "side"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "no container is named"),
        (MAIN[:4], '"main -n 1 -p 0.5 50 stand-in" is not: NAME REQUEST UNITS KIND PACKAGE'),
        (("../x", *MAIN[1:]), '"../x" is no name of a container'),
        (("", *MAIN[1:]), '"" is no name of a container'),
        (("main", "-n 1", "1.5", "stand-in", ""), '"1.5" is no number of units'),
        (("main", "-n 1", "1", "other", ""), '"other" with package "" is no kind of client'),
        (("main", "-n 1", "1", "vmware", ""), '"vmware" with package "" is no kind of client'),
        (("main", "-n 1", "1", "vmware", "a/../../b"), '"a/../../b" is no name of a package'),
        (("main", "-n 1", "1", "pods", "a"), '"pods" with package "a" is no kind of client'),
        (("main", "-n 1", "1", "vmware", ".."), '"vmware" with package ".." is no kind of client'),
    ],
)
def test_words_of_another_injector_are_refused(
    client_image: Path, volume: Path, words: tuple[str, ...], why: str
) -> None:
    done = install(client_image, volume, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: the bitfusion client could not be put into the pod: {why}. What to do: {VERSIONS}\n"
    )
    assert os.listdir(volume) == []


def test_a_volume_that_is_missing_and_names_that_are_missing_are_told(
    client_image: Path, volume: Path, tmp_path: Path
) -> None:
    done = install(client_image, tmp_path / "nowhere", *MAIN)
    assert f"there is no folder {tmp_path}/nowhere. What to do: {VERSIONS}" in done.stderr
    for name in ("BITFUSION_POD_NAME", "BITFUSION_POD_NAMESPACE", "BITFUSION_POD_UID"):
        done = install(client_image, volume, *MAIN, environ={**POD, name: ""})
        assert (
            "BITFUSION_POD_NAME, BITFUSION_POD_NAMESPACE and BITFUSION_POD_UID must be set. What to do: "
            + VERSIONS
        ) in done.stderr
    assert os.listdir(volume) == []


def test_a_volume_without_room_is_told_and_leaves_no_half_folder(client_image: Path, volume: Path) -> None:
    words = (
        'mount -t tmpfs -o size=64k none "$1" && "$2/bin/sh" "$2/install" "$1" main "-n 1" 100 stand-in ""; '
        'ls -A "$1"'
    )
    done = subprocess.run(
        with_own_mounts(["sh", "-c", words, "sh", str(volume), str(client_image)]),
        env={**os.environ, **POD},
        capture_output=True,
        text=True,
        timeout=scaled(LIMIT_S),
        check=False,
    )
    assert done.stderr.startswith("Error: the bitfusion client could not be put into the pod: cp: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.endswith(
        "What to do: see whether the volume is full or cannot be written; its size limit is a setting of the "
        "injector\n"
    )
    assert done.stderr.count("\n") == 1
    assert done.stdout == ".draft\n"


def test_a_machine_without_pods_is_none(tmp_path: Path) -> None:
    assert this_pod(str(tmp_path)) is None
    assert not is_injected(str(tmp_path))
