"""What the controller's tests share: an API server on loopback that can be told to misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook_controller_patch.fake_api import FakeApi, fake_api


@pytest.fixture
def api_server() -> Iterator[FakeApi]:
    """A fake API server without objects; `api_server.client()` makes the code's own client for it."""
    with fake_api() as server:
        yield server
