"""What kustomize makes of an engine with switches, each once a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.support.objects import objects_of
from tools.chart import builder

Objects = list[dict[str, Any]]
Built = Callable[..., Objects]


@pytest.fixture(scope="session")
def built(cluster: Cluster) -> Iterator[Built]:
    """`built(engine, switch, …)`: copies, which a test may change."""
    with builder(cluster.binaries.path("kubectl")) as build:

        @lru_cache(None)
        def once(engine: str, *switches: str) -> Objects:
            return objects_of(build(engine, switches))

        yield lambda engine, *switches: copy.deepcopy(once(engine, *switches))
