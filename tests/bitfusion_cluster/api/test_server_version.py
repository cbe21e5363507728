"""What an API server says that it is, and whether its pods can wait at a gate."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.server_version import (
    knows_gates,
    parsed_version,
    server_version,
)
from tests.bitfusion_cluster.fake_api import FakeApi
from tests.bitfusion_cluster.faults import answered


@pytest.mark.parametrize(
    ("major", "minor", "version", "gates"),
    [
        ("1", "20", (1, 20), False),
        ("1", "26", (1, 26), False),
        ("1", "26+", (1, 26), False),  # as managed clusters write it
        ("1", "27", (1, 27), True),
        ("1", "34", (1, 34), True),
        ("1", "100", (1, 100), True),
        ("2", "0", (2, 0), True),
        ("", "", None, True),  # a server that was built without its version
        (None, None, None, True),
        ({}, ["27"], None, True),
        ("one", "27", None, True),
        ("9" * 100, "9" * 100, (9999, 9999), True),
    ],
)
def test_versions(major: Any, minor: Any, version: Any, gates: bool) -> None:
    found = parsed_version({"major": major, "minor": minor})
    assert (found, knows_gates(found)) == (version, gates)


def test_a_server_is_asked_at_its_public_path(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(answered({"major": "1", "minor": "29+"}), path="/version")
    assert server_version(api) == (1, 29)
    assert [request.path for request in server.requests] == ["/version"]
