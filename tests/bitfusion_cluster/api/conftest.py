"""Fixtures: a fake API server, a client for it, a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from tests.bitfusion_cluster.fake_api import FakeApi
from tests.support.certificates import certified


@pytest.fixture
def server(api_server: FakeApi) -> FakeApi:
    """An API server that can be told to misbehave."""
    return api_server


@pytest.fixture
def api(server: FakeApi) -> Iterator[KubernetesApi]:
    """A client for it."""
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, as files."""
    return certified("test", ["127.0.0.1"], authority=True).write(tmp_path)
