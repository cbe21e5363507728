"""A ServiceAccount's files, as a pod finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes.config.incluster_config import InClusterConfigLoader

from bitfusion_cluster.api import client as client_module
from tests.bitfusion_cluster.fake_api import FakeApi


def in_cluster(monkeypatch: pytest.MonkeyPatch, server: FakeApi, folder: Path, ca: Path) -> Path:
    """Let `load()` find a ServiceAccount in `folder`; the path of its token."""
    token = folder / "token"
    token.write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    loader: Any = InClusterConfigLoader  # not annotated
    # the client's function, with other paths
    monkeypatch.setattr(
        client_module,
        "load_incluster_config",
        lambda configuration: loader(str(token), str(ca)).load_and_set(configuration),
    )
    return token
