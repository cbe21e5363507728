"""Webhook and policy: what was wrong before can be stopped, culled, labelled and edited elsewhere.

The same value written anew, and another wrong one, are refused by both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import NOTEBOOKS, Object
from tests.manifests.judge import Judge, refusal
from tests.manifests.sizes import GPU, notebook
from tests.support.waiting import wait_until

RIGHT = {f"{GPU}50": "1"}
OS, MANAGEMENT, FILTER = "bitfusion-client/os", "auto-management/bitfusion", "bitfusion-client/filter"
REQUEST = "bitfusion.io/request"


def _with_init(limits: dict[str, Any]) -> Object:
    made = notebook("init", RIGHT)
    made["spec"]["template"]["spec"]["initContainers"] = [
        {"name": "prepare", "image": "i", "resources": {"limits": limits}}
    ]
    return made


WRONG: Mapping[str, Object] = {
    made["metadata"]["name"]: made
    for made in (
        notebook("requests-only", {}, requests=RIGHT),
        notebook("requests-differ", RIGHT, requests={f"{GPU}50": 2}),
        notebook("gpus", {"bitfusion.io/gpus": "1"}),
        notebook("underscore", {"bitfusion.io/gpu_50": "1"}),
        notebook("capitals", {"bitfusion.io/GPU-50": 1}),
        notebook("unit", {"bitfusion.io/gpu": "50"}),
        notebook("half", {f"{GPU}amount": 0.5}),
        notebook("two", RIGHT, RIGHT),
        notebook("overridden", {f"{GPU}amount": "0"}, requests=RIGHT, annotations={REQUEST: "-n 1"}),
        _with_init(RIGHT),
        notebook("all", RIGHT, annotations={MANAGEMENT: "all"}),
        notebook("path", {}, annotations={OS: "../../x"}),
        notebook("command-path", {}, annotations={"bitfusion.io/path": "/opt"}),
        notebook("long", {}, annotations={FILTER: "f" * 2000}),
    )
}

Edit = Callable[[Object], None]


def _annotate(name: str, value: str) -> Edit:
    return lambda made: made["metadata"].setdefault("annotations", {}).update({name: value})


def _label(made: Object) -> None:
    made["metadata"].setdefault("labels", {})["team"] = "vision"


def _more_cpu(made: Object) -> None:
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"


def _respelled(made: Object) -> None:
    """As Kubeflow's culler puts it back: read into Go's types."""
    made["metadata"].setdefault("annotations", {})["notebooks.kubeflow.org/last-activity"] = "now"
    spelled = {0.5: "500m", 1: "1", 2: "2"}
    for container in made["spec"]["template"]["spec"]["containers"]:
        for part in container["resources"].values():
            for key, value in part.items():
                part[key] = spelled.get(value, value)


HARMLESS: Mapping[str, Edit] = {
    "stopped": _annotate("kubeflow-resource-stopped", "2026-11-22T08:00:00Z"),
    "culled": _respelled,
    "labelled": _label,
    "edited elsewhere": _more_cpu,
}


@pytest.fixture(scope="module")
def stored(cluster: Cluster, judge: Judge) -> dict[str, Object]:
    """The wrong ones as the API server has them: they came in while their namespace was left alone."""
    namespace = cluster.new_namespace({"bitfusion.io/admission": "ignore"})
    path = NOTEBOOKS.format(namespace=namespace)
    made = {name: cluster.client.create(path, body) for name, body in WRONG.items()}
    made["right"] = cluster.client.create(path, notebook("right", RIGHT))
    cluster.client.merge(
        f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"bitfusion.io/admission": None}}}
    )
    wait_until(lambda: refusal(cluster, path, notebook("new", {f"{GPU}amount": "0"})), "looked after", 10)
    return made


def with_request_of(source: Object, target: Object) -> Object:
    """`target`, edited to ask for what `source` asks for, by limits and by annotations."""
    edited = copy.deepcopy(target)
    edited["metadata"]["annotations"] = source["metadata"].get("annotations")
    edited["spec"] = copy.deepcopy(source["spec"])
    return edited


def _refused(cluster: Cluster, body: Object) -> bool:
    path = NOTEBOOKS.format(namespace=body["metadata"]["namespace"])
    try:
        cluster.client.put(f"{path}/{body['metadata']['name']}", body, dryRun="All")
    except Refused as refused:
        if "bitfusion-sizes" not in refused.message:
            raise
        return True
    return False


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("edit", HARMLESS)
def test_a_notebook_that_was_wrong_before_passes(
    cluster: Cluster, judge: Judge, stored: dict[str, Object], name: str, edit: str
) -> None:
    edited = copy.deepcopy(stored[name])
    HARMLESS[edit](edited)
    assert edited != stored[name]
    assert judge.webhook(edited, stored[name]) is None
    assert not _refused(cluster, edited)


@pytest.mark.parametrize("name", WRONG)
def test_the_same_written_anew_is_refused(
    cluster: Cluster, judge: Judge, stored: dict[str, Object], name: str
) -> None:
    assert judge.policy(WRONG[name])
    assert judge.webhook(WRONG[name])
    edited = with_request_of(stored[name], stored["right"])
    assert judge.webhook(edited, stored["right"])
    assert _refused(cluster, edited)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("requests-only", notebook("x", {}, requests={f"{GPU}50": "2"})),
        ("requests-differ", notebook("x", RIGHT, requests={f"{GPU}50": 3})),
        ("gpus", notebook("x", {"bitfusion.io/gpus": "2"})),
        ("unit", notebook("x", {"bitfusion.io/gpu": "51"})),
        ("half", notebook("x", {f"{GPU}amount": "1500m"})),
        ("all", notebook("x", RIGHT, annotations={MANAGEMENT: "yes"})),
        ("path", notebook("x", {}, annotations={OS: "../../y"})),
        # limits count again when the annotation that had overridden them goes
        ("overridden", notebook("x", {f"{GPU}amount": "0"}, requests=RIGHT)),
        ("path", notebook("x", {f"{GPU}amount": "0"}, annotations={OS: "../../x"})),
        ("half", notebook("x", {f"{GPU}amount": "0.5"}, annotations={OS: "../../x"})),
    ],
)
def test_another_wrong_value_is_refused(
    cluster: Cluster, judge: Judge, stored: dict[str, Object], name: str, other: Object
) -> None:
    edited = with_request_of(other, stored[name])
    assert judge.webhook(edited, stored[name])
    assert _refused(cluster, edited)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        # a right size beside an annotation that was wrong before, and the reverse
        ("path", notebook("x", RIGHT, annotations={OS: "../../x"})),
        ("half", notebook("x", {f"{GPU}amount": "0.5"}, annotations={OS: "ubuntu22"})),
    ],
)
def test_a_right_value_beside_one_that_was_wrong_before_passes(
    cluster: Cluster, judge: Judge, stored: dict[str, Object], name: str, other: Object
) -> None:
    edited = with_request_of(other, stored[name])
    assert judge.webhook(edited, stored[name]) is None
    assert not _refused(cluster, edited)


def test_an_object_that_is_being_deleted_or_left_alone_from_now_on_passes(
    cluster: Cluster, judge: Judge, stored: dict[str, Object]
) -> None:
    edited = copy.deepcopy(stored["right"])
    edited["spec"] = stored["gpus"]["spec"]
    edited["metadata"]["labels"] = {"bitfusion.io/admission": "ignore"}
    assert judge.webhook(edited, stored["right"]) is None
    assert not _refused(cluster, edited)
