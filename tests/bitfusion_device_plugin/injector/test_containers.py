"""What a container that asks gets: units, mounts, and with ``all`` its command under the client."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    HALF,
    INJECTION,
    PERCENT,
    REQUEST,
    UNITS,
    WRAPPED,
    container,
    inject,
    named,
    pod,
)

VMWARE = InjectorSettings((ClientRule("*", "*", "vmware", "packages:1", "p.deb"),), gpu_memory_mib=16160)


@pytest.mark.parametrize(
    ("sizes", "request_", "units"),
    [
        ({AMOUNT: "1"}, None, "100"),
        ({AMOUNT: "3"}, None, "300"),
        ({AMOUNT: "2", PERCENT: "37"}, None, "74"),
        ({"bitfusion.io/gpu-1": "1"}, None, "1"),
        ({"bitfusion.io/gpu-29": "1"}, None, "29"),
        ({}, "-n 1 -p 0.001", "1"),
        ({}, "-n 3 -p 0.335", "101"),  # 100.5
        ({}, "-n 1 -p 0.29", "29"),
        ({"bitfusion.io/gpu-8gib": "1"}, None, "51"),  # 8192 of 16160 MiB are 50.7 %
        ({"bitfusion.io/gpu-8gib": "2"}, None, "102"),
        ({"bitfusion.io/gpu-16160mib": "1"}, None, "100"),
        ({"bitfusion.io/gpu-3x50": "1"}, None, "150"),
        ({"bitfusion.io/gpu-3x50": "2"}, None, "300"),
        ({"bitfusion.io/gpu-3x100": "1"}, None, "300"),
        ({"bitfusion.io/gpu-2x8gib": "1"}, None, "102"),
    ],
)
def test_units_are_percent_times_gpus_rounded_up(sizes: Any, request_: str | None, units: str) -> None:
    annotations = {**INJECTION, **({REQUEST: request_} if request_ else {})}
    spec = inject(pod(container(sizes), annotations=annotations), settings=VMWARE)["spec"]
    assert spec["containers"][0]["resources"]["limits"][UNITS] == units
    assert spec["initContainers"][0]["args"][3] == units


def test_other_resources_stay_as_they_are_written() -> None:
    resources = {
        "claims": [{"name": "x"}],
        "limits": {"nvidia.com/gpu": 1, "memory": "1.5Gi", HALF: "1"},
        "requests": {"hugepages-2Mi": "2Mi"},
    }
    before = pod({"name": "nb", "image": "x", "resources": resources})
    after = inject(before)["spec"]
    assert after["containers"][0]["resources"] == {
        "claims": [{"name": "x"}],
        "limits": {"nvidia.com/gpu": 1, "memory": "1.5Gi", UNITS: "50"},
        "requests": {"hugepages-2Mi": "2Mi"},
    }
    assert after["initContainers"][0]["resources"] == {"limits": {"memory": "1.5Gi"}}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (InjectorSettings(), "512Mi"),
        (VMWARE, "8Gi"),
        (InjectorSettings(volume_mib=1000), "2000Mi"),
        (InjectorSettings(VMWARE.clients, volume_mib=6144), "12Gi"),
    ],
)
def test_the_volume_has_a_size_limit_for_each_container_that_asks(
    settings: InjectorSettings, limit: str
) -> None:
    before = pod(container({HALF: "1"}), container({HALF: "1"}, "b"), container(name="c"))
    volume = named(inject(before, settings=settings)["spec"]["volumes"], "bitfusion-client")
    assert volume["emptyDir"] == {"sizeLimit": limit}


BIN, TLS = "/usr/local/bin/bitfusion", "/etc/bitfusion/tls"


@pytest.mark.parametrize(
    ("own", "left_out"),
    [
        ("/home/jovyan", set()),
        ("/usr/local/bin/bitfusion2", set()),
        ("/usr/local/bin/bitfusion", {BIN}),
        ("/usr/local/bin/bitfusion/x", {BIN}),
        ("/usr/local/bin", {BIN}),
        ("/usr/local/bin/", {BIN}),
        ("usr//local/./bin", {BIN}),
        ("/usr", {BIN}),
        ("/etc/bitfusion", {TLS}),
        ("/etc/bitfusion/tls/ca.crt", {TLS}),
        ("/etc/bitfusion/client.yaml", set()),
        ("/bitfusion2", set()),
        ("/data/bitfusion", set()),
    ],
)
def test_what_the_container_mounts_itself_wins(own: str, left_out: set[str]) -> None:
    before = pod(container({HALF: "1"}, volumeMounts=[{"name": "mine", "mountPath": own}]))
    (made,) = inject(before, settings=VMWARE)["spec"]["containers"]
    paths = [mount["mountPath"] for mount in made["volumeMounts"]]
    wanted = [path for path in ("/bitfusion", BIN, "/bitfusion/identity", TLS) if path not in left_out]
    assert paths == [own, *wanted]
    assert all(mount["readOnly"] for mount in made["volumeMounts"][1:])


def test_another_container_may_mount_what_it_likes() -> None:
    other = container(name="other", volumeMounts=[{"name": "mine", "mountPath": "/bitfusion"}])
    assert inject(pod(container({HALF: "1"}), other))["spec"]["containers"][1] == other


@pytest.mark.parametrize(
    ("command", "args", "after"),
    [
        (["python", "x.py"], None, ["python", "x.py"]),
        (["python"], ["x.py"], ["python"]),
        (["/init"], None, ["/init"]),
        (["my program"], None, ["/usr/bin/env", "my program"]),  # the client would split it
        (["my program"], ["a"], ["my program"]),
        (["$(PROGRAM)", "$(A)", "$$x"], None, ["$(PROGRAM)", "$(A)", "$$x"]),
        (["sh", "-c", 'exec "$@"', "--"], ["a b"], ["sh", "-c", 'exec "$@"', "--"]),
        (["--"], ["a"], ["--"]),
        (["x"] * 5000, None, ["x"] * 5000),
    ],
)
def test_the_command_under_the_client(command: list[str], args: Any, after: list[str]) -> None:
    fields = {} if args is None else {"args": args}
    before = pod(container({AMOUNT: "2"}, command=command, **fields), annotations=WRAPPED)
    (made,) = inject(before)["spec"]["containers"]
    assert made["command"] == ["/bitfusion/bin/bitfusion", "run", "-n", "2", "--", *after]
    assert made.get("args") == args


def test_servers_and_time_limit_of_an_annotation_reach_the_command() -> None:
    annotations = {**WRAPPED, REQUEST: "-n 1 --server_list 'a:1;b:2' --timeout 30m --filter 'x=a b'"}
    (made,) = inject(pod(container(command=["x"]), annotations=annotations))["spec"]["containers"]
    assert made["command"][2:-2] == [
        *("-n", "1", "--filter", "x=a b", "--server_list", "a:1;b:2", "--timeout", "30m")
    ]


@pytest.mark.parametrize(
    ("security", "user"),
    [(None, 65532), ({}, 65532), ({"runAsUser": 0}, 65532), ({"runAsUser": 1000}, None)],
)
def test_our_init_container_runs_as_the_pods_user_if_that_is_not_root(
    security: Any, user: int | None
) -> None:
    before = pod(container({HALF: "1"}), **({} if security is None else {"securityContext": security}))
    context = inject(before)["spec"]["initContainers"][0]["securityContext"]
    assert context.get("runAsUser") == user
    assert context["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("of_pod", "of_container", "user"),
    [(None, 1_000_650_000, 1_000_650_000), (1000, 2000, None), (0, 2000, 2000), (None, 0, 65532)],
)
def test_where_the_pod_names_no_user_ours_is_that_of_the_container_that_asks(
    of_pod: int | None, of_container: int, user: int | None
) -> None:
    """OpenShift lets in only users of the namespace's range, and has written one into the container."""
    asking = container({HALF: "1"}, securityContext={"runAsUser": of_container})
    before = pod({"name": "other", "image": "i"}, asking, securityContext={"runAsUser": of_pod})
    context = inject(before)["spec"]["initContainers"][0]["securityContext"]
    assert context.get("runAsUser") == user


def test_the_rest_of_a_pods_spec_is_not_the_injectors() -> None:
    rest: dict[str, Any] = {
        "nodeName": "n1",
        "runtimeClassName": "gvisor",
        "hostNetwork": True,
        "shareProcessNamespace": True,
        "os": {"name": "linux"},
        "ephemeralContainers": [{"name": "debug", "image": "x", "resources": {"limits": {HALF: "1"}}}],
        "schedulingGates": [{"name": "x"}],
    }
    after = inject(pod(container({HALF: "1"}), **rest))["spec"]
    assert {key: after[key] for key in rest} == rest
    assert set(after) == {*rest, "containers", "initContainers", "volumes"}
