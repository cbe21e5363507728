"""The commands for each builder, as lists of words, and the bases in them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.checkout import Checkout
from tools.images import bases, plan
from tools.images.containerfile import arguments, parse
from tools.images.plan import How, Order, steps
from tools.images.wishes import NAMES, Refused

ROOT = Path(__file__).parents[2]
ORDER = Order(
    "pool",
    "registry.example.com/team/pool",
    "0.1.0",
    ("linux/amd64",),
    {"PYTHON_IMAGE": "docker.io/library/python@sha256:1"},
    {"org.opencontainers.image.version": "0.1.0"},
    7,
)
FILE = ("--file", "manifests/images/pool/Containerfile")
BASE = ("--build-arg", "PYTHON_IMAGE=docker.io/library/python@sha256:1")
LABEL = ("--label", "org.opencontainers.image.version=0.1.0")
NAME = "registry.example.com/team/pool:0.1.0"
BOTH = replace(ORDER, platforms=("linux/amd64", "linux/arm64"))


def words(order: Order, how: How) -> list[tuple[str, ...]]:
    return [step.argv for step in steps(order, how, "digest")]


def test_docker_builds_and_pushes_all_platforms_at_once() -> None:
    (argv,) = words(BOTH, How("docker", more=("--no-cache",)))
    assert argv == (
        *("docker", "buildx", "build", "--tag", NAME, "--platform", "linux/amd64,linux/arm64", *FILE, *BASE),
        *("--build-arg", "SOURCE_DATE_EPOCH=7", *LABEL),
        *("--output", "type=image,push=true", "--metadata-file", "digest", "--no-cache", "."),
    )


def test_docker_leaves_an_image_that_is_not_pushed_with_its_daemon() -> None:
    (argv,) = words(ORDER, How("docker", push=False))
    assert "--load" in argv
    assert not {"--output", "--metadata-file"} & set(argv)


def test_docker_by_request_attaches_an_sbom_and_speaks_without_tls() -> None:
    (argv,) = words(ORDER, How("docker", insecure=True, sbom=True))
    assert argv[argv.index("--attest") :][:2] == ("--attest", "type=sbom")
    assert "type=image,push=true,registry.insecure=true" in argv


@pytest.mark.parametrize("program", ["podman", "buildah"])
def test_one_platform_is_an_image_and_a_push(program: str) -> None:
    build, push = words(ORDER, How(program, insecure=True))
    assert build == (
        *(program, "build", "--layers", "--format", "oci", "--timestamp", "7"),
        *("--ignorefile", "manifests/images/pool/Containerfile.dockerignore", *FILE, *BASE, *LABEL),
        *("--platform", "linux/amd64", "--tag", NAME, "."),
    )
    assert push == (program, "push", "--digestfile", "digest", "--tls-verify=false", NAME, f"docker://{NAME}")
    assert words(ORDER, How(program, push=False)) == [build]


@pytest.mark.parametrize("program", ["podman", "buildah"])
def test_several_platforms_are_a_list_without_the_images_of_an_earlier_one(program: str) -> None:
    several = "localhost/kubeflow-bitfusion/pool-platforms:0.1.0"
    found = steps(BOTH, How(program, more=("--quiet",)), "digest")
    assert [step.may_fail for step in found] == [True, False, False]
    remove, build, push = (step.argv for step in found)
    assert remove == (program, "manifest", "rm", several)
    platforms = ("--platform", "linux/amd64,linux/arm64")
    assert build[-7:] == (*platforms, "--no-cache", "--manifest", several, "--quiet", ".")
    assert push == (
        *(program, "manifest", "push", "--all", "--digestfile", "digest"),
        *(several, f"docker://{NAME}"),
    )


def test_this_machines_platform_is_not_named() -> None:
    for program in plan.PROGRAMS:
        assert "--platform" not in words(replace(ORDER, platforms=()), How(program))[0]


def test_labels_say_what_is_known() -> None:
    known = Checkout("0.1.0", 1700000000, "abc-dirty", "https://example.com/a")
    assert plan.labels(known, "v2") == {
        "org.opencontainers.image.version": "v2",
        "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
        "org.opencontainers.image.revision": "abc-dirty",
        "org.opencontainers.image.source": "https://example.com/a",
    }
    assert set(plan.labels(Checkout("0.1.0", 0), "1")) == {
        "org.opencontainers.image.version",
        "org.opencontainers.image.created",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_base_of_our_images_can_be_pinned(name: str) -> None:
    file = parse((ROOT / plan.containerfile(name)).read_text())
    begins_with = {each.words[0] for each in file if each.name == "FROM"}
    stages = {each.words[-1] for each in file if each.name == "FROM" and len(each.words) > 1}
    known = {f"${{{argument}}}" for argument in bases.in_file(arguments(file))}
    assert begins_with - stages - {"scratch"} == known


def test_our_images_are_those_that_have_a_containerfile() -> None:
    assert sorted(NAMES) == sorted(path.name for path in (ROOT / "manifests" / "images").iterdir())


def test_a_base_is_pinned_by_its_own_digest_alone() -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    found = {"A_IMAGE": "a.b:5000/c:1", "B_IMAGE": "a.b:5000/d", "C_IMAGE": f"a/e@{digest}"}
    assert bases.pinned(found, {"a.b:5000/c:1": digest}) == {"A_IMAGE": f"a.b:5000/c@{digest}"}
    assert bases.pinned(found, {"a.b:5000/d": digest}) == {"B_IMAGE": f"a.b:5000/d@{digest}"}
    assert bases.parse(bases.text({"a:1": digest, "b:2": digest})) == {"a:1": digest, "b:2": digest}
    for line in ("a:1", f"a:1 {digest} x", "a:1 sha256:12"):
        with pytest.raises(Refused, match=r"has the line .* Renew it: python3 -m tools.images --pin"):
            bases.parse(f"# x\n{line}\n")


def test_a_mirror_is_a_base_of_every_python() -> None:
    file = parse((ROOT / plan.containerfile("client")).read_text())
    found = bases.in_file(arguments(file, {"PYTHON_REPOSITORY": "mirror.example.com/python"}))
    pythons = [value for name, value in found.items() if name.startswith("PYTHON")]
    assert len(pythons) == 6
    assert all(value.startswith("mirror.example.com/python:3.1") for value in pythons)


def test_what_would_be_done_is_printed_and_nothing_is_done() -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _RUN,
        "--dry-run",
        "--builder",
        "buildah",
        "--only",
        "client",
    ]
    done = subprocess.run(
        [*command, "--registry", "registry.example.com/team", "--tag", "1"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    build, push = [line for line in done.stdout.splitlines() if not line.startswith("· ")]
    assert build.startswith("buildah build --layers --format oci --timestamp ")
    assert push.startswith("buildah push --digestfile ")
    assert not (ROOT / "build" / "client.digest").exists()


_RUN = "import runpy, sys; sys.path.insert(0, '.'); runpy.run_module('tools.images', run_name='__main__')"
