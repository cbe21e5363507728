"""Every block of commands in the documents is run by a test; what stands alone is known to its program."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise
from types import SimpleNamespace

import pytest

from bitfusion_kernel import cli as kernel_cli
from bitfusion_kernel.magic import commands as magic
from bitfusion_pool.admin import cli as pool_cli
from kubeflow_bitfusion import cli as form_cli
from tests.support.documents import ROOT, ReaderBlock, reader_blocks, reader_pages, words_in_code
from tests.support.run_blocks import named, pytest_pyfunc_call, ran

NOT_RUN = {
    "README.md#Two commands": "one runs this test; tests/test_foundation_demo.py has the other's notebook",
}
"""By place, as the mark `runs` has it, with the reason."""


def promised() -> dict[str, set[ReaderBlock]]:
    """What each test of the project runs, by its marks."""
    found = {}
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        if "mark.runs(" in file.read_text(encoding="utf-8"):
            name = file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            for test, function in vars(importlib.import_module(name)).items():
                if test.startswith("test_") and (blocks := named(marks_of(function))):
                    found[f"{name}.{test}"] = blocks
    return found


def marks_of(function: object) -> Iterator[pytest.Mark]:
    """Its own, and those of its cases."""
    for mark in getattr(function, "pytestmark", ()):
        yield mark
        if mark.name == "parametrize":
            for case in mark.args[1]:
                yield from getattr(case, "marks", ())


def test_every_block_of_the_documents_is_run() -> None:
    run = set().union(*promised().values())
    left = named([pytest.mark.runs(*NOT_RUN).mark])
    assert not run & left
    nobodys = [block for block in reader_blocks() if block not in run | left]
    assert not nobodys, (
        "mark the test that runs these with `runs` (tests/support/run_blocks.py):\n"
        + "\n".join(f"{block.page}#{block.heading}\n{block.commands}" for block in nobodys)
    )


def item(*places: str) -> SimpleNamespace:
    """A test that says it runs these."""
    return SimpleNamespace(iter_markers=lambda name: [pytest.mark.runs(*places).mark])


def test_a_test_that_does_not_run_what_it_names_fails() -> None:
    block = next(block for block in reader_blocks() if block.page == "docs/how-to/images.md")
    with pytest.raises(ValueError, match=r"no commands in docs/how-to/images.md#Nowhere"):
        named([pytest.mark.runs("docs/how-to/images.md#Nowhere").mark])
    for did, ends in (
        (block.commands.replace("make", "cake"), AssertionError),
        (block.commands, StopIteration),
    ):
        ran(did)
        call = pytest_pyfunc_call(item(f"{block.page}#{block.heading}"))  # type: ignore[arg-type]  # of a test only its marks are asked
        next(call)
        with pytest.raises(ends):
            call.send(None)


LANGUAGES = ("sh", "text", "yaml", "json", "toml", "python", "mermaid")
MAINS = {
    "bitfusion-kernel": kernel_cli.main,
    "bitfusion-pool": pool_cli.main,
    "kubeflow-bitfusion": form_cli.main,
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OF_MAKE = {
    *re.findall(r"(?m)^([a-z-]+):", MAKEFILE),
    *(f"{name}=" for name in re.findall(r"(?<=[ (])[A-Z_]+(?=[=) ])", MAKEFILE)),
}
"""Its targets and variables."""


@cache
def help_of(program: str, *command: str) -> str:
    """What `program command --help` prints."""
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        MAINS[program]([*command, "--help"])
    return printed.getvalue()


def beyond_help(program: str, words: Sequence[str]) -> list[str]:
    """Of the words after a program of ours the commands and options that are in no help of it."""
    command: list[str] = []
    wrong, told = [], help_of(program)
    for before, word in pairwise(("", *words)):
        if word.startswith("-"):
            wrong += [] if re.search(rf"{re.escape(word)}\b", told) else [word]
        elif before != "--dir" and re.search("(?m)^    [a-z]+(?: |$)", help_of(program, *command)):
            if not re.search(rf"(?m)^    {re.escape(word)}(?: |$)", help_of(program, *command)):
                return [*wrong, word]
            command.append(word)
            told += help_of(program, *command)
    return wrong


def unknown(line: str) -> list[str]:
    """The words of a command that its program does not know, as far as it is ours."""
    program, *words = line.removeprefix("!").split()
    if program in MAINS and words != ["…"]:
        return beyond_help(program, words)
    if program == "%bitfusion":
        magic.parse(" ".join(words))
    if program == "make":
        return [word for word in words if re.sub("=.*", "=", word) not in OF_MAKE]
    if words[:1] == ["-m"] and re.match("tools|benchmarks", words[1]):
        return [] if find_spec(words[1]) else words[1:2]
    paths = [word for word in words if re.match("(manifests|charts|examples|requirements)/", word)]
    return [path for path in paths if not (ROOT / path).exists()]


def test_a_single_command_is_one_that_its_program_knows() -> None:
    lines = [(page, line) for page, text in reader_pages() for line in words_in_code(text)]
    assert {f"{page}: {line}": wrong for page, line in lines if (wrong := unknown(line))} == {}


def test_no_command_stands_in_another_kind_of_block() -> None:
    for page, text in reader_pages():
        for language, block in re.findall(r"(?ms)^ *```([^\n]*)\n(.*?)^ *```", text):
            assert language in LANGUAGES, page
            assert language == "sh" or not re.search(r"(?m)^ *\$ ", block), page


@pytest.mark.parametrize(
    "line",
    [
        *(
            "bitfusion-kernel instal --user",
            "bitfusion-kernel install --users",
            "bitfusion-pool --dirs x status",
        ),
        *(
            "bitfusion-pool --dir x reap --all",
            "bitfusion-pool certificate renewed",
            "kubeflow-bitfusion doktor",
        ),
        *("make image REGISTRY=x", "make images REGISTRIES=x", "python3 -m tools.image --pin"),
        "kubectl apply -f manifests/samples/alert.yaml",
    ],
)
def test_what_a_program_does_not_know_is_seen(line: str) -> None:
    assert unknown(line)
