"""The device plugin's pod on a real node: with a token made by hand, and over an absence of its pool."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import units
from tests.cluster.installation import DEVICE_PLUGIN, MANIFESTS, UNITS
from tests.cluster.node import Node
from tests.cluster.pool_service import PoolService
from tests.cluster.project_images import project_image
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # images are built when they never were


@pytest.fixture
def pool(node: Node) -> Iterator[PoolService]:
    image = project_image("notebook-controller", say=lambda line: None)
    if node.import_image(image, image.name):
        node.keep_images()
    with PoolService(node.cluster, node.host_address) as found:
        yield found


@pytest.fixture(params=["watcher", "classic"])
def applied(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Iterator[None]:
    """`base`, in one of the two ways to the kubelet, and no identity that would make its Secret."""
    manifests = os.path.relpath(MANIFESTS, os.path.realpath(tmp_path))
    components = [] if request.param == "watcher" else [f"{manifests}/components/device-plugin-classic"]
    kustomization = {"resources": [f"{manifests}/device-plugin/base"], "components": components}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    kubectl = node.cluster.kubectl
    kubectl("apply", "-k", str(tmp_path))
    try:
        yield
    finally:
        kubectl("delete", "--ignore-not-found", "-k", str(tmp_path), limit_s=120)
        units.wait_for(node.cluster.client, node.name, 0)


def test_it_waits_for_its_token_and_follows_its_pool(
    node: Node, pool: PoolService, applied: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = node.cluster

    def told() -> str:
        return cluster.kubectl("-n", DEVICE_PLUGIN, "describe", "pods")

    wait_until(lambda: 'secret "bitfusion-client" not found' in told(), told, 60)
    assert "ContainerCreating" in cluster.kubectl("-n", DEVICE_PLUGIN, "get", "pods")

    secret = ("create", "secret", "generic", "bitfusion-client")
    cluster.kubectl("-n", DEVICE_PLUGIN, *secret, "--from-literal=token=its-file-has-another-name")
    wait_until(lambda: "references non-existent secret key: servers.conf" in told(), told, 120)
    assert units.allocatable(cluster.client, node.name) == 0  # not those of a pool of the client's own
    cluster.kubectl("-n", DEVICE_PLUGIN, "delete", "secret", "bitfusion-client")

    files = tmp_path / "token"
    limits = ("--gpus", "1", "--share", "0.01", "--leases", "1")
    pool.ask("token", "create", "nodes", *limits, "--files", str(files), "--server", pool.address)
    cluster.kubectl("-n", DEVICE_PLUGIN, *secret, f"--from-file={files}")
    units.wait_for(cluster.client, node.name, UNITS)
    rollout = ("rollout", "status", "daemonset/bitfusion-device-plugin", "--timeout=60s")
    cluster.kubectl("-n", DEVICE_PLUGIN, *rollout, limit_s=90)

    pool.process.kill()
    units.wait_for(cluster.client, node.name, 0)

    def said() -> str:
        return cluster.kubectl("-n", DEVICE_PLUGIN, "logs", "daemonset/bitfusion-device-plugin")

    wait_until(lambda: "the pool does not answer" in said(), said, 30)
    pool.process.start()
    began = time.monotonic()
    units.wait_for(cluster.client, node.name, UNITS)
    with capsys.disabled():
        print(f"\nthe pool's service serves again, the node offers {UNITS}: {time.monotonic() - began:.1f} s")
    assert pool.leases() == []
