"""The fuzz of the injector, shortened; and objects of any shape."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.fuzz import a_stage, check, run
from tests.bitfusion_device_plugin.injector.pods import HALF, INJECTION, container, inject, pod
from tests.bitfusion_device_plugin.injector.random_pods import random_case
from tests.bitfusion_device_plugin.injector.stage import Stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with a_stage() as made:
        yield made


def test_random_pods() -> None:
    outcomes = run(seed=2, first=0, pods=330, progress=False)
    assert outcomes["among webhooks"] > 100
    assert outcomes["command started"] > 10
    assert outcomes["injected"] > 100  # of pods that the API would have let in
    assert outcomes["refused"] > 40
    assert outcomes["unchanged"] > 40


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=20)
@given(st.randoms(use_true_random=False))
def test_random_pods_that_shrink(stage: Stage, rng: random.Random) -> None:
    check(random_case(rng), rng, stage)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
ORDINARY = pod(
    container({HALF: "1"}, command=["x"], volumeMounts=[{"name": "home", "mountPath": "/home"}]),
    annotations={**INJECTION, "auto-management/bitfusion": "all"},
    init_containers=[{"name": "init", "image": "x"}],
    volumes=[{"name": "home", "emptyDir": {}}],
)
PLACES: list[tuple[Any, ...]] = [
    *((), ("metadata",), ("metadata", "annotations"), ("metadata", "labels"), ("spec",)),
    *(
        ("spec", name)
        for name in (
            "containers",
            "initContainers",
            "volumes",
            "securityContext",
            "os",
            "schedulingGates",
            "nodeName",
        )
    ),
    *(("spec", name, 0) for name in ("containers", "initContainers", "volumes")),
    *(("spec", "containers", 0, name) for name in ("name", "image", "resources", "command", "volumeMounts")),
    ("spec", "containers", 0, "resources", "limits"),
    ("spec", "containers", 0, "resources", "requests"),
    ("spec", "containers", 0, "volumeMounts", 0),
    ("spec", "initContainers", 0, "args"),
    ("spec", "initContainers", 0, "command"),
    *(("metadata", "annotations", name) for name in ("auto-management/bitfusion", "bitfusion.io/request")),
    *(("metadata", "annotations", name) for name in ("bitfusion-client/os", "bitfusion.io/path")),
]


@settings(max_examples=60)
@pytest.mark.parametrize("injected", [False, True], ids=["first pass", "second pass"])
@given(place=st.sampled_from(PLACES), value=JSON)
def test_anything_in_any_place_is_let_through_or_told_but_never_a_crash(
    injected: bool, place: tuple[Any, ...], value: Any
) -> None:
    made: Any = copy.deepcopy(ONCE if injected else ORDINARY)
    if place:
        inner = made
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
    elif isinstance(value, dict):
        made = value
    for gates in (False, True):
        result = injected_pod(made, "ann", InjectorSettings(gates=gates))
        if isinstance(result, Refusal):
            assert len(result.message.splitlines()) == 1
        else:
            difference(made, result)


ONCE = inject(ORDINARY)
