"""Access to the pool and its limits, as their pages have them, with the controller running."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from bitfusion_pool.access.token_file import read_tokens
from tests.bitfusion_device_plugin.identity.running_identity import (
    RunningIdentity,
    running_identity,
    token_id,
)
from tests.cluster.cluster import Cluster
from tests.cluster.guide import (
    ACCESS,
    DOCS,
    NO_ACCESS,
    POOL,
    POOL_INSTALL,
    PROFILE,
    QUOTAS,
    Reader,
    blocks,
    places,
)
from tests.cluster.notebooks import PROFILE as PROFILE_LABELS
from tests.kubeflow_bitfusion.installed_cluster import no_other_profiles
from tests.manifests.installed import namespaces
from tests.support.waiting import wait_until


@pytest.fixture
def identity(cluster: Cluster) -> Iterator[RunningIdentity]:
    with ExitStack() as stack:
        stack.enter_context(namespaces(cluster, {"kubeflow": {}, PROFILE: {}}))
        yield stack.enter_context(running_identity(cluster, namespace="kubeflow"))


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.runs(*places(ACCESS, NO_ACCESS, QUOTAS))
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


EVERY_PAGE = DOCS / "how-to" / "every-profile.md"


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.runs("docs/how-to/every-profile.md")
def test_every_profile_is_served_one_opts_out_and_all_is_undone(cluster: Cluster, tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(no_other_profiles(cluster))
        stack.enter_context(namespaces(cluster, {"kubeflow": {}, PROFILE: PROFILE_LABELS, "team-speech": {}}))
        label = "=".join(*PROFILE_LABELS.items())
        identity = stack.enter_context(running_identity(cluster, namespace="kubeflow", profiles=label))
        reader = Reader(cluster, tmp_path)
        stack.callback(reader.shell, "kubectl delete --ignore-not-found -k my-bitfusion")
        stack.enter_context(cluster.node_stub(schedulable=lambda pod: True))
        reader.run(blocks(POOL_INSTALL)[0])
        components, apply, which, why, opt_out, label_only, opt_in, limits, rights, undo = blocks(
            page=EVERY_PAGE
        )
        reader.run(components)
        reader.run(apply)
        identity.until_secret(PROFILE)
        assert PROFILE in reader.run(which)
        identity.until_event(PROFILE, "Ready")
        assert "BitfusionIdentityReady" in reader.run(why)
        reader.run(limits)
        wait_until(lambda: "Limits: gpus 2, share 0.5." in reader.run(why), limit_s=30)
        reader.run(rights)
        reader.run(opt_out)
        assert PROFILE not in reader.run(which)
        reader.run(opt_in)
        identity.until_secret(PROFILE)
        reader.run(label_only)
        built = reader.shell("kubectl kustomize my-bitfusion").stdout
        assert "value: bitfusion.io/identity=true\n" in built
        reader.run(components)
        with (reader.folder / "my-bitfusion" / "kustomization.yaml").open() as file:
            without = yaml.safe_load(file)
        without["components"] = ["../manifests/components/restrict-account"]
        (reader.folder / "my-bitfusion" / "kustomization.yaml").write_text(yaml.safe_dump(without))
        reader.run(undo)
        left = "get clusterrole,clusterrolebinding,validatingadmissionpolicy,role,configmap -A -o name"
        assert "bitfusion-identity-profiles" not in cluster.kubectl(*left.split())
