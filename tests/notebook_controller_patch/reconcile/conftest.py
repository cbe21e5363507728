"""Fixtures of the reconciler's tests."""

from __future__ import annotations

import pytest

from tests.notebook_controller_patch.fake_api import FakeApi
from tests.notebook_controller_patch.reconcile.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """A clock for what waits."""
    return Clock()


@pytest.fixture
def api(api_server: FakeApi) -> FakeApi:
    """The API server that the reconciler works with."""
    return api_server
