"""Every command of the pages about Kubeflow, run as it stands there, on the test cluster.

What wants pods that really run, the pool's steps and first cells among it, is in `test_guide_on_a_node`. For
the others, what a reader's machine and cluster have and this one has not is bridged, and nothing else:

* no container is built: `docker` and `python3 -m pip wheel` are small programs that check what they are
  given, and that what the Containerfile copies is there (`guide`);
* no kubelet runs our pods: the node stub makes them Running once our program, started with the
  Deployment's own arguments and its ServiceAccount, is ready; the Service leads to it (`StandIn`);
* Kubeflow's notebook controller is our stub of it; cert-manager is two CRDs and a stand-in (`CertManager`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.guide import (
    ALL_PROFILES,
    ARCHITECTURES,
    BASH,
    CERTIFICATES,
    CLIENTS,
    IMAGES,
    INSTALL,
    NAMES,
    PASSWORD,
    POLICY,
    POOL_FORM,
    POOL_INSTALL,
    PROFILE,
    REGISTRY,
    REMOVE,
    ROOT,
    STANDALONE,
    UNITS,
    UPGRADE,
    VERIFY,
    VMWARE_INJECTOR,
    Reader,
    blocks,
    matches,
    places,
    yaml_block,
)
from tests.cluster.node_stub import size_keys
from tests.cluster.notebooks import PROFILE as PROFILE_LABELS
from tests.cluster.zsh import zsh
from tests.jupyter_ext.spawner.kubeflow_manifests import CONFIG, write_manifests
from tests.manifests.built import INJECTOR, POD_WEBHOOKS, PROCESSES
from tests.manifests.cert_manager import CertManager
from tests.manifests.installed import cert_manager, kubeflow_namespace, namespaces, remove
from tests.manifests.stand_in import StandIn
from tests.support.documents import shell_blocks
from tests.support.run_blocks import ran

LONG = pytest.mark.long
STORY = (IMAGES, INSTALL, VERIFY, CLIENTS, POLICY, UPGRADE, REMOVE)
CERT_MANAGER = (IMAGES, INSTALL, CERTIFICATES, REMOVE)
WITHOUT_PLATFORM = (STANDALONE, REMOVE)
DIFFERENT = (ARCHITECTURES, PASSWORD)
CONTAINERS = "docs/reference/containers.md"


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


@pytest.fixture
def around(cluster: Cluster, platform: None) -> Iterator[ExitStack]:
    # of the notebook of the same name in the test before: the API keeps them for an hour
    cluster.kubectl("delete", "events", "--all", "-n", PROFILE)
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["bash", pytest.param("zsh", marks=[LONG, pytest.mark.apart])])
def shell(request: pytest.FixtureRequest) -> Sequence[str]:
    """The command of the reader's shell."""
    return BASH if request.param == "bash" else zsh()


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


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.runs(*places(NAMES, *STORY))
def test_install_verify_change_upgrade_and_remove(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack, shell: Sequence[str]
) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "validating-policy")
    around.callback(remove, cluster, "kubeflow")
    ours = run_deployments(cluster, tmp_path, "kubeflow", around)
    reader = Reader(cluster, tmp_path, shell=shell)
    reader.follow(*STORY)

    built = (reader.bridge / "docker.log").read_text()
    assert f"push {REGISTRY}/notebook-controller:0.1.0" in built
    assert len(ours.processes) > 2  # installed, upgraded, and back
    left = cluster.kubectl("get", "all,configmaps,secrets,leases", "-n", "kubeflow", "-o", "name")
    assert [name for name in left.split() if "bitfusion" in name] == []


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.runs(*places(*CERT_MANAGER))
def test_with_cert_manager(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack, shell: Sequence[str]
) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "cert-manager")
    around.enter_context(CertManager(cluster))
    run_deployments(cluster, tmp_path, "kubeflow", around)
    reader = Reader(cluster, tmp_path, shell=shell)
    reader.follow(*CERT_MANAGER[:-1])
    # The certificate is good, the rights suffice: the webhook answers.
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.run(refusal)
    reader.follow(CERT_MANAGER[-1])


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.runs(*places(*WITHOUT_PLATFORM))
def test_without_the_platform(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack, shell: Sequence[str]
) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "standalone")
    run_deployments(cluster, tmp_path, "bitfusion-system", around)
    reader = Reader(cluster, tmp_path, shell=shell)
    reader.follow(STANDALONE)
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.run(refusal)
    reader.follow(REMOVE)
    assert not cluster.client.exists("/api/v1/namespaces/bitfusion-system")


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.runs(*places(POOL_INSTALL, VMWARE_INJECTOR, REMOVE))
def test_images_get_a_client_that_vmwares_injector_knows(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack
) -> None:
    around.callback(remove, cluster, "kubeflow")
    run_deployments(cluster, tmp_path, "kubeflow", around)
    Reader(cluster, tmp_path).follow(POOL_INSTALL, VMWARE_INJECTOR, REMOVE)


def test_the_injector_is_left_out_by_the_patches_that_the_guide_has_for_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    reader = Reader(cluster, tmp_path)
    reader.run(blocks(POOL_INSTALL)[0])

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


IMAGE = f"{REGISTRY}/notebook:0.1.0"
OTHER_LISTS = """\
spawnerFormDefaults:
  tolerationGroup:
    value: none
    options:
    - groupKey: gpus
      displayName: Nodes with GPUs
      tolerations: []
"""
MORE = ("as Kubeflow has it", "in braces, shared", "JSON")
FORMS = {
    "as Kubeflow has it": None,
    "deeper, behind another list of that name": OTHER_LISTS
    + "  image:\n      value: a:1\n      options:\n        # ours\n        - a:1\n  gpus: {value: {}}\n",
    "in braces, shared": "x: &i [a:1]\n" + OTHER_LISTS + "  image: {value: a:1, options: *i}\n",
    "JSON": '{"spawnerFormDefaults": {"image": {"value": "a:1", "options": ["a:1"]}, "gpus": {"value": {}}}}',
}


@pytest.mark.parametrize(
    "form", [pytest.param(form, id=name, marks=LONG if name in MORE else ()) for name, form in FORMS.items()]
)
@pytest.mark.runs(*places(POOL_FORM))
def test_the_form_gets_image_and_sizes_however_its_file_is_written(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack, form: str | None
) -> None:
    manifests = write_manifests(tmp_path / "kubeflow", "1.10")
    if form is not None:
        (manifests / CONFIG).write_text(form)
    before = yaml.safe_load((manifests / CONFIG).read_text())
    built = cluster.kubectl("kustomize", str(manifests / "overlays" / "istio"))
    around.callback(cluster.kubectl, "delete", "-f", "-", input=built)
    cluster.kubectl("apply", "-f", "-", input=built)
    reader = Reader(cluster, tmp_path)
    reader.follow(POOL_FORM)
    after = form_of(cluster)
    image, gpus = (after["spawnerFormDefaults"].pop(name) for name in ("image", "gpus"))
    old = before["spawnerFormDefaults"].pop("image")
    assert image == {**old, "options": [IMAGE, *old["options"]]}
    sizes = [each["uiName"] for each in gpus["value"]["vendors"]][-4:]
    assert sizes == ["BITFUSION", "BITFUSION 50 %", "BITFUSION 25 %", "BITFUSION 8 GiB"]
    before["spawnerFormDefaults"].pop("gpus", None)
    assert after == before
    # Once more, as who is not sure: nothing is there twice.
    (block,) = blocks(POOL_FORM)
    again = reader.run(block._replace(printed=None))
    assert f"unchanged: new/spawner_ui_config.yaml\n\nThe form's list of images already has {IMAGE}" in again
    assert form_of(cluster)["spawnerFormDefaults"]["image"] == image


def form_of(cluster: Cluster) -> Any:
    """What is in the ConfigMap that the form's Deployment mounts."""
    namespace = "/api/v1/namespaces/kubeflow/configmaps"
    maps = [each["data"] for each in cluster.client.get(namespace)["items"]]
    (text,) = (data["spawner_ui_config.yaml"] for data in maps if "spawner_ui_config.yaml" in data)
    return yaml.safe_load(text)


def edited(reader: Reader, heading: str) -> None:
    """Do what blocks under a heading say of the reader's files."""
    for block in blocks(heading):
        if block.language == "yaml":
            reader.run(block)


def pod_specs(reader: Reader, folder: str) -> dict[str, Any]:
    """Of the workloads of one of the reader's folders; each object is one that the API server would take."""
    done = reader.shell(f"kubectl kustomize {folder}")
    assert done.returncode == 0, done.stdout
    objects = list(yaml.safe_load_all(done.stdout))
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in ("Deployment", "DaemonSet")
    }


@pytest.mark.parametrize("heading", DIFFERENT)
def test_all_pods_of_ours_stay_on_nodes_of_an_architecture_and_name_a_secret(
    cluster: Cluster, tmp_path: Path, heading: str
) -> None:
    reader = Reader(cluster, tmp_path)
    reader.run(blocks(POOL_INSTALL)[0])
    reader.run(blocks(UNITS)[0])
    edited(reader, heading)
    for folder, names in (
        ("my-bitfusion", {"bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity"}),
        ("my-device-plugin", {"bitfusion-device-plugin"}),
    ):
        found = pod_specs(reader, folder)
        assert found.keys() == names
        for name, spec in found.items():
            if heading == PASSWORD:
                assert spec["imagePullSecrets"] == [{"name": "registry"}]
            else:
                assert spec["nodeSelector"]["kubernetes.io/arch"] == "amd64"
            pod = {"metadata": {"name": name}, "spec": {**spec, "serviceAccountName": "default"}}
            pod["spec"].pop("priorityClassName", None)  # kept for some namespaces
            taken(cluster, "/api/v1/namespaces/default/pods", pod)


def taken(cluster: Cluster, path: str, body: Object) -> None:
    """By the API server, with each of its fields known."""
    cluster.client.create(path, body, dryRun="All", fieldValidation="Strict")


@LONG
@pytest.mark.runs(*places(*DIFFERENT), f"{CONTAINERS}#Images that need a pull secret")
def test_one_image_is_built_for_two_architectures_and_a_secret_is_made_for_each_namespace(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack
) -> None:
    reader = Reader(cluster, tmp_path)
    reader.environment["PASSWORD"] = "a b*c"
    around.enter_context(namespaces(cluster, {"bitfusion-pool": {}, "bitfusion-device-plugin": {}}))
    around.callback(cluster.kubectl, "delete", "secret", "registry", "-n", "kubeflow")
    for block in (blocks(POOL_INSTALL)[0], blocks(UNITS)[0], *blocks(*DIFFERENT)):
        reader.run(block)
    (in_a_profile,) = shell_blocks((ROOT / CONTAINERS).read_text())
    around.callback(cluster.kubectl, "delete", "secret", "registry", "-n", PROFILE)
    done = reader.shell(in_a_profile)
    assert done.returncode == 0, done.stdout
    account = cluster.client.get(f"/api/v1/namespaces/{PROFILE}/serviceaccounts/default-editor")
    assert account["imagePullSecrets"] == [{"name": "registry"}]


SERVICE_ENTRIES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceentries.networking.istio.io}
spec:
  group: networking.istio.io
  names: {kind: ServiceEntry, plural: serviceentries, singular: serviceentry}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [hosts]
            properties:
              hosts: {type: array, minItems: 1, items: {type: string}}
              addresses: {type: array, items: {type: string}}
              location: {type: string, enum: [MESH_EXTERNAL, MESH_INTERNAL]}
              resolution: {type: string, enum: [NONE, STATIC, DNS, DNS_ROUND_ROBIN]}
              ports:
                type: array
                items:
                  type: object
                  required: [number, name]
                  properties:
                    number: {type: integer, maximum: 65535}
                    name: {type: string}
                    protocol: {type: string}
                    targetPort: {type: integer, maximum: 65535}
"""
"""Istio's kind is no part of this project: the fields that its documentation names."""


def test_what_opens_a_network_is_taken_by_the_api_server(cluster: Cluster) -> None:
    policy = yaml.safe_load(yaml_block("kind: NetworkPolicy"))
    del policy["metadata"]["namespace"]
    taken(cluster, "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", policy)
    ports = [each["port"] for rule in policy["spec"]["egress"] for each in rule["ports"]]
    assert ports == [56001, 53, 53]

    entry = yaml.safe_load(yaml_block("kind: ServiceEntry"))
    del entry["metadata"]["namespace"]
    cluster.kubectl("apply", "-f", "-", input=SERVICE_ENTRIES)
    try:
        cluster.kubectl("wait", "--for=condition=Established", "crd/serviceentries.networking.istio.io")
        entries = "/apis/networking.istio.io/v1beta1/namespaces/default/serviceentries"
        taken(cluster, entries, entry)
        by_address = {"resolution": "NONE", "addresses": ["10.0.0.7"]}
        entry["spec"] |= by_address
        entry["spec"]["ports"][0]["protocol"] = "TCP"
        taken(cluster, entries, entry)
        with pytest.raises(Refused):
            taken(cluster, entries, {**entry, "spec": {**entry["spec"], "resolution": "dns"}})
    finally:
        cluster.kubectl("delete", "-f", "-", input=SERVICE_ENTRIES)


@pytest.mark.runs(*places(ALL_PROFILES))
def test_all_profiles_are_opted_in_at_once_and_again(
    cluster: Cluster, tmp_path: Path, shell: Sequence[str]
) -> None:
    (block,) = blocks(ALL_PROFILES)
    # Of the profiles that other tests have left only those of this one.
    selector = "part-of=kubeflow-profile"
    assert selector in block.commands
    mine = block._replace(commands=block.commands.replace(selector, f"{selector},of-the-guide=yes"))
    labels = {**PROFILE_LABELS, "of-the-guide": "yes"}
    profiles = [cluster.new_namespace(each) for each in (labels, labels, PROFILE_LABELS)]
    reader = Reader(cluster, tmp_path, shell=shell)
    for _ in range(2):
        reader.run(mine)
    ran(block.commands)
    for name, wanted in zip(profiles, ("true", "true", None), strict=True):
        path = f"/api/v1/namespaces/{name}"
        assert cluster.client.get(path)["metadata"]["labels"].get("bitfusion.io/identity") == wanted
        binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings/bitfusion-identity"
        assert cluster.client.exists(binding) is (wanted is not None)
    for name in profiles:
        cluster.client.delete(f"/api/v1/namespaces/{name}")
