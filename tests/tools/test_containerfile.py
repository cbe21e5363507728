"""What `containerfile` finds in a Containerfile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.images.containerfile import arguments, bases, parse

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "manifests" / "images").glob("*/Containerfile"))

WHOLE = """\
# A comment
ARG BASE=python:3.11-slim
ARG OTHER=${BASE}x

FROM ${BASE} AS build
RUN ["python3", "-m", "venv", "/opt/it"]
COPY --chown=1000:100 --chmod=0755 a.txt "b c.txt" /build/
# between
RUN one \\
    # a comment between continued lines
 && two "$THREE"

from scratch
COPY --from=build /opt/it /opt/it
ENV A=1 \\
    B="two words" C=${A}
USER 65532:65532
LABEL a.b-c="d e"
ENTRYPOINT ["it"]
CMD [ -f it ] && it --all
"""


def test_a_whole_file_is_read() -> None:
    file = parse(WHOLE)
    assert [each.name for each in file[:5]] == ["ARG", "ARG", "FROM", "RUN", "COPY"]
    venv, copy, run = file[3:6]
    assert (venv.words, venv.is_exec) == (("python3", "-m", "venv", "/opt/it"), True)
    assert copy.words == ("a.txt", "b c.txt", "/build/")
    assert copy.flags == {"chown": "1000:100", "chmod": "0755"}
    assert (run.words, run.is_exec) == (('one  && two "$THREE"',), False)
    last = {each.name: each for each in file[6:]}
    assert last["COPY"].flags == {"from": "build"}
    assert last["ENV"].words == ("A=1", "B=two words", "C=${A}")
    assert last["LABEL"].words == ("a.b-c=d e",)
    assert (last["ENTRYPOINT"].words, last["CMD"].words) == (("it",), ("[ -f it ] && it --all",))
    assert arguments(file) == {"BASE": "python:3.11-slim", "OTHER": "python:3.11-slimx"}


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        (WHOLE, {}, ["python:3.11-slim"]),
        (WHOLE, {"BASE": "x"}, ["x"]),
        ("FROM a AS b\nFROM b\nFROM c", {}, ["a", "c"]),
        ("FROM ${NONE}", {}, ["${NONE}"]),
        ("ARG A=1\nFROM x:$A-y as b\nFROM b as c\nFROM c", {}, ["x:1-y"]),
    ],
)
def test_the_images_that_a_file_begins_with(text: str, given: dict[str, str], found: list[str]) -> None:
    assert bases(parse(text), given) == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_files_of_this_project_are_read(path: Path) -> None:
    file = parse(path.read_text())
    assert {each.name for each in file} >= {"ARG", "COPY", "FROM", "LABEL", "RUN"}
    assert all(":" in name and "$" not in name for name in bases(file, {}))
