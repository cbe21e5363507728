"""Every command that the documents have people run is run by a test, or says here why not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.support.documents import ROOT, ShellBlock, reader_blocks
from tests.support.run_blocks import named, pytest_pyfunc_call, ran

NOT_RUN = {
    "README.md#Two commands": "one runs this test; tests/test_foundation_demo.py has the other's notebook",
}
"""By place, as the mark `runs` has it, with the reason."""


def promised() -> dict[str, set[ShellBlock]]:
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
        call = pytest_pyfunc_call(item(f"{block.page}#{block.heading}"))  # type: ignore[arg-type]
        next(call)
        with pytest.raises(ends):
            call.send(None)
