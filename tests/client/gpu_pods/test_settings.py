"""The admin's settings for GPU pods: read, refused in words, written as JSON and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bitfusion_client.errors import WrongSetting
from bitfusion_client.gpu_pods.settings import (
    DEFAULT_SETTINGS,
    LONGEST_TEXT,
    PodSettings,
    parse_settings,
    settings_from_text,
)
from bitfusion_client.request.gpu_request import GpuRequest

ALL = {
    "rules": [{"name": "a", "serves": {"whole": True, "share": {"least": 0.25}}}],
    "port": 9000,
    "deadline": "12h",
    "cpu": 4,
    "memory": "16Gi",
    "queues": {"team-a": "a-gpus", "*": "gpus"},
    "images": [{"image": "team/*:cpu", "gpu_image": "team/cuda"}],
    "labels": ["access-ml-pipeline"],
    "rwo_anywhere": ["nfs-client"],
    "pod": {"spec": {"nodeSelector": {"gpu": "true"}}},
}


@pytest.mark.parametrize("nothing", [None, {}, {"rules": None, "port": None}, {"rules": []}])
def test_an_empty_file_is_whole_gpus(nothing: Any) -> None:
    settings = parse_settings(nothing)
    assert settings == DEFAULT_SETTINGS
    assert [rule.name for rule in settings.rules] == ["whole"]
    assert settings.rules[0].serves(GpuRequest(8))
    assert not settings.rules[0].serves(GpuRequest(1, 0.5))


def test_every_field_is_read() -> None:
    settings = parse_settings(ALL)
    assert (settings.port, settings.deadline_s, settings.cpu, settings.memory) == (9000, 43200, "4", "16Gi")
    assert settings.labels == ("access-ml-pipeline",)
    assert settings.pod == ALL["pod"]


def test_they_read_back_from_their_json() -> None:
    for settings in (parse_settings(ALL), DEFAULT_SETTINGS, parse_settings({"rwo_anywhere": True})):
        assert settings_from_text(settings.to_text()) == settings
        assert json.loads(settings.to_text()) == settings.to_json()
        assert "\n" not in settings.to_text()
    assert settings_from_text(" \n") == DEFAULT_SETTINGS


@pytest.mark.parametrize(
    ("namespace", "queue"), [("team-a", "a-gpus"), ("team-b", "gpus"), ("", "gpus"), ("*", "gpus")]
)
def test_the_queue_of_a_namespace(namespace: str, queue: str) -> None:
    assert parse_settings(ALL).queue_of(namespace) == queue
    assert DEFAULT_SETTINGS.queue_of(namespace) == ""


@pytest.mark.parametrize(
    ("image", "twin"),
    [
        ("team/notebook:cpu", "team/cuda"),
        ("registry.example.org/team/notebook:cpu", "team/cuda"),
        ("team/notebook:cpu@sha256:0", "team/cuda"),
        ("team/notebook:gpu", ""),
        ("otherteam/notebook:cpu", ""),
        ("", ""),
        ("team/" * 100_000, ""),
    ],
)
def test_the_gpu_twin_of_an_image(image: str, twin: str) -> None:
    assert parse_settings(ALL).gpu_image_of(image) == twin
    assert DEFAULT_SETTINGS.gpu_image_of(image) == ""


def test_storage_that_mounts_anywhere() -> None:
    assert parse_settings(ALL).mounts_anywhere("nfs-client")
    assert not parse_settings(ALL).mounts_anywhere("standard")
    assert parse_settings({"rwo_anywhere": True}).mounts_anywhere("standard")
    assert not DEFAULT_SETTINGS.mounts_anywhere("standard")


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("ports", 1, "ports"),
        ("port", 80, "port"),
        ("port", "8778", "port"),
        ("port", True, "port"),
        ("deadline", "10s", "deadline"),
        ("deadline", -1, "deadline"),
        ("deadline", "forever", "deadline"),
        ("deadline", 10**400, "deadline"),
        ("cpu", 0, "cpu"),
        ("cpu", "many", "cpu"),
        ("memory", "-1Gi", "memory"),
        ("memory", "1" * 64, "memory"),
        ("queues", [], "queues"),
        ("queues", {"Team": "a"}, "queues"),
        ("queues", {"a": "no queue"}, "queues.a"),
        ("queues", {str(number): "a" for number in range(2001)}, "queues"),
        ("images", {}, "images"),
        ("images", [{"image": "a"}], "images[0].gpu_image"),
        ("images", [{"image": "a@sha256:0", "gpu_image": "a"}], "images[0].image"),
        ("images", [{"image": "a b", "gpu_image": "a"}], "images[0].image"),
        ("images", [{"image": "a", "gpu_image": "a"}] * 201, "images"),
        ("labels", ["statefulset"], "labels[0]"),
        ("labels", ["bitfusion.io/requested"], "labels[0]"),
        ("labels", "app", "labels"),
        ("rwo_anywhere", "nfs", "rwo_anywhere"),
        ("rwo_anywhere", [7], "rwo_anywhere[0]"),
        ("pod", {"spec": {"nodeName": "n1"}}, "pod.spec.nodeName"),
        ("pod", {"metadata": {"annotations": {"a": "{gpus}"}}}, "pod.metadata.annotations.a"),
        ("rules", {}, "rules"),
        ("rules", [7], "rules[0]"),
    ],
)
def test_a_wrong_value_is_named_by_its_field(field: str, value: Any, place: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_settings({field: value}, "pods.yaml")
    assert caught.value.name == place
    assert "(from pods.yaml)" in caught.value.user_message
    assert len(caught.value.user_message) < 2000


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "7", "[]", '"' + "a" * LONGEST_TEXT + '"', "\0"])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WrongSetting):
        settings_from_text(text, "pods.json")


def test_all_of_it_is_bounded() -> None:
    rules = [
        {
            "name": str(number),
            "serves": {"whole": True},
            "pod": {"metadata": {"annotations": {str(each): "a" * 1000 for each in range(10)}}},
        }
        for number in range(10)
    ]
    with pytest.raises(WrongSetting, match="too long"):
        parse_settings({"rules": rules})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*ALL, "image", "gpu_image", "*", "name", "serves"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@example({"rwo_anywhere": []})
@given(JSON | st.dictionaries(st.sampled_from(list(ALL)), JSON, max_size=4))
def test_whatever_stands_there_is_read_or_refused_in_words(data: Any) -> None:
    settings: PodSettings | None = None
    try:
        settings = parse_settings(data)
    except WrongSetting as error:
        told = error.user_message
    if settings is None:
        assert len(told.splitlines()) == 1
    else:
        assert settings_from_text(settings.to_text()) == settings
