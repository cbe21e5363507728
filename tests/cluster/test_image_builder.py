"""Building Containerfiles without docker: what each instruction does, and what a failure says."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.base_images import base_image
from tests.cluster.containerfile import ContainerfileError
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
    assert image.config["Labels"] == {"a": "b c"}
    assert run(image).stdout.splitlines() == ["ada", "/work/here", "three three2", "three", "/home/ada"]


def test_files_are_copied_with_owner_and_mode_and_without_what_is_ignored(built: Build) -> None:
    image = built(
        BASE + "COPY --chown=7:8 --chmod=640 a.txt /one\nCOPY a.txt folder/*.txt /many/\nCOPY folder /whole\n"
        "FROM scratch\nCOPY --from=0 /many /many\nCOPY --from=0 --chmod=755 /one /bin/one\n",
        ignore="*\n!a.txt\n!folder\n**/*.pyc\n",
    )
    files = {str(path.relative_to(layer.files)) for layer in image.layers for path in layer.files.rglob("*")}
    assert files == {"many", "many/a.txt", "many/b.txt", "bin", "bin/one"}
    whole = built(BASE + "COPY --chown=7:8 --chmod=640 a.txt /one\nCOPY folder /whole\n", ignore="**/*.pyc")
    shown = run(whole, ["stat", "-c", "%u:%g %a", "/one", "/whole/b.txt"]).stdout
    assert shown == "7:8 640\n0:0 644\n"
    assert run(whole, ["ls", "/whole"]).stdout == "b.txt\n"


def test_what_an_instruction_removes_is_removed_for_a_runtime_too(built: Build) -> None:
    image = built(BASE + "RUN rm -r /etc/hostname /usr/share/perl5\nRUN mkdir /usr/share/perl5\n")
    names = []
    for layer in image.layers:
        with tarfile.open(layer.archive().file) as tar:
            names.append(set(tar.getnames()))
    assert {"etc/.wh.hostname", "usr/share/.wh.perl5"} <= names[1]
    assert "usr/share/perl5" in names[2]
    assert run(image, ["ls", "/usr/share/perl5"]).stdout == ""
    node = image.for_a_node()
    assert len(node.layers) == len(image.layers)
    assert node.config()["config"]["Cmd"] == ["bash"]


def test_nothing_of_this_machine_gets_into_an_image(built: Build) -> None:
    image = built(BASE + "RUN env > /tmp/env; ls /dev/build > /tmp/seen; cat /etc/resolv.conf > /dev/null\n")
    assert "APT_CONFIG" in (image.layers[-1].files / "tmp" / "env").read_text()
    assert json.dumps(image.config).count("/dev/build") == 0
    shown = run(
        image, ["sh", "-c", "cat /etc/resolv.conf /etc/hostname /etc/apt/sources.list; ls /dev/build"]
    )
    assert shown.stdout == ""
    for layer in image.layers:
        assert not list((layer.files / "dev").glob("*"))


def test_only_what_comes_after_a_change_is_built_again(built: Build, tmp_path: Path) -> None:
    text = BASE + "RUN echo first\nCOPY a.txt /a\nRUN echo second\n"
    before = built(text)
    told: list[str] = []
    (tmp_path / "a.txt").write_text(f"another {tmp_path}")
    after = built(text, say=told.append)
    assert [layer == other for layer, other in zip(before.layers, after.layers, strict=True)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert [line.rpartition(": ")[2] for line in told] == ["RUN echo second …"]
    assert after.layers[-1].output == "second\n"


def test_a_command_that_fails_is_told_with_its_line_and_its_last_words(built: Build) -> None:
    with pytest.raises(BuildFailed) as told:
        built(BASE + "RUN true\nRUN echo so far; echo that was it >&2; exit 3\n")
    first, *rest = str(told.value).splitlines()
    assert first.endswith("line 3: RUN echo so far; echo that was it >&2; exit 3: it ended with 3")
    assert rest == ["so far", "that was it"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM nobody/knows:1\n", "nothing stands for the image nobody/knows:1 here; known are"),
        (BASE + "COPY none.txt /x\n", "line 2: there is no none.txt in "),
        (BASE + "COPY ../x /x\n", "line 2: ../x lies outside of the build's folder"),
        (BASE + "COPY a.txt folder/b.txt /x\n", "line 2: several files are copied, so /x must end in /"),
        (BASE + "COPY --from=no /x /x\n", "line 2: --from=no: stages before it are none"),
        (BASE + "COPY --chown=nobody-knows a.txt /x\n", "--chown=nobody-knows: the image knows no such name"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_told(built: Build, text: str, words: str) -> None:
    with pytest.raises(ContainerfileError) as told:
        built(text)
    assert words in str(told.value)


def test_an_argument_that_the_file_has_not_is_told(built: Build) -> None:
    with pytest.raises(ContainerfileError, match="it has no ARG OTHER"):
        built(BASE, arguments={"OTHER": "1"})


def test_a_user_that_the_image_knows_not_is_told(built: Build) -> None:
    with pytest.raises(BuildFailed, match="the image knows no user grace"):
        built(BASE + "USER grace\nRUN true\n")


def test_a_program_ends_with_the_block_that_started_it(built: Build) -> None:
    with running(built(BASE), ["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]) as program:
        wait_until(lambda: program.log.read_text() == "up\n")
        pid = program.pid()
    assert not Path(f"/proc/{pid}").exists()
