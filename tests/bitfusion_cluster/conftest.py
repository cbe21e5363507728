"""What tests of programs in a cluster share: an API server that can be told to misbehave, a clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bitfusion_cluster.fake_api import FakeApi, fake_api
from tests.bitfusion_cluster.watching.clock import Clock


@pytest.fixture
def api_server() -> Iterator[FakeApi]:
    """A fake API server without objects; `api_server.client()` makes the code's own client for it."""
    with fake_api() as server:
        yield server


@pytest.fixture
def api(api_server: FakeApi) -> FakeApi:
    """The API server that the code works with."""
    return api_server


@pytest.fixture
def clock() -> Clock:
    """A clock for what waits."""
    return Clock()
