"""Which volumes a GPU pod has, and on which node it must run for them."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS, parse_settings
from bitfusion_pods.pod.cannot_copy import FilesElsewhere, NotebookUnusable
from bitfusion_pods.pod.volumes import NO_GPU, claim_names
from tests.pods.pod.notebook_pods import claim, made, notebook, program, template

NFS = parse_settings({"rwo_anywhere": ["nfs-client"]})


def bound(pod: dict[str, Any]) -> str:
    """The node to which the pod is bound; empty for none."""
    affinity = pod["spec"].get("affinity")
    if affinity is None:
        return ""
    ((term,),) = (
        each["nodeSelectorTerms"] for each in affinity["nodeAffinity"].values() if isinstance(each, dict)
    )
    assert term["matchFields"][0]["key"] == "metadata.name"
    return str(term["matchFields"][0]["values"][0])


@pytest.mark.parametrize(
    ("modes", "settings", "storage_class", "node"),
    [
        (["ReadWriteMany"], DEFAULT_SETTINGS, "standard", ""),
        (["ReadWriteOnce", "ReadWriteMany"], DEFAULT_SETTINGS, "standard", ""),
        (["ReadOnlyMany"], DEFAULT_SETTINGS, "standard", ""),
        (["ReadWriteOnce"], DEFAULT_SETTINGS, "standard", "n1"),
        (["ReadWriteOnce", "ReadOnlyMany"], DEFAULT_SETTINGS, "standard", "n1"),
        ([], DEFAULT_SETTINGS, "standard", "n1"),
        (["ReadWriteOnce"], NFS, "nfs-client", ""),
        (["ReadWriteOnce"], NFS, "standard", "n1"),
        (["ReadWriteOnce"], parse_settings({"rwo_anywhere": True}), "standard", ""),
    ],
)
def test_a_claims_modes_decide_where_the_pod_may_run(
    modes: list[str], settings: Any, storage_class: str, node: str
) -> None:
    claims = {"digits-home": claim(*modes, storage_class=storage_class)}
    assert bound(made(claims=claims, settings=settings)) == node


def test_a_claim_that_may_not_be_read_counts_as_readwriteonce() -> None:
    assert bound(made(claims={})) == "n1"
    with pytest.raises(FilesElsewhere, match="could not be read"):
        made(claims={}, node_lacks=NO_GPU)


def test_what_the_claim_got_wins_over_what_it_asked_for() -> None:
    given = claim("ReadWriteMany") | {"status": {"accessModes": ["ReadWriteOnce"]}}
    assert bound(made(claims={"digits-home": given})) == "n1"


def test_files_that_only_a_node_without_gpus_has_are_refused_at_once_with_ways_out() -> None:
    with pytest.raises(FilesElsewhere) as caught:
        made(claims={"digits-home": claim("ReadWriteOnce")}, node_lacks=NO_GPU)
    told = caught.value.user_message
    for part in ("claim digits-home", "node n1", "ReadWriteMany", "GPU node", "rwo_anywhere"):
        assert part in told
    assert made(node_lacks=NO_GPU)  # mounts anywhere


@pytest.mark.parametrize("settings", [DEFAULT_SETTINGS, parse_settings({"rwo_anywhere": True})])
def test_a_claim_of_one_pod_is_refused(settings: Any) -> None:
    with pytest.raises(FilesElsewhere, match="ReadWriteOncePod"):
        made(claims={"digits-home": claim("ReadWriteOncePod")}, settings=settings)


def test_only_what_the_container_mounts_comes_along_and_of_ours_nothing() -> None:
    pod = made()
    assert [each["name"] for each in pod["spec"]["volumes"]] == [
        "home",
        "dshm",
        "datasets",
        "bitfusion-client",
    ]
    assert [(each["mountPath"], each["name"]) for each in program(pod)["volumeMounts"]] == [
        ("/home/jovyan", "home"),
        ("/dev/shm", "dshm"),
        ("/data", "datasets"),
        ("/bitfusion", "bitfusion-client"),
    ]


@pytest.mark.parametrize(
    "given", [{"settings": parse_settings({"labels": ["access-ml-pipeline"]})}, {"template_only": True}]
)
def test_what_a_poddefault_adds_again_is_not_taken_over(given: dict[str, Any]) -> None:
    pod = made(**given)
    assert "datasets" not in {each["name"] for each in pod["spec"]["volumes"]}


def test_without_a_template_all_that_there_is_comes_along() -> None:
    pod = made(of_template=None, template_only=True)
    assert "datasets" in {each["name"] for each in pod["spec"]["volumes"]}


def test_our_volumes_are_known_under_whatever_name() -> None:
    pod = notebook()
    for part in (pod["spec"]["volumes"], pod["spec"]["containers"][0]["volumeMounts"]):
        for each in part:
            if each["name"] == "bitfusion-client":
                each["name"] = "renamed"
    assert "renamed" not in {each["name"] for each in made(pod=pod)["spec"]["volumes"]}
    assert "renamed" not in {each["name"] for each in made(pod=pod, of_template=None)["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("volume", "node"),
    [
        ({"hostPath": {"path": "/mnt/nfs"}}, ""),
        ({"nfs": {"server": "files", "path": "/"}}, ""),
        ({"secret": {"secretName": "key"}}, ""),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "ml"}}]}}, ""),
        ({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, ""),
        ({"awsElasticBlockStore": {"volumeID": "v"}}, "n1"),
        ({"persistentVolumeClaim": {"claimName": "of-nobody"}}, "n1"),
    ],
)
def test_other_volumes_come_along_as_they_are(volume: dict[str, Any], node: str) -> None:
    changed = template()
    changed["spec"]["volumes"].append({"name": "other", **volume})
    changed["spec"]["containers"][0]["volumeMounts"].append({"name": "other", "mountPath": "/other"})
    pod = made(of_template=changed)
    assert {"name": "other", **volume} in pod["spec"]["volumes"]
    assert bound(pod) == node


def test_a_volume_of_the_statefulsets_claim_templates_is_the_running_pods() -> None:
    changed = template()
    changed["spec"]["volumes"] = changed["spec"]["volumes"][1:]
    assert {"name": "home", "persistentVolumeClaim": {"claimName": "digits-home"}} in made(
        of_template=changed
    )["spec"]["volumes"]


def test_a_block_device_comes_along() -> None:
    changed = template()
    changed["spec"]["containers"][0]["volumeDevices"] = [{"name": "home", "devicePath": "/dev/xvda"}]
    assert program(made(of_template=changed))["volumeDevices"] == [
        {"name": "home", "devicePath": "/dev/xvda"}
    ]


@pytest.mark.parametrize(
    ("expression", "folder"),
    [
        ("$(POD)/work", "digits-0/work"),
        ("users/$(NB_PREFIX)", "users//notebook/team-a/digits"),
        ("a$$b$(", "a$b$("),
        ("plain", "plain"),
        ("$(NOT_KNOWN)", None),
        ("$(FROM_SECRET)", None),
    ],
)
def test_a_folder_named_by_a_variable_is_the_notebooks(expression: str, folder: str | None) -> None:
    pod, changed = notebook(), template()
    pod["spec"]["containers"][0]["env"] += [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]
    changed["spec"]["containers"][0]["volumeMounts"][0]["subPathExpr"] = expression
    if folder is None:
        with pytest.raises(NotebookUnusable, match="/home/jovyan"):
            made(pod=pod, of_template=changed)
        return
    mount = program(made(pod=pod, of_template=changed))["volumeMounts"][0]
    assert mount == {"name": "home", "mountPath": "/home/jovyan", "subPath": folder}


def test_the_claims_of_a_pod_are_told_for_the_api_to_be_asked() -> None:
    assert claim_names(notebook()) == ["digits-home"]
    assert claim_names({"spec": {"volumes": [7, {"persistentVolumeClaim": 7}]}}) == []


def test_a_bound_pod_without_a_node_is_refused() -> None:
    pod = notebook()
    del pod["spec"]["nodeName"]
    with pytest.raises(NotebookUnusable, match="on which node"):
        made(pod=pod, claims={})
