"""The Containerfile: what it says, and its steps followed in a fresh environment.

No image is built: that needs a registry. What `pip` is told is read from the file, so that the steps that
are followed are the image's.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "manifests" / "image"
PLACE = "/opt/controller"
COPIED_WHEEL = "kubeflow_bitfusion-*.whl"
JUPYTER = ("ipykernel", "ipython", "jupyter", "pyzmq", "trait")


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Containerfile and its words, continued lines joined, comments left out."""
    lines = (IMAGE / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def of(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def commands() -> list[list[str]]:
    """The words of every RUN."""
    return [json.loads(rest) if rest.startswith("[") else shlex.split(rest) for rest in of("RUN")]


def deployment() -> dict[str, object]:
    documents = yaml.safe_load_all((ROOT / "manifests" / "base" / "deployment.yaml").read_text())
    template: dict[str, object] = next(documents)["spec"]["template"]["spec"]
    return template


def test_it_runs_the_command_as_the_user_of_the_manifests() -> None:
    context = deployment()["securityContext"]
    assert isinstance(context, dict)
    assert of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"] == ["65532:65532"]
    assert [json.loads(words) for words in of("ENTRYPOINT")] == [["bitfusion-notebook-controller"]]
    assert of("CMD") == []
    project = (ROOT / "pyproject.toml").read_text()
    assert 'bitfusion-notebook-controller = "notebook_controller_patch.cli:main"' in project
    # the command is found on PATH: no shell takes part
    assert any(words.startswith(f"PATH={PLACE}/bin:") for words in of("ENV"))
    (container,) = deployment()["containers"]  # type: ignore[misc]  # a list, as YAML gives it
    assert "command" not in container


def test_its_ports_are_those_of_the_manifests() -> None:
    (container,) = deployment()["containers"]  # type: ignore[misc]  # a list, as YAML gives it
    ports = [str(port["containerPort"]) for port in container["ports"]]
    assert of("EXPOSE")[0].split() == ports


def test_everything_comes_by_its_hash_from_the_one_lock() -> None:
    locked, wheel = (words for words in commands() if "install" in words)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(locked)
    assert locked[-2:] == ["-r", "/build/controller.txt"]
    assert "requirements/controller.txt /build/controller.txt" in of("COPY")
    assert {"--no-deps", "--no-index"} <= set(wheel)
    assert wheel[-1] == f"/build/{COPIED_WHEEL}"
    for words in commands():
        assert not {"curl", "wget", "apt-get", "git"} & set(words)


def test_both_stages_stand_on_one_pinned_image() -> None:
    (base,) = of("ARG")
    name, _, image = base.partition("=")
    assert name == "PYTHON_IMAGE"
    _, _, tag = image.rpartition(":")
    assert tag.count(".") == 2, "a tag that names the patch release"
    assert "slim" in tag
    assert [words.split()[0] for words in of("FROM")] == ["${PYTHON_IMAGE}"] * 2


def test_only_what_it_copies_is_sent_to_the_build() -> None:
    lines = (IMAGE / "Containerfile.dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [line for line in lines if line and line[0] not in "#!"] == ["*"]
    copied = [words.split()[0] for words in of("COPY") if not words.startswith("--from")]
    assert sent == copied


def test_the_lock_holds_nothing_of_jupyter() -> None:
    locked = [
        line.partition("==")[0]
        for line in (ROOT / "requirements" / "controller.txt").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    ]
    assert {"kubernetes", "tornado", "cryptography", "prometheus-client", "pyyaml"} <= set(locked)
    assert not [name for name in locked if name.startswith(JUPYTER)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_steps_make_a_working_command_without_jupyter(tmp_path: Path) -> None:
    place = tmp_path / "controller"
    build = tmp_path / "build"
    build.mkdir()
    wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheels, "--wheel-dir", str(build), str(ROOT)], check=True)
    (wheel,) = build.glob("kubeflow_bitfusion-*.whl")
    (build / "controller.txt").write_text((ROOT / "requirements" / "controller.txt").read_text())
    for words in commands():
        followed = [
            word.replace(PLACE, str(place)).replace("/build/", f"{build}/").replace(COPIED_WHEEL, wheel.name)
            for word in words
            if word != "--no-cache-dir"
        ]
        assert followed[0] == "python3"
        subprocess.run([sys.executable, *followed[1:]], check=True, capture_output=True, cwd=tmp_path)
    python = str(place / "bin" / "python")
    bare = {"PATH": "/usr/bin:/bin"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=bare)

    shown = run(str(place / "bin" / "bitfusion-notebook-controller"), "--version")
    assert shown.returncode == 0
    assert shown.stdout.startswith("bitfusion-notebook-controller ")
    done = run(python, "-c", "import notebook_controller_patch.controller")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("ipykernel", "IPython", "jupyter_client", "zmq", "traitlets", "pip", "kubernetes_validate"):
        done = run(python, "-c", f"import {name}")
        assert f"No module named '{name}'" in done.stderr
