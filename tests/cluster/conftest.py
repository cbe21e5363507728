"""Everything of ours on the test node, for the tests of a file, and a user of it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.installation import Installation, User, installed
from tests.cluster.node import Node


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[Installation]:
    """All that the manifests install, with a pool; each module has its own, since tests change it."""
    with installed(node) as found:
        yield found


@pytest.fixture
def user(installation: Installation) -> Iterator[User]:
    """A user's namespace, opted in, whose token is there."""
    with installation.user() as found:
        yield found
