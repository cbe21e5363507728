"""Every command of docs/kubeflow.md, run as it stands there, against the test cluster.

Steps 2 and 4 to 8 of the way from zero, and what stands about VMware's product, want pods that really run:
see `test_guide_on_a_node`. For the others, what a reader's machine and cluster have and this one has not is
bridged, and nothing else:

* no container is built: `docker` and `python3 -m pip wheel` are small programs that check what they are
  given, and that what the Containerfile copies is there (`guide`);
* no kubelet runs our pods: the node stub makes them Running once our program, started with the
  Deployment's own arguments and its ServiceAccount, is ready; the Service leads to it (`StandIn`);
* Kubeflow's notebook controller is our stub of it; cert-manager is two CRDs and a stand-in (`CertManager`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.guide import (
    ACCESS,
    CELL,
    FORM,
    IMAGES,
    INSTALL,
    NAMES,
    NAMESPACE,
    NO_QUEUE,
    NOTEBOOK,
    POOL,
    PROFILE,
    REGISTRY,
    REMOVE,
    REMOVE_TRIAL,
    UNITS,
    VMWARE,
    WAITING,
    Reader,
    blocks,
    matches,
    yaml_block,
)
from tests.cluster.node_stub import size_keys
from tests.manifests.built import INJECTOR, POD_WEBHOOKS, PROCESSES
from tests.manifests.cert_manager import CertManager
from tests.manifests.installed import cert_manager, kubeflow_namespace, remove
from tests.manifests.stand_in import StandIn

STORY = (IMAGES, INSTALL, "Verify", "Settings", "The policy", "Upgrade", REMOVE)
CERT_MANAGER = (IMAGES, INSTALL, "cert-manager", REMOVE)
STANDALONE = ("Without the Kubeflow platform", REMOVE)
ON_A_NODE = (POOL, NAMESPACE, FORM, UNITS, NOTEBOOK, CELL, VMWARE, WAITING, NO_QUEUE, REMOVE_TRIAL)
IDENTITY = (ACCESS,)  # run by tests/bitfusion_device_plugin/identity/test_guide.py


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a b\n", "a   b\n", True),
        ("a b\n", "a c\n", False),
        ("a …\n", "a anything at all\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("(a) [b]*\n", "(a) [b]*\n", True),
    ],
)
def test_how_an_output_is_compared(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_every_command_of_the_guide_is_run_by_a_test_here() -> None:
    assert {block.heading for block in blocks()} == {
        NAMES, *STORY, *CERT_MANAGER, *STANDALONE, *IDENTITY, *ON_A_NODE
    }  # fmt: skip


@pytest.fixture
def around() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Iterator[None]:
    """What the guide expects: Kubeflow's namespace, a user's, and cert-manager's kinds."""
    with kubeflow_namespace(cluster, PROFILE), cert_manager(cluster):
        yield


def run_deployments(cluster: Cluster, folder: Path, namespace: str, around: ExitStack) -> StandIn:
    """Pods of our Deployments run once what stands for them is ready; the controller's."""
    controller, injector = (
        around.enter_context(StandIn(cluster, folder, namespace, name=process)) for process in PROCESSES
    )

    def schedulable(pod: Object) -> bool:
        return not size_keys(pod) and controller.ready(pod) and injector.ready(pod)

    around.enter_context(cluster.node_stub(schedulable=schedulable))
    return controller


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_install_verify_change_upgrade_and_remove(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack
) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "validating-policy")
    around.callback(remove, cluster, "kubeflow")
    ours = run_deployments(cluster, tmp_path, "kubeflow", around)
    reader = Reader(cluster, tmp_path)
    reader.follow(*STORY)

    built = (reader.bridge / "docker.log").read_text()
    assert f"push {REGISTRY}/notebook-controller:0.1.0" in built
    assert len(ours.processes) > 2  # installed, upgraded, and back
    left = cluster.kubectl("get", "all,configmaps,secrets,leases", "-n", "kubeflow", "-o", "name")
    assert [name for name in left.split() if "bitfusion" in name] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_with_cert_manager(cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "cert-manager")
    around.enter_context(CertManager(cluster))
    run_deployments(cluster, tmp_path, "kubeflow", around)
    reader = Reader(cluster, tmp_path)
    reader.follow(*CERT_MANAGER[:-1])
    # The certificate is good, the rights suffice: the webhook answers.
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.run(refusal)
    reader.follow(CERT_MANAGER[-1])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_the_platform(cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "standalone")
    run_deployments(cluster, tmp_path, "bitfusion-system", around)
    reader = Reader(cluster, tmp_path)
    reader.follow(STANDALONE[0])
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.run(refusal)
    reader.follow(STANDALONE[1])
    assert not cluster.client.exists("/api/v1/namespaces/bitfusion-system")


def test_the_injector_is_left_out_by_the_patches_that_the_guide_has_for_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    reader = Reader(cluster, tmp_path)
    reader.run(blocks(INSTALL)[0])

    def installed() -> set[tuple[str, str]]:
        done = reader.shell("kubectl kustomize my-bitfusion")
        assert done.returncode == 0, done.stdout
        return {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout)}

    before = installed()
    with (reader.folder / "my-bitfusion" / "kustomization.yaml").open("a") as file:
        file.write(yaml_block('"$patch": "delete"'))
    left_out = {("MutatingWebhookConfiguration", POD_WEBHOOKS), ("Deployment", INJECTOR)}
    assert installed() == before - left_out
    assert left_out <= before
