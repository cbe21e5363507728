"""Pods into which a LimitRange has written its defaults, before the injector sees them or after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bitfusion_client.kubernetes.pod_units import units_of
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    HALF,
    INJECTION,
    MEMORY,
    PERCENT,
    REQUEST,
    UNITS,
    Object,
    container,
    inject,
    pod,
    refused,
)
from tests.bitfusion_device_plugin.injector.random_pods import VMWARE

NONE = ("0", 0, "0m", "0e3", "0Ki", "0.0")


def ours(made: Object) -> list[Object]:
    """The resources of our init containers."""
    return [each["resources"] for each in made["spec"]["initContainers"] if "bitfusion" in each["name"]]


def amounts(resources: Object) -> tuple[Any, Any]:
    return resources["limits"].get(UNITS), resources["requests"].get(UNITS)


@pytest.mark.parametrize("settings", [InjectorSettings(), InjectorSettings((VMWARE,))], ids=["", "vmware"])
@pytest.mark.parametrize(
    ("default", "said"),
    [
        ({}, (None, None)),
        ({"limits": "0", "requests": "0"}, ("0", "0")),
        ({"limits": "0e3", "requests": "0Ki"}, ("0", "0")),
        ({"limits": "100", "requests": "100"}, ("50", "50")),
        ({"limits": "10", "requests": "10"}, ("10", "10")),
        ({"limits": "1k"}, ("50", "50")),
        ({"requests": "10"}, ("10", "10")),
        ({"limits": "50"}, ("50", "50")),
    ],
)
def test_ours_say_the_default_and_never_more_than_is_asked_for(
    default: dict[str, str], said: tuple[Any, Any], settings: InjectorSettings
) -> None:
    before = pod(container({HALF: "1"}))
    for part, value in default.items():
        before["spec"]["containers"][0]["resources"][part][UNITS] = value
    after = inject(before, settings=settings)
    assert {amounts(each) for each in ours(after)} == {said}
    assert units_of(after) == 50
    assert after["spec"]["containers"][0]["resources"]["limits"][UNITS] == "50"


def defaulted(made: Object, amount: str) -> Object:
    """As LimitRanger leaves a pod."""
    made = copy.deepcopy(made)
    for each in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        for part in ("limits", "requests"):
            each["resources"][part].setdefault(UNITS, amount)
    return made


@pytest.mark.parametrize(("amount", "said"), [("100", "50"), ("10", "10"), ("0", "0")])
@pytest.mark.parametrize("settings", [InjectorSettings(), InjectorSettings((VMWARE,))], ids=["", "vmware"])
def test_what_came_into_ours_later_outweighs_nothing(
    amount: str, said: str, settings: InjectorSettings
) -> None:
    restored = defaulted(inject(pod(container({HALF: "1"})), settings=settings), amount)
    after = inject(restored, settings=settings)
    assert {amounts(each) for each in ours(after)} == {(said, said)}
    assert units_of(after) == 50


@pytest.mark.parametrize("none", NONE)
@pytest.mark.parametrize("key", [UNITS, HALF, AMOUNT, "bitfusion.io/gpu-x"])
@pytest.mark.parametrize("annotations", [None, INJECTION], ids=["", "annotation"])
def test_a_pod_that_asks_for_none_is_left_alone(key: str, none: object, annotations: Any) -> None:
    before = pod(
        container({key: none}),
        container({key: none}, "mesh"),
        annotations=annotations,
        init_containers=[container({key: none}, "prepare")],
    )
    assert injected_pod(before, "ann") is before


@pytest.mark.parametrize("none", NONE)
def test_a_size_beside_nothing_of_others_is_the_size(none: object) -> None:
    before = pod(
        container({HALF: "1", AMOUNT: none, UNITS: none}),
        container({HALF: none, UNITS: none}, "mesh"),
        init_containers=[container({HALF: none}, "prepare")],
    )
    after = inject(before)
    assert after["spec"]["containers"][1] == before["spec"]["containers"][1]
    assert after["spec"]["initContainers"][1] == before["spec"]["initContainers"][0]
    limits = after["spec"]["containers"][0]["resources"]["limits"]
    assert [name for name in limits if "bitfusion" in name] == [UNITS]
    assert (limits[UNITS], units_of(after)) == ("50", 50)


@pytest.mark.parametrize(
    "sizes",
    [{AMOUNT: "0", PERCENT: "50"}, {AMOUNT: "0", MEMORY: "8Gi"}, {PERCENT: "0"}, {PERCENT: "0", MEMORY: "0"}],
)
def test_a_part_of_no_gpu_is_none(sizes: dict[str, str]) -> None:
    before = pod(container(sizes))
    assert injected_pod(before, "ann") is before


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({AMOUNT: "1", PERCENT: "0"}, 'Invalid value "0" for bitfusion.io/gpu-percent'),
        ({AMOUNT: "1", MEMORY: "0"}, 'Invalid value "0" for bitfusion.io/gpu-memory'),
        ({PERCENT: "50"}, "bitfusion.io/gpu-percent also needs bitfusion.io/gpu-amount"),
        ({HALF: "1", PERCENT: "0"}, "is a second size in addition to bitfusion.io/gpu-50"),
        ({HALF: "1m"}, 'Invalid value "1m" for bitfusion.io/gpu-50'),
        ({HALF: "-0.1"}, 'Invalid value "-0.1" for bitfusion.io/gpu-50'),
    ],
)
def test_what_is_not_quite_nothing_is_told(sizes: dict[str, str], words: str) -> None:
    assert words in refused(pod(container(sizes)))


def test_units_in_a_pod_that_wants_a_client_are_still_told() -> None:
    assert "is what the cluster counts" in refused(pod(container({UNITS: "50"})))


def test_the_annotation_of_a_request_overrides_a_default_of_nothing() -> None:
    after = inject(pod(container({UNITS: "0", HALF: "0"}), annotations={REQUEST: "-n 1 -p 0.25"}))
    assert after["spec"]["containers"][0]["resources"]["limits"][UNITS] == "25"
    assert [amounts(each) for each in ours(after)] == [("0", "0")]
