"""Which program builds, and what is told when it fails; the whole command with one that builds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.tools.clones import clone
from tools.images import builders
from tools.images.builders import BuildFailed
from tools.images.plan import Step
from tools.images.wishes import Refused

DIGEST = "sha256:" + "0123456789abcdef" * 4
RUN = "import runpy, sys; sys.path.insert(0, '.'); runpy.run_module('tools.images', run_name='__main__')"
DOCKER = f"""#!{sys.executable} -IS
import json, os, sys
words = sys.argv[1:]
if words[0] == "version" or words[1] == "version":
    sys.exit()
with open(os.environ["SEEN"], "a") as file:
    print(json.dumps(words), file=file)
if "--metadata-file" in words:
    with open(words[words.index("--metadata-file") + 1], "w") as file:
        json.dump({{"containerimage.digest": "{DIGEST}"}}, file)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but for a shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").symlink_to("/usr/bin/git")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_the_first_that_answers_builds(programs: Path) -> None:
    with pytest.raises(Refused) as refused:
        builders.choose()
    assert str(refused.value) == (
        "No program here can build images (docker: not found; podman: not found; buildah: not found). "
        "Install docker with buildx, podman or buildah, or choose one: --builder docker|podman|buildah"
    )
    program(programs, "buildah", "exit 0")
    assert builders.choose() == "buildah"
    program(programs, "podman", "exit 0")
    assert builders.choose() == "podman"
    program(programs, "docker", "echo 'Cannot connect to the Docker daemon'; exit 1")
    assert builders.choose() == "podman"
    with pytest.raises(Refused, match=r"\(docker: Cannot connect to the Docker daemon\)"):
        builders.choose("docker")
    program(programs, "docker", "echo podman version 4")
    with pytest.raises(Refused, match="docker: it is podman under another name"):
        builders.choose("docker")
    program(programs, "docker", "exit 0")
    assert builders.choose() == "docker"
    assert builders.choose("buildah") == "buildah"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("exec /bin/sh: exec format error", "install qemu's user emulation"),
        ("ERROR: Multi-platform build is not supported for the docker driver.", "docker buildx create --use"),
        (
            "http: server gave HTTP response to HTTPS client",
            "If it is meant to be so: --insecure for your own",
        ),
        (
            "unauthorized: authentication required",
            "Log in with an account that may write there: podman login",
        ),
        ("denied: requested access to the resource is denied", "The registry a.b refused this."),
        ("dial tcp: lookup a.b: no such host", "look at REGISTRY"),
        ("whatever", ""),
    ],
)
def test_a_failure_is_told_with_what_to_do(said: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    steps = [Step(("/bin/sh", "-c", 'echo "$1"; exit 3', "sh", said))]
    with pytest.raises(BuildFailed) as failed:
        builders.run(steps, "podman", "a.b")
    assert str(failed.value).startswith("/bin/sh -c 'echo \"$1\"; exit 3' … ended with 3, see above.")
    assert told in str(failed.value)
    assert capfd.readouterr().out == f"{said}\n"


def test_a_file_that_may_not_be_written_is_no_registrys_refusal() -> None:
    for said in ("mkdir /var/lib/x: permission denied", "cp: cannot create 'a': Permission denied"):
        assert builders.hint_for(said, "podman", "a.b") == ""


def test_a_step_that_may_fail_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    builders.run([Step(("/bin/sh", "-c", "echo none; exit 1"), may_fail=True)], "podman", "a.b")
    assert capfd.readouterr().out == ""


def test_the_digest_is_read_as_docker_and_as_the_others_write_it(tmp_path: Path) -> None:
    file = tmp_path / "digest"
    for text in (DIGEST, json.dumps({"containerimage.digest": DIGEST, "x": 1})):
        file.write_text(text)
        assert builders.digest_in(file) == DIGEST
    for text in ("", "{}", "sha256:1"):
        file.write_text(text)
        with pytest.raises(BuildFailed, match="has not said which digest"):
            builders.digest_in(file)


def images(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_the_whole_command(programs: Path, tmp_path: Path) -> None:
    program(programs, "docker", DOCKER)
    program(programs, "syft", 'while [ "$1" != --output ]; do shift; done; echo {} > "${2#spdx-json=}"')
    folder, seen = clone(tmp_path / "clone"), tmp_path / "seen"
    digests = folder / "requirements" / "base-images.digests"
    digests.write_text(f"docker.io/library/debian:bookworm-slim {DIGEST}\n")
    given = {"REGISTRY": "127.0.0.1:1/team", "TAG": "a.b", "SEEN": str(seen)}
    done = images(folder, "--only", "client", "--", "--no-cache", **given)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (told,) = [json.loads(line) for line in seen.read_text().splitlines()]
    assert told[-2:] == ["--no-cache", "."]
    assert f"DEBIAN_IMAGE=docker.io/library/debian@{DIGEST}" in told
    assert done.stdout.startswith("· base images by tag, not by digest: 6; to pin them: ")  # all but debian's
    assert (
        "127.0.0.1:1/team/client:a.b: size unknown: 127.0.0.1:1/team/client: 127.0.0.1:1 does not"
        in done.stdout
    )
    assert "SBOM: build/sbom/client.spdx.json" in done.stdout
    assert (folder / "build" / "sbom" / "client.spdx.json").exists()
    # An image of another time stays in the lock.
    locked = (folder / "images.lock.yaml").read_text()
    assert yaml.safe_load(locked)["images"]["client"]["digest"] == DIGEST
    (folder / "images.lock.yaml").write_text(
        locked.replace("  client:", "  pool:").replace("/client", "/pool")
    )
    assert images(folder, "--only", "client", "--sbom", "none", **given).returncode == 0
    assert set(yaml.safe_load((folder / "images.lock.yaml").read_text())["images"]) == {"client", "pool"}
    component = yaml.safe_load((folder / "images-lock" / "kustomization.yaml").read_text())
    assert [each["name"] for each in component["images"]] == [
        "kubeflow-bitfusion/client",
        "kubeflow-bitfusion/pool",
    ]


FAILS_AT_THE_SECOND = (
    DOCKER
    + """
if "notebook" in words[words.index("--tag") + 1]:
    sys.exit("denied: no")
"""
)


def test_a_failure_half_way_says_what_is_done_and_how_to_go_on(programs: Path, tmp_path: Path) -> None:
    program(programs, "docker", FAILS_AT_THE_SECOND)
    folder = clone(tmp_path / "clone")
    for name in ("client", "notebook", "pool"):  # none of them wants the wheel, which is not built here
        (folder / "manifests" / "images" / name / "Containerfile.dockerignore").write_text("*\n")
    given = {"REGISTRY": "127.0.0.1:1/team", "SEEN": str(tmp_path / "seen")}
    done = images(folder, "--only", "client", "notebook", "pool", **given)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "· images.lock.yaml has client of this run, and what it had before of: notebook, pool. When the "
        "cause is gone: --only notebook pool"
    )
    assert done.stderr.endswith("docker login 127.0.0.1:1\n")
    assert set(yaml.safe_load((folder / "images.lock.yaml").read_text())["images"]) == {"client"}


@pytest.mark.parametrize(
    ("spoil", "status", "told"),
    [
        (lambda folder: (folder / "images.lock.yaml").write_bytes(b"\xff"), 2, "remove it, and build all"),
        (lambda folder: (folder / "images.lock.yaml").mkdir(), 1, "Is a directory"),
        (lambda folder: (folder / "images-lock").write_text(""), 1, "File exists"),
    ],
)
def test_a_lock_that_cannot_be_written_is_told_in_one_line(
    programs: Path, tmp_path: Path, spoil: Callable[[Path], object], status: int, told: str
) -> None:
    program(programs, "docker", DOCKER)
    folder, seen = clone(tmp_path / "clone"), tmp_path / "seen"
    spoil(folder)
    done = images(folder, "--only", "client", REGISTRY="127.0.0.1:1/team", SEEN=str(seen))
    assert done.returncode == status
    assert done.stderr.startswith("images: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
    assert not seen.exists(), "nothing is built that cannot be written down"


def test_an_interrupt_is_no_traceback(programs: Path, tmp_path: Path) -> None:
    program(
        programs,
        "docker",
        DOCKER.replace("with open(os.environ", "os.kill(os.getppid(), 2)\nwith open(os.environ"),
    )
    folder = clone(tmp_path / "clone")
    done = images(folder, "--only", "client", REGISTRY="127.0.0.1:1/team", SEEN=str(tmp_path / "seen"))
    assert (done.returncode, done.stderr) == (130, "")
    assert not (folder / "images.lock.yaml").exists()


@pytest.mark.parametrize("date", ["soon", "-1", "1.5", "9" * 30])
def test_a_date_that_is_none_is_told(programs: Path, date: str) -> None:
    done = images(Path(__file__).parents[2], "--no-push", "--dry-run", SOURCE_DATE_EPOCH=date)
    assert done.returncode == 2
    assert done.stderr.startswith(f"images: SOURCE_DATE_EPOCH='{date}' ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "REGISTRY is missing"),
        (("--registry", "a.b/c", "--platform", "x"), "PLATFORM='x' has 'x'"),
        (("--registry", "a.b/c", "--tag", "a b"), "TAG='a b' is not an image's tag"),
        (("--registry", "a.b/c", "--build-arg", "X=1"), "--build-arg 'X=1' is for none of these images"),
        (
            ("--no-push", "--platform", "linux/amd64,linux/arm64"),
            "Only a registry can keep several platforms",
        ),
        (("--registry", "a.b/c"), "No program here can build images"),
        (("--registry", "a.b/c", "--sbom", "syft", "--dry-run"), "syft was not found on PATH"),
        (("--registry", "a.b/c", "--sbom", "buildkit", "--dry-run", "--builder", "podman"), "is docker's"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(programs: Path, words: tuple[str, ...], told: str) -> None:
    done = images(Path(__file__).parents[2], *words)
    assert done.returncode == 2
    assert done.stderr.startswith("images: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
