"""A pytest plugin: which commands of the documents a test runs.

A test says so by its mark, `runs("docs/how-to/images.md", "docs/how-to/install.md#With helm")`: all
blocks of a page, or those under a heading; of these `"docs/how-to/install.md#With helm#helm template"` names
what begins so. Whoever gives a page's commands to a shell calls `ran` with them. A test fails if it names a
block that was not run when it ends well, by itself or, in its file, by a fixture or a test before.
tests/test_docs_commands.py asks whether every block is named.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pytest

from tests.support.documents import ReaderBlock, reader_blocks

_ran: set[ReaderBlock] = set()


def ran(commands: str) -> None:
    """Every block of the documents that stands in these commands has been run; of a file: written."""
    _ran.update(block for block in reader_blocks() if block.commands.strip() in commands)


def named(marks: Iterable[pytest.Mark]) -> set[ReaderBlock]:
    """The blocks that `runs` names. Raises ValueError for a place without any."""
    found: set[ReaderBlock] = set()
    for place in (str(place) for mark in marks if mark.name == "runs" for place in mark.args):
        page, heading, begin = (*place.split("#", 2), "", "")[:3]
        there = {
            block
            for block in reader_blocks()
            if block.page == page and heading in ("", block.heading) and block.commands.startswith(begin)
        }
        if not there:
            raise ValueError(f"no commands in {place}")
        found |= there
    return found


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Each file begins anew."""
    if nextitem is None or nextitem.path != item.path:
        _ran.clear()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """After the test itself; an exception of it goes its way."""
    result = yield
    missing = sorted(named(pyfuncitem.iter_markers("runs")) - _ran)
    assert not missing, "named by `runs`, and not run:\n" + "\n".join(
        f"{block.page}#{block.heading}\n{block.commands}" for block in missing
    )
    return result
