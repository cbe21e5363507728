"""Our images, built from their Containerfiles, and each doing what it is for, without a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.base_images import base_image
from tests.cluster.image_builder import BuildFailed, build
from tests.cluster.image_files import BuiltImage, why_no_images
from tests.cluster.image_machine import machine_settings
from tests.cluster.image_run import Running, run, running
from tests.cluster.project_images import IMAGES, ROOT, project_image, project_wheel
from tests.support.waiting import wait_until

NAMES = sorted(path.name for path in IMAGES.iterdir())
OLD = "docker.io/kubeflownotebookswg/jupyter:v1.8.0"
NEW = "ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter:v1.10.0"
PREFIX = "/notebook/team/mine"
URL = f"http://127.0.0.1:8888{PREFIX}"
LOGO = ROOT / "bitfusion_kernel" / "install" / "logo" / "logo-svg.svg"
BITFUSION = ROOT / "bitfusion_pool" / "bin" / "bitfusion"
UNKNOWN = 1000680000  # of the range of a namespace of OpenShift's
# Console scripts of the rooms that run in Kubernetes, whoever adds one.
COMMANDS = re.findall(
    r"(?m)^([\w-]+) = \"(?:notebook_controller_patch|bitfusion_device_plugin)[\w.]*:\w+\"$",
    (ROOT / "pyproject.toml").read_text(),
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.xdist_group("images")]


@pytest.fixture(autouse=True)
def _possible() -> None:
    reason = why_no_images()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users of this machine may enter, as a volume's mount point is."""
    place = Path(tempfile.mkdtemp(prefix="bft-image-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_and_the_second_time_comes_from_the_cache(name: str) -> None:
    image = project_image(name, _arguments(name))
    print(f"{image.name}: {image.size() / 1e6:.0f} MB, built in {image.build_s:.1f} s")
    told: list[str] = []
    again = project_image(name, _arguments(name), told.append)
    print(f"again: {again.build_s:.1f} s")
    assert (again.layers, again.config, told) == (image.layers, image.config, [])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kubernetes_process_starts_as_nobody_on_a_root_that_is_read_only(command: str) -> None:
    image = project_image("notebook-controller")
    restricted: dict[str, Any] = {"read_only": True, "no_new_privileges": True}
    helped = run(image, [command, "--help"], **restricted)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(f"usage: {command}")
    shown = run(image, [command, "--version"], **restricted)
    assert (shown.returncode, shown.stdout.split()[0]) == (0, command)
    assert run(image, ["id", "-u"], **restricted).stdout == "65532\n"
    assert "Read-only file system" in run(image, ["touch", "/tmp/x"], **restricted).stderr
    # As OpenShift runs it: a user whom the image does not know, in root's group.
    unknown = run(image, [command, "--version"], user=f"{UNKNOWN}:0", **restricted)
    assert (unknown.returncode, unknown.stdout) == (0, shown.stdout)


def test_no_jupyter_and_no_pip_is_in_the_image_of_the_kubernetes_processes() -> None:
    image = project_image("notebook-controller")
    for module in ("ipykernel", "IPython", "jupyter_client", "zmq", "traitlets", "pip"):
        done = run(image, ["/opt/controller/bin/python", "-c", f"import {module}"])
        assert f"No module named '{module}'" in done.stderr


@pytest.mark.parametrize("user", [65532, UNKNOWN], ids=["its own user", "a user of OpenShift's"])
def test_the_pool_serves_a_client_with_a_token(folder: Path, user: int) -> None:
    image = project_image("pool")
    volumes = [(str(_volume(folder, name, user)), place) for name, place in POOL_VOLUMES]
    more: dict[str, Any] = {"binds": volumes, "read_only": True, "no_new_privileges": True}
    if user == UNKNOWN:
        more["user"] = f"{user}:0"
    made = run(image, ["bitfusion-pool", "certificate", "create", "--host", "127.0.0.1"], **more)
    assert made.returncode == 0, made.stderr
    token = ["token", "create", "ada", "--files", "/run/bitfusion-pool/ada", "--server", "127.0.0.1:56001"]
    made = run(image, ["bitfusion-pool", *token], **more)
    assert made.returncode == 0, made.stderr
    home = folder / "home"
    shutil.copytree(folder / "run" / "ada", home / ".bitfusion")
    (home / ".bitfusion").chmod(0o700)
    words = ["env", "-i", f"HOME={home}", f"PATH={os.environ['PATH']}"]
    words += [f"BITFUSION_PYTHON={sys.executable}", str(BITFUSION), "list_gpus"]
    with running(image, own_network=True, **more) as service:  # its own words: serve --listen :56001
        shown = wait_until(
            lambda: service.beside(*words), service.log.read_text, 30, errors=(AssertionError,)
        )
    assert "simulated" in shown.lower()


@pytest.mark.parametrize("base", [pytest.param(OLD, marks=pytest.mark.apart), NEW])
def test_a_notebook_image_keeps_what_makes_it_one_of_kubeflows(base: str, folder: Path) -> None:
    image = project_image("notebook", {"NOTEBOOK_IMAGE": base})
    before = base_image(base)
    for key in ("User", "Entrypoint", "Cmd", "WorkingDir", "ExposedPorts", "Env"):
        assert image.config.get(key) == before.config.get(key), key
    assert image.config["User"] == "1000"
    kept = _versions(before)
    changed = {name: version for name, version in _versions(image).items() if kept.get(name) != version}
    print(f"{base}: {changed}")
    # what conda has pinned there, and what users compute with
    assert not changed.keys() & {"jupyterlab", "notebook", "jupyter-server", "ipython", "numpy", "pip"}
    assert {"kubeflow-bitfusion", "ipykernel"} <= changed.keys()
    said = _adding_the_kernel(before, folder)
    assert f"ipykernel {kept['ipykernel']} -> {changed['ipykernel']}\n" in said
    # JupyterLab 3 brings the classic notebook, which no longer runs a server there.
    assert [line.split()[1] for line in said.splitlines() if line.startswith("note: ")] == (
        ["notebook", "notebook"] if base == OLD else []
    )


@pytest.mark.parametrize("base", [pytest.param(OLD, marks=pytest.mark.apart), NEW])
def test_a_notebook_image_starts_as_jovyan_and_runs_a_cell_on_a_gpu(base: str, folder: Path) -> None:
    image = project_image("notebook", {"NOTEBOOK_IMAGE": base})
    home = _volume(folder, "home", user=1000)
    volume = [(str(home), "/home/jovyan")]
    with running(
        image, env={"NB_PREFIX": PREFIX}, own_network=True, binds=volume, no_new_privileges=True
    ) as started:
        wait_until(lambda: "/lab" in _page(started), started.log.read_text, 60, errors=(AssertionError,))
        listed = _ask(started, "LIST")
        assert listed["kernels"]["bitfusion"] == "Bitfusion"
        assert listed["logos"]["bitfusion"] == LOGO.read_text()
        who = "import os; print(os.getuid(), os.environ['HOME'])"
        first, gpus, status = _ask(started, "bitfusion", who, "!bitfusion list_gpus", "%bitfusion")["cells"]
    assert (first["status"], first["text"]) == ("ok", "1000 /home/jovyan\n")
    assert "simulated" in gpus["text"].lower(), gpus
    assert "/opt/conda/" in status["text"]


def test_an_image_whose_python_is_too_old_is_refused_in_one_line(folder: Path) -> None:
    old = folder / "old"
    old.mkdir()
    (old / "python3").write_text(
        "#!/usr/bin/python3\n"
        "import runpy, sys\n"
        "sys.version_info = (3, 8, 10, 'final', 0)\n"
        "sys.argv.pop(0)\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    (old / "Containerfile").write_text("FROM python:3.10\nCOPY --chmod=755 python3 /usr/local/bin/python3\n")

    def base(name: str) -> BuiltImage:
        return build(old / "Containerfile", old, name, base_image)

    for part in ("manifests", "requirements"):
        shutil.copytree(ROOT / part, folder / part)
    (folder / "dist").mkdir()
    (folder / "dist" / "kubeflow_bitfusion-0-py3-none-any.whl").touch()
    with pytest.raises(BuildFailed) as told:
        build(IMAGES / "notebook" / "Containerfile", folder, "x", base)
    where, *lines = str(told.value).splitlines()
    assert where.endswith('add_kernel.py": while running runtime: exit status 1')
    assert lines == [
        "The Bitfusion kernel needs Python 3.10 or newer, and this image's /usr/bin/python3 is 3.8.10: "
        "name another image, --build-arg NOTEBOOK_IMAGE=...; Kubeflow's own have 3.8 up to release 1.7 "
        "and 3.11 or newer from 1.8 on, and those run in an older Kubeflow, too."
    ]


POOL_VOLUMES = (("pool", "/var/lib/bitfusion-pool"), ("run", "/run/bitfusion-pool"))


def _arguments(name: str) -> dict[str, str]:
    return {"NOTEBOOK_IMAGE": NEW} if name == "notebook" else {}


def _volume(folder: Path, name: str, user: int = 65532) -> Path:
    place = folder / name
    place.mkdir(0o755)
    os.chown(place, user, user)
    return place


def _versions(image: BuiltImage) -> dict[str, str]:
    done = run(image, ["python3", "-m", "pip", "list", "--format=json", "--disable-pip-version-check"])
    return {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(done.stdout)}


def _adding_the_kernel(image: BuiltImage, folder: Path) -> str:
    """What the build prints that puts the kernel into this image; one from the cache prints nothing."""
    for file in (
        IMAGES / "notebook" / "add_kernel.py",
        ROOT / "requirements" / "kernel.txt",
        project_wheel(),
    ):
        shutil.copy(file, folder)
    machine = machine_settings()
    binds = [*machine.binds, (str(folder), "/dev/kernel")]
    done = run(image, ["python3", "/dev/kernel/add_kernel.py"], env=machine.env, binds=binds, limit_s=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _page(started: Running) -> str:
    """JupyterLab's page, as someone beside the server gets it."""
    code = f"import urllib.request as r; print(r.urlopen({URL + '/lab'!r}, timeout=20).read())"
    return started.beside(sys.executable, "-c", code)


def _ask(started: Running, *words: str) -> dict[str, Any]:
    told = started.beside(sys.executable, "-m", "tests.cluster.notebook_client", URL, *words)
    answer: dict[str, Any] = json.loads(told)
    return answer
