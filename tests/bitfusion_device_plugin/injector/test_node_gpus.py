"""`--node-gpus=hidden`: which containers get the one variable that the injector writes."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import HALF, REQUEST, Object, container, inject, named, pod

HIDDEN = InjectorSettings(hides_node_gpus=True)
NAME = "NVIDIA_VISIBLE_DEVICES"
VOID = {"name": NAME, "value": "void"}
OTHER = {"name": "A", "value": "b"}


def variables(**fields: Any) -> Any:
    """Of the container that asks, after it was injected twice."""
    sizes = {HALF: "1", **fields.pop("sizes", {})}
    made = inject(pod(container(sizes, **fields)), settings=HIDDEN)
    return made["spec"]["containers"][0].get("env")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, [VOID]),
        ({"env": None}, [VOID]),
        ({"env": []}, [VOID]),
        ({"env": [OTHER]}, [OTHER, VOID]),
        ({"env": [VOID]}, [VOID]),
        ({"env": [{"name": NAME, "value": "all"}]}, [{"name": NAME, "value": "all"}]),
        ({"env": [{"name": NAME}, OTHER]}, [{"name": NAME}, OTHER]),
        ({"env": [{"name": NAME, "valueFrom": {}}]}, [{"name": NAME, "valueFrom": {}}]),
        # nobody here can read them
        ({"envFrom": [{"configMapRef": {"name": "x"}}]}, [VOID]),
        # a card of the node, by the cluster's own choice: its device plugin says which
        ({"sizes": {"nvidia.com/gpu": "1"}}, None),
        ({"sizes": {"nvidia.com/mig-1g.5gb": "1"}}, None),
        ({"sizes": {"aliyun.com/gpu-mem": "3"}}, None),
        ({"sizes": {"nvidia.com/gpu": "1"}, "env": [OTHER]}, [OTHER]),
        ({"sizes": {"nvidia.com/gpu": "0"}}, [VOID]),
        ({"sizes": {"example.com/licence": "1"}}, [VOID]),
    ],
)
def test_a_container_that_asks_and_says_nothing_else_has_none_of_the_nodes_cards(
    before: dict[str, Any], after: object
) -> None:
    assert variables(**before) == after


def all_of(made: Object) -> list[Object]:
    return [*made["spec"]["containers"], *made["spec"]["initContainers"]]


def test_only_containers_that_ask_get_it() -> None:
    before = pod(container({HALF: "1"}), container(name="mesh"), init_containers=[container(name="prepare")])
    after = inject(before, settings=HIDDEN)
    assert [each["name"] for each in all_of(after) if VOID in (each.get("env") or ())] == ["nb"]
    assert named(after["spec"]["containers"], "mesh") == before["spec"]["containers"][1]


def test_a_size_by_annotation_asks_too() -> None:
    after = inject(pod(container(), annotations={REQUEST: "-n 1"}), settings=HIDDEN)
    assert after["spec"]["containers"][0]["env"] == [VOID]


def test_without_the_setting_no_variable_is_touched() -> None:
    after = inject(pod(container({HALF: "1"}, env=[OTHER])))
    assert after["spec"]["containers"][0]["env"] == [OTHER]
    assert "env" not in inject(pod(container({HALF: "1"})))["spec"]["containers"][0]


def test_a_setting_that_is_turned_on_later_reaches_a_pod_that_comes_again() -> None:
    first = inject(pod(container({HALF: "1"})))
    assert inject(first, settings=HIDDEN)["spec"]["containers"][0]["env"] == [VOID]
