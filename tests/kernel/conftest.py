"""Proxies for the tests of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.proxy_harness import ProxyHarness, StartProxy


@pytest.fixture
def proxy() -> Iterator[StartProxy]:
    """Starts proxies, and closes them at the end of the test."""
    started: list[ProxyHarness] = []

    def start(*args: Any, **options: Any) -> ProxyHarness:
        started.append(ProxyHarness(*args, **options))
        return started[-1]

    yield start
    for harness in started:
        harness.close()
