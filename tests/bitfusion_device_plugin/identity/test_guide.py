"""Access to the pool and its limits, as their pages have them, with the controller running."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bitfusion_pool.access.token_file import read_tokens
from tests.bitfusion_device_plugin.identity.running_identity import (
    RunningIdentity,
    running_identity,
    token_id,
)
from tests.cluster.cluster import Cluster
from tests.cluster.guide import ACCESS, NO_ACCESS, POOL, PROFILE, QUOTAS, Reader, blocks
from tests.manifests.installed import namespaces
from tests.support.waiting import wait_until


@pytest.fixture
def identity(cluster: Cluster) -> Iterator[RunningIdentity]:
    with ExitStack() as stack:
        stack.enter_context(namespaces(cluster, {"kubeflow": {}, PROFILE: {}}))
        yield stack.enter_context(running_identity(cluster, namespace="kubeflow"))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_namespace_is_opted_in_looked_at_and_opted_out(
    cluster: Cluster, identity: RunningIdentity, tmp_path: Path
) -> None:
    quota, limit_range, limits = blocks(QUOTAS)
    opt_in, look = blocks(ACCESS)
    (opt_out,) = blocks(NO_ACCESS)
    reader = Reader(cluster, tmp_path)
    shutil.copytree(identity.issuer, reader.folder / "cluster")
    reader.run(blocks(POOL)[-1])
    folder = str(reader.folder / "manifests/identity/kubeflow")
    cluster.kubectl("apply", "-k", folder)
    deployment = cluster.client.get("/apis/apps/v1/namespaces/kubeflow/deployments/bitfusion-identity")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    made = cluster.client.get(f"/api/v1/namespaces/kubeflow/secrets/{volume['secret']['secretName']}")
    assert set(made["data"]) == {"servers.conf", "client.yaml", "ca.crt"}
    reader.run(limits)
    reader.run(opt_in)
    identity.until_secret(PROFILE)
    assert "Limits: gpus 2, share 0.5." in identity.until_event(PROFILE, "Ready")
    reader.run(look)
    before = identity.until_secret(PROFILE)
    reader.run(quota)
    reader.run(limit_range)
    assert cluster.client.exists(f"/api/v1/namespaces/{PROFILE}/limitranges/bitfusion")
    identity.until_secret(PROFILE, but=token_id(before))
    tokens = read_tokens(str(identity.pool.folder)).all
    assert {one.limits.units for one in tokens if one.name == f"cluster/{PROFILE}"} == {150}
    assert f"cluster/{PROFILE}" in identity.names_in_force()
    reader.run(opt_out)
    wait_until(lambda: f"cluster/{PROFILE}" not in identity.names_in_force(), limit_s=30)
    cluster.kubectl("delete", "-k", folder, "--ignore-not-found")
