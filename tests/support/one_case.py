"""A pytest plugin: with ``--one-case``, of the cases of a test that has several only one runs.

For the tests on another Python, where a case fails as the next one does. Which case it is differs from test
to test, so that each value with which many tests are parametrized is met.
"""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-case", action="store_true", help="run one case of each parametrized test")


@pytest.hookimpl(trylast=True)  # of the cases that -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("one_case"):
        return
    chosen: dict[str, pytest.Item] = {}
    for item in sorted(items, key=lambda each: zlib.crc32(each.nodeid.encode())):
        chosen.setdefault(item.nodeid.partition("[")[0], item)
    kept = set(chosen.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
