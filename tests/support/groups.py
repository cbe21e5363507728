"""A pytest plugin: with workers, the tests of one `xdist_group` run in one of them, one after another.

pytest-xdist's own ``--dist=loadgroup`` writes the group into the test's id. pytest 9.2 ignores that, and the
groups with it, without a word. Here each worker writes the groups of its tests into a file in its place, and
the scheduler reads one of these files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.place import current_place

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

FILE = "groups.json"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker: write the groups before xdist tells the scheduler of the tests."""
    if hasattr(session.config, "workerinput"):
        groups = {item.nodeid: group for item in session.items if (group := group_of(item))}
        (current_place().root / FILE).write_text(json.dumps(groups))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """In the process that starts the workers: a scheduler that knows the groups."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # has no type information
        """Hands out groups; a test without one is a group of its own."""

        groups: dict[str, str] | None = None

        def schedule(self) -> None:
            if self.groups is None:
                self.groups = read_groups(current_place().root)
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            assert self.groups is not None
            return self.groups.get(nodeid, nodeid)

    return GroupScheduling(config, log)


def group_of(item: pytest.Item) -> str:
    """The name of the group; empty if the test is in none."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""


def read_groups(root: Path) -> dict[str, str]:
    """What the workers, which all have the same tests, have written into their places."""
    file = min(root.glob(f"*/{FILE}"))
    groups: dict[str, Any] = json.loads(file.read_text())
    return groups
