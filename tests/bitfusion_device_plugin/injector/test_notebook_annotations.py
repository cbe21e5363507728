"""Whose annotations hold: the Notebook's as it is now win over those of an old template, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    HALF,
    INJECTION,
    MANAGEMENT,
    OS,
    REQUEST,
    VERSION,
    WRITTEN,
    container,
    inject,
    pod,
    refused,
)

QUARTER = {**INJECTION, REQUEST: "-n 1 -p 0.25"}


@pytest.mark.parametrize(
    ("template", "notebook", "request_"),
    [
        (None, QUARTER, "-n 1 -p 0.25"),  # Kubeflow up to 1.7 while the webhooks were down
        ({}, QUARTER, "-n 1 -p 0.25"),
        ({REQUEST: "-n 4"}, QUARTER, "-n 1 -p 0.25"),  # stale
        ({REQUEST: "-n 4"}, INJECTION, "-n 4"),  # may come from a PodDefault
        ({REQUEST: "-n 4"}, None, "-n 4"),  # nobody has looked
        (QUARTER, {}, "-n 1 -p 0.25"),
        ({REQUEST: "-n 4"}, {REQUEST: ""}, "-n 1 -p 0.5"),
    ],
)
def test_the_notebooks_value_wins_where_it_has_one(template: Any, notebook: Any, request_: str) -> None:
    after = inject(pod(container({HALF: "1"}), annotations=template, notebook="nb"), notebook)
    assert after["spec"]["initContainers"][0]["args"][2] == request_
    written = after["metadata"]["annotations"]
    assert written == {**(template or {}), **(notebook or {}), **WRITTEN}


def test_foreign_annotations_of_the_notebook_are_not_taken_over() -> None:
    notebook = {**INJECTION, "notebooks.kubeflow.org/creator": "ada", "bitfusion.io/pending": "x"}
    after = inject(pod(container({HALF: "1"}), annotations=None, notebook="nb"), notebook)
    assert after["metadata"]["annotations"] == {**INJECTION, **WRITTEN}


@pytest.mark.parametrize("value", ["all", "x" * 100, 5, None, ["injection"]])
def test_a_value_that_no_notebook_may_have_counts_as_absent(value: Any) -> None:
    notebook = {MANAGEMENT: value, OS: value if value != "all" else "../x", REQUEST: 7}
    after = inject(pod(container({HALF: "1"}, command=["x"]), annotations=None, notebook="nb"), notebook)
    assert after["spec"]["containers"][0]["command"] == ["x"]
    assert after["metadata"]["annotations"] == WRITTEN


def test_a_notebook_that_is_to_be_left_alone_leaves_its_pod_alone() -> None:
    before = pod(container({HALF: "1"}), notebook="nb")
    assert injected_pod(before, "ann", notebook={MANAGEMENT: "none"}) is before
    before["metadata"]["labels"]["bitfusion.io/admission"] = "ignore"
    assert injected_pod(before, "ann") is before


def test_the_path_is_the_notebooks_to_choose_too() -> None:
    after = inject(pod(container({HALF: "1"}), notebook="nb"), {"bitfusion.io/path": "none"})
    paths = [mount["mountPath"] for mount in after["spec"]["containers"][0]["volumeMounts"]]
    assert paths == ["/bitfusion", "/bitfusion/identity"]


def test_a_size_by_annotation_alone_is_that_of_the_notebooks_own_container() -> None:
    before = pod(container(name="istio-proxy"), container(name="nb"), annotations=None, notebook="nb")
    spec = inject(before, QUARTER)["spec"]
    assert spec["initContainers"][0]["args"][1:4] == ["nb", "-n 1 -p 0.25", "25"]
    assert spec["containers"][0] == container(name="istio-proxy")
    assert spec["containers"][1]["resources"]["limits"]["bitfusion.io/gpu"] == "25"
    assert "bitfusion.io/gpu" not in spec["containers"][1]["resources"]["requests"]  # Kubernetes adds it


def test_a_size_by_annotation_stands_in_place_of_the_one_size_there_is() -> None:
    before = pod(container(name="nb"), container({AMOUNT: "8"}, "other"), annotations=QUARTER, notebook="nb")
    assert inject(before)["spec"]["initContainers"][0]["args"][1:3] == ["other", "-n 1 -p 0.25"]
    before = pod(
        container({HALF: "1"}, "a"), container({AMOUNT: "8"}, "nb"), annotations=QUARTER, notebook="nb"
    )
    words = inject(before)["spec"]["initContainers"][0]["args"]
    assert (words[1:3], words[6:8]) == (["a", "-n 1 -p 0.5"], ["nb", "-n 1 -p 0.25"])


def test_wrong_keys_under_an_annotation_are_taken_away_with_the_others() -> None:
    after = inject(pod(container({"bitfusion.io/gpu-fifty": "1"}), annotations=QUARTER))
    assert after["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "600m",
        "memory": "1288490188800m",
        "bitfusion.io/gpu": "25",
    }


def test_the_client_is_that_of_the_image_where_no_annotation_says() -> None:
    settings = InjectorSettings(
        (ClientRule("ubuntu20", "450", "stand-in", "old:1"), ClientRule("*", "*", "stand-in", "new:1"))
    )
    for image, client in [("kubeflownotebookswg/jupyter:v1.7.0", "old:1"), ("team/own:1", "new:1")]:
        before = pod(container({HALF: "1"}, image=image), annotations=None)
        assert inject(before, settings=settings)["spec"]["initContainers"][0]["image"] == client
    before = pod(container({HALF: "1"}), annotations={OS: "ubuntu20", VERSION: "450"})
    assert inject(before, settings=settings)["spec"]["initContainers"][0]["image"] == "old:1"


def test_a_wrong_request_of_the_notebook_is_told() -> None:
    assert "bitfusion.io/request" in refused(
        pod(container({HALF: "1"}), notebook="nb"), {REQUEST: "-p 2 -n 1"}
    )
