"""What a fragment of a pod may have, and how numbers are put into it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import WrongSetting
from bitfusion_client.gpu_pods.fragments import (
    PLACEHOLDERS,
    extended_resources,
    filled,
    parse_container_fragment,
    parse_pod_fragment,
    placeholders_in,
)
from bitfusion_client.gpu_pods.values import Place

POD, CONTAINER = Place("pod"), Place("container")
NUMBERS = {"{gpus}": "2", "{percent}": "50", "{memory_mib}": "8192", "{share}": "0.5"}


def test_a_value_that_is_a_placeholder_becomes_a_number_wherever_it_stands() -> None:
    fragment = parse_pod_fragment(
        {
            "metadata": {"annotations": {"gpu-fraction": "{share}"}, "labels": {"n": "{gpus}"}},
            "spec": {"tolerations": [{"key": "a", "value": "{percent}"}]},
        },
        POD,
    )
    assert placeholders_in(fragment) == {"{share}", "{gpus}", "{percent}"}
    assert filled(fragment, NUMBERS) == {
        "metadata": {"labels": {"n": "2"}, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"tolerations": [{"key": "a", "value": "50"}]},
    }


@pytest.mark.parametrize(
    "value", ["{gpus}0", " {gpus}", "{{gpus}}", "{}", "{gpu}", "{gpus:>9}", "{0.__class__}", "a}", '{"a": 1}']
)
def test_other_braces_are_refused(value: str) -> None:
    with pytest.raises(WrongSetting, match="braces"):
        parse_pod_fragment({"metadata": {"annotations": {"a": value}}}, POD)
    with pytest.raises(WrongSetting, match="braces"):
        parse_container_fragment({"env": [{"name": "A", "value": value}]}, CONTAINER)


@pytest.mark.parametrize("number", PLACEHOLDERS)
def test_a_fragment_of_all_pods_has_no_numbers(number: str) -> None:
    with pytest.raises(WrongSetting, match="all GPU pods"):
        parse_pod_fragment({"metadata": {"annotations": {"a": number}}}, POD, numbers=False)


def test_names_have_no_braces() -> None:
    with pytest.raises(WrongSetting, match="name with braces"):
        parse_container_fragment({"resources": {"limits": {"a.org/{gpus}": "1"}}}, CONTAINER)


@pytest.mark.parametrize(
    ("fragment", "place"),
    [
        ({"spec": {"containers": []}}, "pod.spec.containers"),
        ({"spec": {"initContainers": []}}, "pod.spec.initContainers"),
        ({"spec": {"volumes": []}}, "pod.spec.volumes"),
        ({"spec": {"restartPolicy": "Always"}}, "pod.spec.restartPolicy"),
        ({"spec": {"nodeName": "n1"}}, "pod.spec.nodeName"),
        ({"spec": {"hostNetwork": True}}, "pod.spec.hostNetwork"),
        ({"spec": {"securityContext": {}}}, "pod.spec.securityContext"),
        ({"spec": {"serviceAccountName": "a"}}, "pod.spec.serviceAccountName"),
        ({"spec": {"affinity": {"podAffinity": {}}}}, "pod.spec.affinity"),
        ({"spec": {"schedulerName": 7}}, "pod.spec.schedulerName"),
        ({"spec": {"tolerations": {}}}, "pod.spec.tolerations"),
        ({"spec": {"tolerations": ["a"]}}, "pod.spec.tolerations[0]"),
        ({"spec": {"nodeSelector": {"a": True}}}, "pod.spec.nodeSelector.a"),
        ({"metadata": {"name": "a"}}, "pod.metadata.name"),
        ({"metadata": {"namespace": "a"}}, "pod.metadata.namespace"),
        ({"metadata": {"ownerReferences": []}}, "pod.metadata.ownerReferences"),
        ({"metadata": {"labels": {"statefulset": "a"}}}, "pod.metadata.labels.statefulset"),
        (
            {"metadata": {"labels": {"bitfusion.io/gpu-pod-of": "a"}}},
            "pod.metadata.labels.bitfusion.io/gpu-pod-of",
        ),
        (
            {"metadata": {"annotations": {"bitfusion.io/holds": "a"}}},
            "pod.metadata.annotations.bitfusion.io/holds",
        ),
        ({"metadata": {"annotations": {"a": 1}}}, "pod.metadata.annotations.a"),
        ({"kind": "Pod"}, "pod.kind"),
        ([], "pod"),
    ],
)
def test_what_would_make_another_pod_of_it_is_no_field(fragment: Any, place: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_pod_fragment(fragment, POD)
    assert caught.value.name == place


@pytest.mark.parametrize(
    ("fragment", "place"),
    [
        *(
            ({name: value}, f"container.{name}")
            for name, value in [("command", []), ("args", []), ("image", "a")]
        ),
        *(({name: []}, f"container.{name}") for name in ("volumeMounts", "ports", "securityContext", "name")),
        ({"resources": {"limits": {"bitfusion.io/gpu": 1}}}, "container.resources.limits.bitfusion.io/gpu"),
        ({"resources": {"limits": {"a": True}}}, "container.resources.limits.a"),
        ({"resources": {"limits": {"a": [1]}}}, "container.resources.limits.a"),
        ({"env": [{"name": "BITFUSION_PODS", "value": ""}]}, "container.env[0].name"),
        ({"env": [{"name": "A", "value": 1}]}, "container.env[0].value"),
        ({"env": [{"name": "A", "valueFrom": {}}]}, "container.env[0].valueFrom"),
        ({"env": [{"value": "a"}]}, "container.env[0].name"),
    ],
)
def test_what_would_make_another_program_of_it_is_no_field(fragment: Any, place: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_container_fragment(fragment, CONTAINER)
    assert caught.value.name == place


def nested(levels: int) -> Any:
    value: Any = "a"
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "fragment",
    [
        {"spec": {"affinity": {"nodeAffinity": nested(10)}}},
        {"spec": {"affinity": {"nodeAffinity": nested(100_000)}}},
        {"spec": {"tolerations": [{"key": "a"}] * 33}},
        {"metadata": {"labels": {str(number): "a" for number in range(500)}}},
        {"metadata": {"annotations": {"a": "a" * 1025}}},
        {"metadata": {"annotations": {"a" * 318: "a"}}},
        {"metadata": {"annotations": {"a": "a\nb"}}},
        {"metadata": {"annotations": {7: "a"}}},
        {"spec": {"tolerations": [{"tolerationSeconds": float("inf")}]}},
        {"spec": {"tolerations": [{"tolerationSeconds": 10**5000}]}},
        {"spec": {"tolerations": [{"key": object()}]}},
    ],
)
def test_every_list_and_text_is_bounded(fragment: Any) -> None:
    with pytest.raises(WrongSetting):
        parse_pod_fragment(fragment, POD)


def test_amounts_become_text() -> None:
    fragment = parse_container_fragment({"resources": {"limits": {"a": 1, "b": 0.5, "cpu": "2"}}}, CONTAINER)
    assert fragment == {"resources": {"limits": {"a": "1", "b": "0.5", "cpu": "2"}}}
    assert extended_resources(fragment) == ("a", "b")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(PLACEHOLDERS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "labels", "tolerations", "resources", "limits", "env", "name", "{a}"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_whatever_stands_there_is_read_or_refused_in_words(value: Any) -> None:
    for parse, place in ((parse_pod_fragment, POD), (parse_container_fragment, CONTAINER)):
        try:
            fragment = parse(value, place)
        except WrongSetting as error:
            told = error.user_message
            assert len(told.splitlines()) == 1
        else:
            assert "{" not in "".join(map(str, _texts(filled(fragment, NUMBERS))))
            assert parse(fragment, place) == fragment


def _texts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value]
