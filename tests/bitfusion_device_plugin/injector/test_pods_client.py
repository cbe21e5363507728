"""A client of the kind `pods`: the pod takes nothing of a pool, and has the admin's settings."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.gpu_pods.settings import parse_settings, settings_from_text
from bitfusion_client.kubernetes.pod_units import units_of
from bitfusion_device_plugin.injector.injection.client_map import parse_clients
from bitfusion_device_plugin.injector.injection.gpu_nodes import GpuNodes, near_gpus
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import (
    DEFAULT_SETTINGS,
    InjectorSettings,
)
from bitfusion_device_plugin.injector.pods_webhook import asks
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    HALF,
    INJECTION,
    LOCAL_VOLUMES,
    MEMORY,
    STATUS,
    UNITS,
    WRAPPED,
    Object,
    container,
    inject,
    mounts,
    named,
    pod,
    refused,
)
from tests.bitfusion_device_plugin.injector.stage import expanded

CLIENTS = parse_clients([{"os": "*", "version": "*", "kind": "pods", "image": "registry.local/client:7"}])
SETTINGS = InjectorSettings(CLIENTS, gates=True)
STAND_IN = InjectorSettings(gates=True)


def test_the_ordinary_pod_of_a_notebook() -> None:
    before = pod(container({HALF: "2"}), notebook="nb", schedulingGates=[{"name": "example.com/x"}])
    after = inject(before, settings=SETTINGS)
    (notebook,) = after["spec"]["containers"]
    assert notebook["resources"] == {
        "limits": {"cpu": "600m", "memory": "1288490188800m"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert units_of(after) == 0
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/x"}]
    assert notebook["volumeMounts"] == [
        {"name": "bitfusion-client", "mountPath": "/bitfusion", "subPath": "nb", "readOnly": True},
        {
            "name": "bitfusion-client",
            "mountPath": "/usr/local/bin/bitfusion",
            "subPath": "nb/bin/bitfusion",
            "readOnly": True,
        },
    ]
    assert after["spec"]["volumes"] == [{"name": "bitfusion-client", "emptyDir": {"sizeLimit": "256Mi"}}]
    (init,) = after["spec"]["initContainers"]
    assert init["image"] == "registry.local/client:7"
    assert init["args"] == ["/bitfusion-volume", "nb", "-n 2 -p 0.5", "100", "pods", ""]
    assert init["volumeMounts"] == [{"name": "bitfusion-client", "mountPath": "/bitfusion-volume"}]
    assert init["resources"] == notebook["resources"]
    assert [each["name"] for each in init["env"]] == [
        *("BITFUSION_POD_NAME", "BITFUSION_POD_NAMESPACE", "BITFUSION_POD_UID", "BITFUSION_NOTEBOOK"),
        "BITFUSION_PODS",
    ]
    assert after["metadata"]["annotations"][LOCAL_VOLUMES] == "bitfusion-client"
    assert "affinity" not in after["spec"]


def settings_in(after: Object) -> str:
    """As the init container has them, when the kubelet has expanded its variables."""
    variables = named(after["spec"]["initContainers"], "bitfusion-client")["env"]
    return expanded(named(variables, "BITFUSION_PODS")["value"], {"HOME": "/root", "BITFUSION_POD_NAME": "x"})


def test_the_settings_arrive_as_the_admin_has_written_them() -> None:
    given: dict[str, Any] = {"pod": {"spec": {"nodeSelector": {"a": "$(HOME) $$ $$(HOME) ü '\" \\"}}}}
    settings = InjectorSettings(CLIENTS, pods=parse_settings(given))
    found = settings_from_text(settings_in(inject(pod(container({HALF: "1"})), settings=settings)))
    assert found == parse_settings(given)


@pytest.mark.parametrize(
    ("sizes", "request_text", "units"),
    [
        ({AMOUNT: "1", MEMORY: "8Gi"}, "-n 1 -m 8192", "0"),
        ({"bitfusion.io/gpu-900gib": "1"}, "-n 1 -m 921600", "0"),
        ({AMOUNT: "2"}, "-n 2", "200"),
    ],
)
@pytest.mark.parametrize("gpu_memory_mib", [None, 16384])
def test_what_a_gpu_of_a_pool_has_is_no_matter(
    sizes: dict[str, str], request_text: str, units: str, gpu_memory_mib: int | None
) -> None:
    settings = InjectorSettings(CLIENTS, gpu_memory_mib=gpu_memory_mib)
    after = inject(pod(container(sizes)), settings=settings)
    assert after["spec"]["initContainers"][0]["args"][2:4] == [request_text, units]


def test_a_pod_that_names_its_node_waits_for_nobody() -> None:
    before = pod(container({HALF: "1"}), nodeName="n1")
    assert "schedulingGates" not in inject(before, settings=SETTINGS)["spec"]
    assert "bypasses the scheduler" in refused(before, settings=STAND_IN)


def test_several_containers_ask_and_others_have_no_client() -> None:
    before = pod(container({HALF: "1"}, "one"), container(name="two"), container({AMOUNT: "2"}, "three"))
    after = inject(before, settings=SETTINGS)
    assert after["spec"]["containers"][1] == container(name="two")
    assert after["spec"]["initContainers"][0]["args"][1:] == [
        *("one", "-n 1 -p 0.5", "50", "pods", ""),
        *("three", "-n 2", "200", "pods", ""),
    ]


def test_a_command_is_put_under_the_client_once() -> None:
    before = pod(container({HALF: "1"}, command=["x"]), annotations=WRAPPED)
    (made,) = inject(before, settings=SETTINGS)["spec"]["containers"]
    assert made["command"][:2] == ["/bitfusion/bin/bitfusion", "run"]
    assert made["command"].count("/bitfusion/bin/bitfusion") == 1


@pytest.mark.parametrize("amount", ["0", "10", "1k"])
@pytest.mark.parametrize("later", [False, True])
def test_units_of_a_limit_range_count_nothing(amount: str, later: bool) -> None:
    """It writes its default into every container that says nothing, before this pass and after it."""
    made = pod(container({HALF: "1"}))
    if later:
        made = inject(made, settings=SETTINGS)
    for each in (*made["spec"]["containers"], *made["spec"].get("initContainers", ())):
        for part in ("limits", "requests"):
            each["resources"][part].setdefault(UNITS, amount)
    after = inject(made, settings=SETTINGS)
    assert units_of(after) == 0
    for each in (*after["spec"]["containers"], *after["spec"]["initContainers"]):
        assert {each["resources"][part][UNITS] for part in ("limits", "requests")} == {"0"}


@pytest.mark.parametrize(("first", "second"), [(SETTINGS, STAND_IN), (STAND_IN, SETTINGS)])
def test_a_map_of_clients_that_changes_between_two_passes_refuses_no_pod(
    first: InjectorSettings, second: InjectorSettings
) -> None:
    once = inject(pod(container({HALF: "1"})), settings=first)
    after = inject(once, settings=second)
    counted = second is STAND_IN
    assert units_of(after) == (50 if counted else 0)
    paths = [path for _, path, _ in mounts(after["spec"]["containers"][0])]
    identity = ["/bitfusion/identity"] if counted else []
    assert paths == ["/bitfusion", "/usr/local/bin/bitfusion", *identity]


def test_volumes_that_somebody_has_renamed_are_known_again() -> None:
    made = inject(pod(container({HALF: "1"})), settings=SETTINGS)
    renamed = json.loads(json.dumps(made).replace('"name": "bitfusion-client", "', '"name": "theirs", "'))
    assert inject(renamed, settings=SETTINGS)["spec"] == renamed["spec"]


def test_a_gpu_pod_is_left_alone() -> None:
    """An earlier release made an init container like ours. API servers without match conditions send it."""
    notebook = inject(pod(container({HALF: "1"}, "program")), settings=SETTINGS)
    made = {"apiVersion": "v1", "kind": "Pod", "spec": copy.deepcopy(notebook["spec"])}
    made["metadata"] = {"name": "p", "labels": {"bitfusion.io/gpu-pod-of": "uid"}}
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    for settings in (SETTINGS, STAND_IN, DEFAULT_SETTINGS):
        assert injected_pod(made, "ann", settings) is made
    assert not asks(made)


def test_a_container_of_that_name_in_another_kind_of_record_asks_for_nothing() -> None:
    """Somebody has taken its units out meanwhile."""
    once = inject(pod(container({HALF: "1"}), container({HALF: "1"}, "side")), settings=STAND_IN)
    for part in ("limits", "requests"):
        del once["spec"]["containers"][1]["resources"][part][UNITS]
    assert injected_pod(once, "ann", STAND_IN) != once
    args = inject(once, settings=STAND_IN)["spec"]["initContainers"][0]["args"]
    assert args[1::5] == ["nb"]


NODES = GpuNodes("nvidia.com/gpu.present", "true", "nvidia.com/gpu")
WISH: Object = {
    "weight": 100,
    "preference": {
        "matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]
    },
}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OTHER: Object = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists"}


def test_by_the_admins_choice_such_a_pod_prefers_nodes_with_gpus() -> None:
    settings = InjectorSettings(CLIENTS, near_gpus=NODES)
    after = inject(pod(container({HALF: "1"})), settings=settings)
    assert after["spec"]["affinity"] == {"nodeAffinity": {PREFERRED: [WISH]}}
    assert after["spec"]["tolerations"] == [TOLERATED]
    others = InjectorSettings(near_gpus=NODES)
    assert (
        not {"affinity", "tolerations"} & inject(pod(container({HALF: "1"})), settings=others)["spec"].keys()
    )


@pytest.mark.parametrize(
    ("spec", "nodes", "changed"),
    [
        ({}, GpuNodes(), {}),
        ({}, GpuNodes(taint="x"), {"tolerations": [{"key": "x", "operator": "Exists"}]}),
        (
            {"affinity": None},
            GpuNodes("x"),
            {
                "affinity": {
                    "nodeAffinity": {
                        PREFERRED: [
                            {
                                "weight": 100,
                                "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
                            }
                        ]
                    }
                }
            },
        ),
        (
            {
                "affinity": {"podAffinity": {"a": 1}, "nodeAffinity": {"b": 2, PREFERRED: [OTHER]}},
                "tolerations": [{"key": "a"}],
            },
            NODES,
            {
                "affinity": {"podAffinity": {"a": 1}, "nodeAffinity": {"b": 2, PREFERRED: [OTHER, WISH]}},
                "tolerations": [{"key": "a"}, TOLERATED],
            },
        ),
        (
            {
                "affinity": {"nodeAffinity": {PREFERRED: [{**WISH, "weight": 3}]}},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "x"}],
            },
            NODES,
            {},
        ),
        ({"affinity": [], "tolerations": "x"}, NODES, {"affinity": {"nodeAffinity": {PREFERRED: [WISH]}}}),
        ({"affinity": "x", "tolerations": {"a": 1}}, NODES, {}),
        ({"affinity": {"nodeAffinity": {PREFERRED: "x"}}, "tolerations": [TOLERATED]}, NODES, {}),
    ],
)
def test_what_the_pod_wishes_itself_stays(spec: Object, nodes: GpuNodes, changed: Object) -> None:
    before = copy.deepcopy(spec)
    assert near_gpus(spec, nodes) == changed
    assert spec == before
    assert near_gpus({**spec, **changed}, nodes) == {}


ANY = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "preference", "matchExpressions", "nodeAffinity", PREFERRED, "x"]), inner
        )
    ),
    max_leaves=10,
)


@given(affinity=ANY, tolerations=ANY)
def test_whatever_a_pod_wishes_a_second_pass_changes_nothing(affinity: Any, tolerations: Any) -> None:
    spec = {"affinity": affinity, "tolerations": tolerations}
    changed = near_gpus(spec, NODES)
    assert near_gpus({**spec, **changed}, NODES) == {}


def test_everything_of_an_injected_pod_is_told_by_its_annotations() -> None:
    after = inject(pod(container({HALF: "1"})), settings=SETTINGS)
    assert after["metadata"]["annotations"].keys() == {*INJECTION, STATUS, LOCAL_VOLUMES}
