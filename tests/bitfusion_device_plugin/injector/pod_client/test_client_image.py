"""The client's image, built from its Containerfile and run as the injector has it run."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from bitfusion_client.pod import pod_contract
from bitfusion_pods.command.keys import make_keys
from tests.bitfusion_device_plugin.injector.pod_client.client_image import MAIN, POD, PODS
from tests.bitfusion_device_plugin.injector.pod_client.container import Container
from tests.cluster.image_files import BuiltImage, why_no_images
from tests.cluster.image_run import run
from tests.cluster.project_images import project_image
from tests.pods.command.test_keys import pods_side, talk

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_no_images() is not None, reason=why_no_images() or ""),
]


@pytest.fixture(scope="module")
def image() -> BuiltImage:
    return project_image("client")


@pytest.fixture
def pod_volume(tmp_path: Path) -> Path:
    """An emptyDir as kubelet makes it, where another user than root may find it."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    return volume


def installed(image: BuiltImage, volume: Path, *words: str, **more: object) -> tuple[int, str, str]:
    """As in a pod whose namespace enforces *restricted*."""
    # A runtime makes them where an image has none.
    mount_points = volume.with_name("mount-points")
    for name in ("proc", "dev", pod_contract.VOLUME_PATH[1:]):
        (mount_points / name).mkdir(parents=True, exist_ok=True)
    environ: dict[str, str] = more.pop("environ", {})  # type: ignore[assignment]
    done = run(
        replace(image, layers=(*image.layers, mount_points)),
        [*pod_contract.INSTALL_COMMAND, pod_contract.VOLUME_PATH, *words],
        env={**POD, **environ},
        user="65532:65532",
        read_only=True,
        own_network=True,
        no_new_privileges=True,
        **{"binds": [(str(volume), pod_contract.VOLUME_PATH)], **more},  # type: ignore[arg-type]
    )
    return done.returncode, done.stdout, done.stderr


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_it_has_what_these_tests_put_together_by_hand_and_bytecode(
    image: BuiltImage, client_image: Path
) -> None:
    built = image.files()
    own = {f"bitfusion-image/{name}" for name in files_below(client_image)}
    compiled = {name for name in built if name.endswith(".pyc")}
    assert built.keys() - compiled == own
    modules = {name for name in own if name.endswith(".py")}
    assert len(compiled) >= len(modules)
    for path in built.values():
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (0, 0)
        assert stat.S_IMODE(found.st_mode) in (0o644, 0o755)
    assert image.size() < 20e6


def test_its_program_fills_the_volume_and_what_it_left_works(
    image: BuiltImage, pod_volume: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        status, stdout, stderr = installed(image, pod_volume, *MAIN)
        assert (status, stderr) == (0, "")
        assert stdout == "The bitfusion client is in pod team-a/mnist-0, for main (stand-in, -n 1 -p 0.5)\n"
    assert (pod_volume / "main").stat().st_uid == 65532
    (tmp_path / "root").mkdir()
    container = Container(tmp_path / "root", pod_volume / "main")
    container.add_python("/opt/conda/bin/python3")
    environ = {"BITFUSION_POOL": "own"}
    assert container.do("bitfusion", "run", "-n", "1", "--", "/image/busybox", "true", env=environ)[0] == 0


def test_why_it_failed_stands_in_the_pods_status(image: BuiltImage, pod_volume: Path, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    log.chmod(0o666)
    pod_volume.chmod(0o755)
    binds = [(str(pod_volume), pod_contract.VOLUME_PATH), (str(log), "/dev/termination-log")]
    status, stdout, stderr = installed(image, pod_volume, *MAIN, binds=binds)
    assert (status, stdout) == (1, "")
    assert stderr == log.read_text()
    assert stderr.startswith("Error: the bitfusion client could not be put into the pod: mkdir: can't create")
    assert os.listdir(pod_volume) == []


def test_a_notebook_makes_keys_by_the_images_own_openssl(
    image: BuiltImage, pod_volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, stdout, stderr = installed(image, pod_volume, *PODS)
    assert (status, stderr) == (0, "")
    assert stdout == "The bitfusion client is in pod team-a/mnist-0, for main (pods, -n 1 -p 0.5)\n"
    program = pod_volume / "main" / pod_contract.PODS_FOLDER
    assert sorted(os.listdir(program)) == ["bitfusion", "bitfusion_client", "bitfusion_pods", "openssl"]
    assert list(program.rglob("__pycache__/tls.cpython-3*.pyc"))
    monkeypatch.setenv("PATH", "/nowhere")
    keys = make_keys(str(pod_volume / "main"))
    assert talk(keys.context, pods_side(keys, tmp_path / "gpu")) == b"word:x"
