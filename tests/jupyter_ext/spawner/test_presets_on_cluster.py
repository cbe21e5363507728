"""Profiles and kinds before a real API server: v2's rules for the kind, and the pods as dry runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from jupyter_ext.spawner.kubespawner_profiles import hub_configuration, profile_list
from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.workspace_kind import workspace_kind
from jupyter_ext.spawner.yaml_document import parse_document
from tests.bitfusion_device_plugin.injector.pods import inject
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE
from tests.jupyter_ext.spawner.hub_pods import spawned
from tests.jupyter_ext.spawner.workspaces import KINDS, notebooks_v2, workspace_pod
from tests.manifests.installed import installed, kubeflow_namespace
from tests.support.waiting import wait_until

IMAGE = "registry.example.com/team/notebook:1.0"
SIZES = parse_sizes(parse_document(example(), "sizes.yaml"))
KIND = workspace_kind(SIZES, IMAGE, requests={"cpu": "2", "memory": "8Gi"})
SETTINGS = InjectorSettings(gpu_memory_mib=16384)
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# What the chart Zero to JupyterHub sets, of what *restricted* asks for, and what an administrator adds to it.
HUB = (
    "c.KubeSpawner.uid = 1000\nc.KubeSpawner.fs_gid = 100\nc.KubeSpawner.cmd = ['jupyterhub-singleuser']\n"
    "c.KubeSpawner.container_security_context = {'capabilities': {'drop': ['ALL']}, 'runAsNonRoot': True, "
    "'seccompProfile': {'type': 'RuntimeDefault'}}\n"
)
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def kinds(cluster: Cluster) -> Iterator[Cluster]:
    with notebooks_v2(cluster):
        yield cluster


def written(cluster: Cluster, kind: dict[str, Any]) -> Any:
    """The kind as the server stores it; an unknown field is an error, as for kubectl."""
    return cluster.client.create(KINDS, kind, dryRun="All", fieldValidation="Strict")


def test_the_kind_is_taken_as_it_is(kinds: Cluster) -> None:
    stored = written(kinds, KIND)
    template = stored["spec"]["podTemplate"]
    assert template["podMetadata"] == KIND["spec"]["podTemplate"]["podMetadata"]
    resources = [value["spec"]["resources"] for value in template["options"]["podConfig"]["values"]]
    wanted = KIND["spec"]["podTemplate"]["options"]["podConfig"]["values"]
    assert resources == [value["spec"]["resources"] for value in wanted]
    longest = "sizes:\n" + "".join(
        f"- {{label: '{'B' * 56} {share:3}', share: {share} %}}\n" for share in range(1, 51)
    )
    many = workspace_kind(parse_sizes(parse_document(longest, "sizes.yaml")), IMAGE, name="many")
    assert len(written(kinds, many)["spec"]["podTemplate"]["options"]["podConfig"]["values"]) == 201


def _two_of_one_id(kind: dict[str, Any]) -> None:
    values = kind["spec"]["podTemplate"]["options"]["podConfig"]["values"]
    values.append(values[1])


def _of_one_letter(kind: dict[str, Any]) -> None:
    kind["spec"]["podTemplate"]["options"]["podConfig"]["values"][1]["spawner"]["displayName"] = "B"


def _two_icons(kind: dict[str, Any]) -> None:
    config_map = {"name": "a", "namespace": "b", "key": "c", "mediaType": "image/svg+xml"}
    kind["spec"]["spawner"]["icon"]["configMap"] = config_map


def _an_account(kind: dict[str, Any]) -> None:
    kind["spec"]["podTemplate"]["serviceAccount"] = {"name": "default-editor"}


def _no_probe(kind: dict[str, Any]) -> None:
    kind["spec"]["podTemplate"]["activityProbe"] = {
        "jupyter": {"lastActivity": False, "portId": "jupyterlab"}
    }


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_two_of_one_id, "Duplicate value"),
        (_of_one_letter, "should be at least 2 chars long"),
        (_two_icons, "must specify exactly one of 'url' or 'configMap'"),
        (_an_account, "unknown field"),
        (_no_probe, "'lastActivity' must be true"),
    ],
)
def test_the_schema_refuses_what_v2_refuses(kinds: Cluster, edit: Edit, words: str) -> None:
    """So that a kind that is taken says something."""
    kind = copy.deepcopy(KIND)
    edit(kind)
    with pytest.raises(Refused) as refused:
        written(kinds, kind)
    assert words in refused.value.message


def taken(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> None:
    """The pod, as the server shows it to webhooks, is let in with the client, and needs no second change."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    seen = cluster.client.create(pods, pod, dryRun="All", fieldValidation="Strict")
    after = cluster.client.create(pods, inject(seen, settings=SETTINGS, namespace=namespace), dryRun="All")
    (container,) = after["spec"]["containers"]
    assert container["resources"]["limits"]["bitfusion.io/gpu"] == "200"
    assert inject(after, settings=SETTINGS, namespace=namespace) == after


def test_the_pod_of_a_workspace_is_let_in_where_restricted_is_enforced(cluster: Cluster) -> None:
    namespace = cluster.new_namespace(RESTRICTED, "workspaces")
    for config in ("gpu-amount-x2", "gpu-50-x4", "gpu-25-x8", "gpu-8gib-x4"):
        taken(cluster, namespace, workspace_pod(KIND, config))


def test_the_pod_of_jupyterhub_is_let_in_where_restricted_is_enforced(
    cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.new_namespace(RESTRICTED, "jupyterhub")
    configuration = tmp_path / "jupyterhub_config.py"
    configuration.write_text(HUB + hub_configuration(profile_list(SIZES, IMAGE), "sizes.yaml"))
    choices = [
        {"profile": slug, "gpus": number}
        for slug, number in (("gpu-amount", "2"), ("gpu-50", "4"), ("gpu-25", "8"), ("gpu-8gib", "4"))
    ]
    for pod in spawned(configuration, choices, tmp_path)["pods"]:
        taken(cluster, namespace, pod)


def test_a_workspace_without_gpus_starts_while_the_injector_is_away(cluster: Cluster) -> None:
    with kubeflow_namespace(cluster), installed(cluster, "kubeflow"):
        pods = f"/api/v1/namespaces/{cluster.new_namespace(PROFILE, 'workspaces')}/pods"

        def refused() -> bool:
            try:
                cluster.client.create(pods, workspace_pod(KIND, "gpu-50-x1"), dryRun="All")
            except Refused as error:
                return "pods.bitfusion.io" in error.message
            return False

        wait_until(refused, "the API server asks the injector, which is away", 20)
        cluster.client.create(pods, workspace_pod(KIND, "no-gpu"), dryRun="All")
