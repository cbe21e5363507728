"""Every overlay as `kubectl kustomize` builds it, once a run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.cluster.cluster import Cluster
from tests.manifests.built import OVERLAYS, Objects, build


@pytest.fixture(scope="session")
def overlays(cluster: Cluster) -> Mapping[str, Objects]:
    """The objects of every overlay by its name; kubectl is the cluster's, so that no other one is needed."""
    return {name: build(cluster, name) for name in OVERLAYS}
