"""What our Containerfiles say, and that commands in the documents name what there is; nothing is built."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from tools.images.containerfile import Instruction, arguments, parse

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "manifests" / "images"
NAMES = sorted(path.name for path in IMAGES.iterdir())
SERVICES = ("notebook-controller", "pool")
DOCUMENTS = (
    ROOT / "manifests" / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("how-to/install-step-by-step", "tutorials/kubeflow-pool")),
)
JUPYTER = {"ipykernel", "ipython", "jupyter-client", "pyzmq", "traitlets"}


def of(name: str, instruction: str) -> list[Instruction]:
    path = IMAGES / name / "Containerfile"
    return [each for each in parse(path.read_text()) if each.name == instruction]


def pip_installs(name: str) -> list[list[str]]:
    """The words of every RUN that is `pip install`."""
    every = [list(run.words) if run.is_exec else shlex.split(run.words[0]) for run in of(name, "RUN")]
    return [words for words in every if "pip" in words]


def locked(name: str) -> set[str]:
    return set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / name).read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_package_of_a_service_comes_by_its_hash(name: str) -> None:
    lock, wheel = pip_installs(name)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(lock)
    assert {"--no-deps", "--no-index"} <= set(wheel)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_runs_a_command_of_the_package_as_nobody(name: str) -> None:
    assert [each.words for each in of(name, "USER")] == [("65532:65532",)]
    (entry,) = of(name, "ENTRYPOINT")
    assert entry.is_exec
    scripts = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[2].partition("\n\n")[0]
    assert f"\n{entry.words[0]} = " in scripts


def test_the_lock_of_the_pool_has_what_its_service_needs_and_nothing_of_jupyter() -> None:
    assert {"cryptography", "prometheus-client", "nvidia-ml-py", "tomli"} <= locked("pool.txt")
    assert not (JUPYTER | {"kubernetes", "tornado"}) & locked("pool.txt")


def test_the_lock_of_the_kernel_has_nothing_of_the_services() -> None:
    assert locked("kernel.txt") >= JUPYTER
    assert not {"kubernetes", "prometheus-client", "jupyterlab"} & locked("kernel.txt")


def test_the_layer_on_a_notebook_image_changes_neither_its_user_nor_what_it_starts() -> None:
    for instruction in ("USER", "ENTRYPOINT", "CMD", "ENV", "WORKDIR", "EXPOSE"):
        assert of("notebook", instruction) == []
    assert [each.words for each in of("notebook", "RUN")] == [
        ("python3", "/opt/bitfusion-kernel/add_kernel.py"),
        ("bitfusion-kernel", "install", "--sys-prefix"),
    ]
    assert import_module("bitfusion_kernel.cli").main  # the console script's


@pytest.mark.parametrize("name", NAMES)
def test_what_is_copied_exists_and_is_all_that_is_sent(name: str) -> None:
    lines = (IMAGES / name / "Containerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {word for each in of(name, "COPY") if "from" not in each.flags for word in each.words[:-1]}
    assert all(any(path == part or path.startswith(f"{part}/") for part in sent) for path in copied)
    assert all(any(path == part or path.startswith(f"{part}/") for path in copied) for part in sent)
    for path in copied:
        assert path.startswith("dist/") or (ROOT / path).exists(), path
    assert "*" in lines


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_commands_of_a_document_name_what_there_is(document: Path) -> None:
    text = document.read_text().replace("\\\n", " ")
    # Files that the document itself has written are built by tests/cluster/test_guide_on_a_node.py.
    builds = [shlex.split(line) for line in re.findall(r"(?m)^(docker build -f manifests/.*)$", text)]
    assert builds
    for words in builds:
        file = Path(words[words.index("-f") + 1])
        assert (ROOT / file).is_file()
        assert (words[-1], words[words.index("-t") + 1].rpartition(":")[2]) == (".", "0.1.0")
        declared = arguments(parse((ROOT / file).read_text()))
        given = [words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--build-arg"]
        assert set(given) <= set(declared)


def test_the_readme_builds_every_image_under_the_name_that_the_manifests_use() -> None:
    text = (ROOT / "manifests" / "README.md").read_text()
    built = re.findall(r"-f manifests/images/([\w-]+)/Containerfile -t kubeflow-bitfusion/([\w-]+):", text)
    assert sorted(built) == [(name, name) for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_the_head_of_a_file_names_itself(name: str) -> None:
    head = (IMAGES / name / "Containerfile").read_text().partition("\nARG ")[0]
    assert f"-f manifests/images/{name}/Containerfile -t kubeflow-bitfusion/{name}:0.1.0" in head


AS_ROOT = {
    "device-plugin/base/daemon-set.yaml": "the folder of the kubelet is root's; no capability is needed",
    "samples/pool/pool.yaml": "Some provisioners make volumes that everybody may write to",
}


def test_no_image_is_roots_and_each_pod_that_is_says_why() -> None:
    for name in NAMES:
        users = [each.words for each in of(name, "USER")]
        assert users == ([] if name == "notebook" else [("65532:65532",)])
    manifests = ROOT / "manifests"
    texts = {path.relative_to(manifests).as_posix(): path.read_text() for path in manifests.rglob("*.yaml")}
    root = {name: text for name, text in texts.items() if re.search(r"(?m)^ *runAsUser: 0\b", text)}
    assert root.keys() == AS_ROOT.keys()
    assert all(AS_ROOT[name] in text for name, text in root.items())
