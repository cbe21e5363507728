"""What a GPU pod gets to run: small, always the same, complete, started by whatever Python the image has."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import bitfusion_client
import bitfusion_pods
from bitfusion_client.errors import ClusterUnusable
from bitfusion_pods.command import agent_files
from bitfusion_pods.command.agent_files import agent_script, agent_zip
from bitfusion_pods.command.keys import make_keys
from bitfusion_pods.pod.secret import PATHS, agent_secret
from tests.pods.pod.notebook_pods import made, notebook
from tests.support.machine import scaled

LIMIT_S = 30.0
MOST_BYTES = 512 << 10
"""Half of what Kubernetes lets a Secret have."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`/bitfusion` of a GPU pod, elsewhere and read-only, as a kubelet fills it from the Secret."""
    top = tmp_path / "a b"
    files: dict[str, bytes | str] = {**agent_files.agent_files(), **make_keys(str(tmp_path)).of_pod}
    secret = agent_secret(made(), notebook(), "{}", files)
    data = top / "..data"
    for key, path in PATHS.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(base64.b64decode(secret["data"][key]))
        (data / path).chmod(0o555 if key == "bitfusion" else 0o444)
    for name in os.listdir(data):
        (top / name).symlink_to(f"..data/{name}")
    for each in (data, *(each for each in data.rglob("*") if each.is_dir())):
        each.chmod(0o555)
    return top


def bitfusion(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "bin" / "bitfusion", *words],
        env={"PATH": "/nowhere", **environ},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=scaled(LIMIT_S),
        check=False,
    )


def pythons() -> list[str]:
    """Those of this machine that the client can have."""
    versions = [f"python3.{minor}" for minor in range(10, 16)]
    found = [shutil.which(name) for name in versions]
    found += [str(each) for name in versions for each in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    return [each for each in dict.fromkeys(found) if each and "shims" not in each] or [sys.executable]


def test_it_has_the_modules_of_both_packages_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_zip())) as file:
        names = {each.filename for each in file.infolist()}
        assert {each.compress_type for each in file.infolist()} == {zipfile.ZIP_DEFLATED}
    modules = {
        str(path.relative_to(Path(package.__path__[0]).parent))
        for package in (bitfusion_client, bitfusion_pods)
        for path in Path(package.__path__[0]).rglob("*.py")
    }
    assert names == {"__main__.py"} | modules


def test_it_is_the_same_each_time() -> None:
    assert agent_zip() == agent_zip()


def test_the_secret_stays_well_below_what_kubernetes_allows() -> None:
    files: dict[str, bytes | str] = {**agent_files.agent_files(), "tls.key": "x" * 5000}
    longest = "x" * (1 << 16)  # settings
    secret = agent_secret(made(), notebook(), longest, files)
    assert sum(len(base64.b64decode(value)) for value in secret["data"].values()) < MOST_BYTES


@pytest.mark.parametrize("python", pythons())
def test_the_agent_runs_from_a_read_only_folder(folder: Path, python: str) -> None:
    agent = subprocess.Popen(
        ["/bin/sh", folder / "bin/bitfusion", "agent", "--keys", folder / "keys", "--port", "0"],
        env={"PATH": "/nowhere", "BITFUSION_PYTHON": python},
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stderr is not None
        assert "listens on port" in agent.stderr.readline()
    finally:
        agent.kill()
        agent.communicate()


IMPORTS = """\
import sys
sys.path.insert(0, sys.argv[1])
from bitfusion_client.gpu_memory import limits
from bitfusion_pods import cli
from bitfusion_pods.agent import __main__, agent
from bitfusion_pods.command import health, reports, run
from bitfusion_pods.stream import mirror, tls
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""


def test_it_imports_nothing_from_outside_but_the_standard_library(folder: Path) -> None:
    packages = str(folder / "agent.zip")
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORTS, packages], capture_output=True, text=True, check=True
    ).stdout
    standard = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
    files = [line for line in said.splitlines() if line.startswith("/")]
    ours = [file for file in files if file.startswith(packages)]
    assert len(ours) > 30
    others = [file for file in files if file not in ours]
    assert [each for each in others if "site-packages" in each or not _is_below(each, standard)] == []


def _is_below(file: str, folders: Sequence[str]) -> bool:
    return any(os.path.realpath(file).startswith(os.path.realpath(folder)) for folder in folders)


def test_the_hook_for_shares_of_memory_is_imported_from_it(folder: Path) -> None:
    """By a Python of the image, in a program of the GPU pod."""
    hook = f"{folder}/agent.zip/bitfusion_client/gpu_memory/hook"
    code = "import sitecustomize; print(sitecustomize.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": hook}, capture_output=True, text=True, check=True
    ).stdout
    assert said == f"{hook}/sitecustomize.py\n"


@pytest.mark.parametrize("words", [("version",), ("help",), ("run", "-h")])
def test_in_a_cell_it_is_the_command(folder: Path, words: tuple[str, ...]) -> None:
    done = bitfusion(folder, *words, BITFUSION_PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bitfusion" in done.stdout


def test_in_a_cell_there_is_no_second_gpu_pod(folder: Path) -> None:
    given = {"BITFUSION_GPU_POD": "p", "BITFUSION_TEST_POD_ROOT": str(folder), "KUBERNETES_SERVICE_HOST": ""}
    done = bitfusion(folder, "run", "-n", "1", "--", "true", BITFUSION_PYTHON=sys.executable, **given)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder whose script finds no Python of this machine in the usual places."""
    text, usual = agent_script().decode(), " /opt/conda/bin /usr/local/bin /usr/bin; do"
    assert usual in text
    script = tmp_path / "bare" / "bin" / "bitfusion"
    script.parent.mkdir(parents=True)
    script.write_text(text.replace(usual, "; do"))
    script.chmod(0o755)
    return tmp_path / "bare"


def fake_python(path: Path, version: str) -> Path:
    """It answers as one of this version, and says that it was started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = int(version.split(".")[1]) >= 10
    path.write_text(
        f'#!/bin/sh\ncase $3 in -c) exit {0 if new else 1} ;; esac\necho {version} "$@"\n', encoding="utf-8"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("pythons", "environ", "version"),
    [
        ({"one/python3": "3.12"}, {}, "3.12"),
        ({"one/python3": "3.9", "two/python3": "3.12"}, {}, "3.12"),
        ({"one/python3": "3.9", "two/python3.11": "3.11"}, {}, "3.11"),
        ({"one/python3": "3.12", "own": "3.13"}, {"BITFUSION_PYTHON": "own"}, "3.13"),
        ({"one/python3": "3.12", "own": "3.8"}, {"BITFUSION_PYTHON": "own"}, "3.12"),
    ],
)
def test_the_first_python_that_is_new_enough_is_taken(
    bare: Path, tmp_path: Path, pythons: dict[str, str], environ: dict[str, str], version: str
) -> None:
    for name, of in pythons.items():
        fake_python(tmp_path / name, of)
    given = {name: str(tmp_path / value) for name, value in environ.items()}
    done = bitfusion(bare, "a", "b c", "*", PATH=f":relative:{tmp_path}/one:{tmp_path}/two", **given)
    assert done.stdout.startswith(f"{version} -I -S "), done.stderr
    assert done.stdout.endswith("agent.zip a b c *\n")


@pytest.mark.parametrize("too_old", [False, True])
def test_an_image_without_a_python_for_it_is_told(bare: Path, tmp_path: Path, too_old: bool) -> None:
    places = "on PATH or in /opt/conda/bin, /usr/local/bin, /usr/bin"
    old = fake_python(tmp_path / "one/python3", "3.9") if too_old else None
    done = bitfusion(bare, "agent", PATH=f"{tmp_path}/one")
    assert done.returncode == 127
    more = f"; too old: {old}" if old else ""
    assert done.stderr == (
        f"Error: this image has no Python for the bitfusion client, {places}{more}. What to do: use an "
        "image with Python 3.10 or newer\n"
    )


def test_packages_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_files, "_folder", lambda: str(tmp_path))
    (tmp_path / "bitfusion_pods").mkdir()
    (tmp_path / "bitfusion_pods" / "gone.py").symlink_to("nowhere")
    for ask in (agent_zip, agent_script):
        with pytest.raises(ClusterUnusable) as caught:
            ask()
        assert "No such file or directory" in caught.value.user_message
