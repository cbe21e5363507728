"""Every overlay as `kubectl kustomize` builds it, once a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.cluster.cluster import Cluster
from tests.manifests.built import OVERLAYS, Objects, build
from tests.manifests.judge import Judge, policy_in_force


@pytest.fixture(scope="session")
def overlays(cluster: Cluster) -> Mapping[str, Objects]:
    """The objects of every overlay by its name; kubectl is the cluster's, so that no other one is needed."""
    return {name: build(cluster, name) for name in OVERLAYS}


@pytest.fixture(scope="module")
def judge(cluster: Cluster) -> Iterator[Judge]:
    """The policy in force, and the webhook's words, for any Notebook."""
    with policy_in_force(cluster) as found:
        yield found
