"""A pytest plugin: with ``--one-case=FOLDER``, of the cases of a test there that has several only one runs.

For tests that start programs, the long ones and those on another Python, where a case mostly fails as the
next one does. Which case it is differs from test to test, so that each value with which many tests are
parametrized is met.
"""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case",
        metavar="FOLDER",
        action="append",
        default=[],
        help="of each parametrized test in this folder run one case",
    )


@pytest.hookimpl(trylast=True)  # of the cases that -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folders = tuple(config.getoption("one_case"))
    chosen: dict[str, pytest.Item] = {}
    for item in sorted(items, key=lambda each: zlib.crc32(each.nodeid.encode())):
        name, _, _ = item.nodeid.partition("[")
        chosen.setdefault(name if name.startswith(folders) else item.nodeid, item)
    kept = set(chosen.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
