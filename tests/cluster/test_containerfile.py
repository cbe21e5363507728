"""The language of Containerfiles as `containerfile` reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.containerfile import ContainerfileError, expand, is_sent, pairs, parse

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
WORKDIR /srv
EXPOSE 8443 8080/udp
LABEL a.b-c="d e"
ENTRYPOINT ["it"]
CMD ["--all"]
"""


def test_a_whole_file_is_read() -> None:
    file = parse(WHOLE)
    assert file.arguments == {"BASE": "python:3.11-slim", "OTHER": "python:3.11-slimx"}
    build, last = file.stages
    assert (build.base, build.name, build.line) == ("${BASE}", "build", 5)
    assert (last.base, last.name, last.line) == ("scratch", "", 13)
    venv, copy, run = build.instructions
    assert (venv.name, venv.words, venv.is_exec) == ("RUN", ("python3", "-m", "venv", "/opt/it"), True)
    assert copy.words == ("a.txt", "b c.txt", "/build/")
    assert copy.flags == {"chown": "1000:100", "chmod": "0755"}
    assert (run.line, run.words, run.is_exec) == (9, ('one  && two "$THREE"',), False)
    by_name = {each.name: each for each in last.instructions}
    assert by_name["COPY"].flags == {"from": "build"}
    assert pairs(by_name["ENV"]) == {"A": "1", "B": "two words", "C": "${A}"}
    assert pairs(by_name["LABEL"]) == {"a.b-c": "d e"}
    assert by_name["EXPOSE"].words == ("8443", "8080/udp")
    assert (by_name["ENTRYPOINT"].words, by_name["CMD"].words) == (("it",), ("--all",))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_files_of_this_project_are_read(path: Path) -> None:
    file = parse(path.read_text(), str(path))
    assert file.stages[-1].instructions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Containerfile: it has no FROM"),
        ("ARG A=1\n", "Containerfile: it has no FROM"),
        ("RUN x\nFROM y", "line 1: RUN stands before the first FROM"),
        ("FROM a\nADD x y", "line 2: ADD is not understood here, only ARG, CMD, COPY, ENTRYPOINT"),
        ("FROM a\nHEALTHCHECK CMD x", "line 2: HEALTHCHECK is not understood here"),
        ("FROM a\nRUN", "line 2: RUN needs something after it"),
        ("FROM a\nRUN --mount=type=cache x", "RUN --mount=type=cache is not understood here"),
        ("FROM --platform=x a", "line 1: FROM --platform=x is not understood here"),
        ("FROM a\nCOPY --link a b", "is not understood here; its options are --chmod=…, --chown=…, --f"),
        ("FROM a\nCOPY --chmod=u+x a b", "line 2: --chmod=u+x must be octal, like 755"),
        ("FROM a\nCOPY a", "line 2: COPY needs what is copied and where to"),
        ("FROM a\nRUN cat <<END\nEND", "line 2: here-documents are not understood here"),
        ("FROM a\nRUN ['a']", "line 2: RUN ['a'] is no JSON list of words; a word has double quotes"),
        ("FROM a\nCMD []", "line 2: CMD [] is no JSON list of words"),
        ("FROM a\nENV A 1", "line 2: ENV A: only NAME=VALUE is understood here"),
        ("FROM a\nENV A='1", "line 2: ENV A='1: No closing quotation"),
        ("FROM a\nUSER a b", "line 2: USER takes one word, not 2"),
        ("FROM a as", "line 1: FROM a as: only FROM IMAGE [AS NAME] is understood"),
        ("FROM a AS b\nFROM c AS b", "line 2: there are two stages called b"),
        ("FROM a\nRUN b \\", "line 2: the file ends after a line that is to be continued"),
        ("# syntax=docker/x\nFROM a", "line 1: the directive '# syntax=docker/x' is not understood here"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ContainerfileError) as told:
        parse(text)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A", "1"),
        ("${A}x", "1x"),
        ("$Ax", ""),
        ("${NONE:-d$A}", "d1"),
        ("${A:-d}", "1"),
        ("${EMPTY:-d}", "d"),
        ("${A:+yes}${NONE:+no}", "yes"),
        (r"\$A", "$A"),
        ("$", "$"),
        ("a$1", "a"),
        ("", ""),
    ],
)
def test_variables_are_put_in_as_docker_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "EMPTY": ""}) == expected


@given(st.text(alphabet="abc{}: -/.=", max_size=40))
def test_text_without_a_dollar_stays(text: str) -> None:
    assert expand(text, {"a": "x"}) == text


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        file = parse(text)
    except ContainerfileError:
        return
    assert file.stages


@given(st.text(alphabet='FROMRUNCPYAEV abc=$"\\\n[]#-', max_size=80))
def test_what_looks_like_a_file_is_read_or_refused(text: str) -> None:
    try:
        parse("FROM a\n" + text)
    except ContainerfileError:
        pass


@pytest.mark.parametrize(
    ("path", "lines", "sent"),
    [
        ("a", [], True),
        ("a", ["*"], False),
        ("a/b", ["*"], False),
        ("a/b", ["*", "!a/b"], True),
        ("a/c", ["*", "!a/b"], False),
        ("a/b/c", ["*", "!a/b"], True),
        ("dist/x-1.whl", ["*", "!dist/x-*.whl"], True),
        ("dist/x-1.zip", ["*", "!dist/x-*.whl"], False),
        ("a/b", ["# a", "", "a"], False),
        ("ab", ["a"], True),
        ("x/y/z.pyc", ["**/*.pyc"], False),
        ("a", ["a", "!a", "a"], False),
    ],
)
def test_what_is_sent_to_a_build(path: str, lines: list[str], sent: bool) -> None:
    assert is_sent(path, lines) is sent
