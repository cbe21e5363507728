"""Building Containerfiles without docker: what each instruction does, and what a failure says."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.base_images import base_image
from tests.cluster.image_builder import BuildFailed, build
from tests.cluster.image_files import BuiltImage, why_no_images
from tests.cluster.image_run import run, running
from tests.support.waiting import wait_until

Build = Callable[..., BuiltImage]
BASE = "FROM debian:bookworm-slim\n"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("images")]


@pytest.fixture
def built(tmp_path: Path) -> Build:
    """Builds a Containerfile from its text, in a folder with `a.txt` and `folder/b.txt`."""
    reason = why_no_images()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "folder").mkdir()
    for name in ("a.txt", "folder/b.txt", "folder/left.pyc"):
        (tmp_path / name).write_text(name)

    def make(text: str, ignore: str = "", **more: Any) -> BuiltImage:
        (tmp_path / "Containerfile").write_text(text)
        (tmp_path / "Containerfile.dockerignore").write_text(ignore)
        return build(tmp_path / "Containerfile", tmp_path, "a/b:1", base_image, **more)

    return make


def test_a_program_sees_the_image_its_user_and_its_variables(built: Build) -> None:
    image = built(
        "ARG WHAT=one\n" + BASE + "ARG WHAT\nARG MORE=${WHAT}2\n"
        "ENV A=${WHAT} B=${MORE}\n"
        'RUN useradd --uid 1234 --no-user-group ada && echo "$A $B" > /said\n'
        "USER ada\nWORKDIR /work/here\nEXPOSE 80 81/udp\n"
        'LABEL a="b c"\nENTRYPOINT ["/bin/sh", "-c"]\nCMD ["id -un; pwd; cat /said; echo $A; echo $HOME"]\n',
        arguments={"WHAT": "three"},
    )
    assert image.config["ExposedPorts"] == {"80/tcp": {}, "81/udp": {}}
    assert image.config["Labels"]["a"] == "b c"
    assert run(image).stdout.splitlines() == ["ada", "/work/here", "three three2", "three", "/home/ada"]


def test_files_are_copied_with_owner_and_mode_and_without_what_is_ignored(built: Build) -> None:
    image = built(
        BASE + "COPY --chown=7:8 --chmod=640 a.txt /one\nCOPY a.txt folder/*.txt /many/\nCOPY folder /whole\n"
        "FROM scratch\nCOPY --from=0 /many /many\nCOPY --from=0 --chmod=755 /one /bin/one\n",
        ignore="*\n!a.txt\n!folder\n**/*.pyc\n",
    )
    assert set(image.files()) == {"many/a.txt", "many/b.txt", "bin/one"}
    whole = built(BASE + "COPY --chown=7:8 --chmod=640 a.txt /one\nCOPY folder /whole\n", ignore="**/*.pyc")
    shown = run(whole, ["stat", "-c", "%u:%g %a", "/one", "/whole/b.txt"]).stdout
    assert shown == "7:8 640\n0:0 644\n"
    assert run(whole, ["ls", "/whole"]).stdout == "b.txt\n"


def test_what_an_instruction_removes_is_removed_for_a_runtime_too(built: Build, tmp_path: Path) -> None:
    image = built(BASE + "RUN rm -r /etc/issue /usr/share/perl5\nRUN mkdir /usr/share/perl5\n")
    image.write_archive(tmp_path / "image.tar", "a/b:1")
    names = []
    with tarfile.open(tmp_path / "image.tar") as archive:
        (told,) = json.load(archive.extractfile("manifest.json") or pytest.fail("no list"))
        config = json.load(archive.extractfile(told["Config"]) or pytest.fail("no file"))["config"]
        for layer in told["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as tar:
                names.append(set(tar.getnames()))
    assert (told["RepoTags"], config["Cmd"]) == (["docker.io/a/b:1"], ["bash"])
    assert {"etc/.wh.issue", "usr/share/.wh.perl5"} <= names[-2]
    assert "usr/share/perl5" in {name.strip("/") for name in names[-1]}
    assert run(image, ["ls", "/usr/share/perl5"]).stdout == ""
    assert len(names) == len(image.layers)


def test_nothing_of_this_machine_gets_into_an_image(built: Build) -> None:
    image = built(BASE + "RUN env > /tmp/env; ls /dev/build > /tmp/seen; cat /etc/resolv.conf > /dev/null\n")
    assert "APT_CONFIG" in (image.layers[-1] / "tmp" / "env").read_text()
    assert json.dumps(image.config).count("/dev/build") == 0
    shown = run(
        image, ["sh", "-c", "cat /etc/resolv.conf /etc/hostname /etc/apt/sources.list; ls /dev/build"]
    )
    assert shown.stdout == ""
    assert not [path for path in image.files() if path.startswith(("dev/", "run/.", "sys/", "proc/"))]


def test_only_what_comes_after_a_change_is_built_again(built: Build, tmp_path: Path) -> None:
    text = BASE + "RUN echo first\nCOPY a.txt /a\nRUN echo second\n"
    before = built(text)
    told: list[str] = []
    (tmp_path / "a.txt").write_text(f"another {tmp_path}")
    after = built(text, say=told.append)
    same = [layer == other for layer, other in zip(before.layers, after.layers, strict=True)]
    assert same == [True] * (len(same) - 2) + [False, False]
    assert told == [f"images: a/b:1 from {tmp_path}/Containerfile …"]
    assert built(text, say=told.append).layers == after.layers
    assert len(told) == 1


def test_a_command_that_fails_is_told_with_its_last_words(built: Build) -> None:
    with pytest.raises(BuildFailed) as told:
        built(BASE + "RUN true\nRUN echo so far; echo that was it >&2; exit 3\n")
    first, *rest = str(told.value).splitlines()
    step = 'Containerfile: building at STEP "RUN echo so far; echo that was it >&2; exit 3": '
    assert first.endswith(f"{step}while running runtime: exit status 3")
    assert sorted(rest) == ["so far", "that was it"]  # what goes to stdout and stderr comes by two ways


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM nobody/knows:1\n", "nothing stands for the image nobody/knows:1 here; known are"),
        (BASE + "COPY none.txt /x\n", 'building at STEP "COPY none.txt /x": checking on sources under '),
        (BASE + "COPY --from=no /x /x\n", "COPY --from=no: no stage or image found with that name"),
        (BASE + "USER grace\nRUN true\n", 'building at STEP "RUN true": determining run uid: user: unknown'),
        (BASE + "FROB x\n", 'Unknown instruction: "FROB"'),
    ],
)
def test_what_cannot_be_built_is_told(built: Build, text: str, words: str) -> None:
    with pytest.raises(BuildFailed) as told:
        built(text)
    assert words in str(told.value)


def test_an_argument_that_the_file_has_not_is_told(built: Build) -> None:
    with pytest.raises(BuildFailed, match="it has no ARG OTHER"):
        built(BASE, arguments={"OTHER": "1"})


def test_a_program_ends_with_the_block_that_started_it(built: Build) -> None:
    with running(built(BASE), ["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]) as program:
        wait_until(lambda: program.log.read_text() == "up\n")
        pid = program.pid()
    assert not Path(f"/proc/{pid}").exists()
