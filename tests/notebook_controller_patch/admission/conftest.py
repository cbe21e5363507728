"""Fixtures of the admission tests: a server with a certificate of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_cluster.notebooks import owners
from tests.notebook_controller_patch.admission.live_server import Live, server_context, write_certificate
from tests.support.machine import scaled


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of a certificate and its key, for localhost."""
    return write_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def live(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Live:
    """A server to be started with ``async with serving(live)``; on a busy machine it looks up for longer."""
    monkeypatch.setattr(owners, "LONGEST_LOOKUP", scaled(10))
    return Live(server_context(*certificate))
