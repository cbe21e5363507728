"""A pod comes again after other webhooks, and from who copies one that runs: what they did is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.gpu_nodes import GpuNodes
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    FILTER,
    HALF,
    INJECTION,
    REQUEST,
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

VMWARE = InjectorSettings((ClientRule("*", "*", "vmware", "packages:1", "p.deb"),))


def again(once: Object, settings: InjectorSettings = DEFAULT_SETTINGS) -> Object:
    """The pod after another pass, and that a further one changes nothing."""
    return inject(once, settings=settings)


PODS = InjectorSettings((ClientRule("*", "*", "pods", "client:1"),), near_gpus=GpuNodes("gpu", "", "gpu"))


@pytest.fixture(params=[DEFAULT_SETTINGS, VMWARE, PODS], ids=["stand-in", "vmware", "pods"])
def settings(request: pytest.FixtureRequest) -> InjectorSettings:
    return request.param  # type: ignore[no-any-return]  # pytest's


@pytest.fixture(params=[INJECTION, WRAPPED, {**INJECTION, REQUEST: "-n 3 --filter 'a=b c'"}])
def once(request: pytest.FixtureRequest, settings: InjectorSettings) -> Object:
    """A pod after the first pass."""
    before = pod(container({HALF: "1"}, command=["x"]), annotations=request.param, notebook="nb")
    return inject(before, settings=settings)


def as_the_apiserver_fills_it(made: Object) -> Object:
    """Defaults, and what its own admission puts into containers that have come since."""
    for one in made["spec"]["initContainers"] + made["spec"]["containers"]:
        one["terminationMessagePath"] = "/dev/termination-log"
        one.setdefault("volumeMounts", []).append(
            {
                "name": "kube-api-access-x",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            }
        )
        for variable in one.get("env", ()):
            variable.get("valueFrom", {}).get("fieldRef", {})["apiVersion"] = "v1"
    for volume in made["spec"]["volumes"]:
        volume.get("secret", {})["defaultMode"] = 420
    return made


def test_the_apiservers_defaults_change_nothing(once: Object, settings: InjectorSettings) -> None:
    filled = as_the_apiserver_fills_it(copy.deepcopy(once))
    assert again(filled, settings) == filled


def test_resources_that_a_limit_range_fills_in_stay(once: Object, settings: InjectorSettings) -> None:
    for one in once["spec"]["initContainers"] + once["spec"]["containers"]:
        one["resources"].setdefault("requests", {})["ephemeral-storage"] = "1Gi"
        one["resources"]["limits"]["cpu"] = "3"
    assert again(once, settings) == once


def test_an_image_from_a_mirror_stays(once: Object, settings: InjectorSettings) -> None:
    for one in once["spec"]["initContainers"]:
        one["image"] = "mirror.local/" + one["image"]
    assert again(once, settings) == once


def test_ours_is_first_again_after_another_webhook_came_before_it(
    once: Object, settings: InjectorSettings
) -> None:
    proxy = {"name": "istio-proxy", "image": "proxyv2", "restartPolicy": "Always"}
    first = list(once["spec"]["initContainers"])
    once["spec"]["initContainers"].insert(0, proxy)
    sidecar = container(name="istio")
    once["spec"]["containers"].insert(0, sidecar)
    after = again(once, settings)
    assert after["spec"]["initContainers"] == [*first, proxy]
    assert after["spec"]["containers"] == once["spec"]["containers"]


def test_a_container_that_came_since_and_asks_gets_its_own(settings: InjectorSettings) -> None:
    once = inject(pod(container({HALF: "1"})), settings=settings)
    once["spec"]["containers"].append(container({AMOUNT: "1"}, "late"))
    after = again(once, settings)
    words = after["spec"]["initContainers"][0]["args"]
    assert [words[1:4], words[6:9]] == [["nb", "-n 1 -p 0.5", "50"], ["late", "-n 1", "100"]]
    assert mounts(named(after["spec"]["containers"], "late"))[0] == ("bitfusion-client", "/bitfusion", "late")
    assert named(after["spec"]["containers"], "nb") == named(once["spec"]["containers"], "nb")


def test_a_container_that_is_gone_is_installed_for_no_more() -> None:
    once = inject(pod(container({HALF: "1"}, "a"), container({AMOUNT: "1"}, "b")))
    del once["spec"]["containers"][0]
    assert again(once)["spec"]["initContainers"][0]["args"][1:3] == ["b", "-n 1"]


def test_a_mount_taken_away_comes_back_and_one_that_came_in_the_way_is_respected() -> None:
    once = inject(pod(container({HALF: "1"})))
    (one,) = once["spec"]["containers"]
    one["volumeMounts"] = [{"name": "tools", "mountPath": "/usr/local/"}, *one["volumeMounts"][1:]]
    (after,) = again(once)["spec"]["containers"]
    assert mounts(after) == [
        ("tools", "/usr/local/", ""),
        ("bitfusion-identity", "/bitfusion/identity", ""),
        ("bitfusion-client", "/bitfusion", "nb"),
    ]
    one["volumeMounts"].append({"name": "tools", "mountPath": "/bitfusion/bin"})
    assert refused(once).startswith('mountPath /bitfusion/bin of container "nb" is the place of the client')


def test_a_mount_of_ours_that_was_changed_is_put_right() -> None:
    once = inject(pod(container({HALF: "1"})))
    for change in (
        {"readOnly": False},
        {"subPath": "x"},
        {"name": "bitfusion-identity"},
        {"subPathExpr": "x"},
    ):
        changed = copy.deepcopy(once)
        changed["spec"]["containers"][0]["volumeMounts"][0].update(change)
        assert again(changed) == once


def test_units_that_were_changed_are_put_right() -> None:
    once = inject(pod(container({HALF: "1"})))
    once["spec"]["containers"][0]["resources"]["limits"][UNITS] = "1"
    assert again(once)["spec"]["containers"][0]["resources"]["limits"][UNITS] == "50"


def test_filters_with_a_dollar_come_back_as_they_were() -> None:
    once = inject(pod(container({HALF: "1"}), annotations={**INJECTION, FILTER: "a=$$(b)$"}))
    assert "a=$$$$(b)$$" in once["spec"]["initContainers"][0]["args"][2]


def test_the_longest_annotations_are_remembered() -> None:
    long = "-n 1 " + " ".join(f"--filter 'a={number:03} b'" for number in range(200))
    once = inject(
        pod(container(), annotations={**INJECTION, REQUEST: long[:4000].rpartition(" --filter")[0]})
    )
    del once["metadata"]["annotations"][REQUEST]
    assert again(once)["spec"] == once["spec"]


@pytest.mark.parametrize(
    "words",
    [
        ["nb", "-n 1", "100", "stand-in", ""] * 17,
        ["nb", "-n 1 --filter a=" + "b" * (1 << 18), "100", "stand-in", ""],
        ["nb", "-n 1", "100", "stand-in"],
        ["nb", "-n one", "100", "stand-in", ""],
        ["nb", None, "100", "stand-in", ""],
    ],
)
def test_arguments_that_no_pass_has_written_are_not_read(words: list[Any]) -> None:
    once = inject(pod(container({HALF: "1"}), annotations=INJECTION))
    once["spec"]["initContainers"][0]["args"][1:] = words
    once["spec"]["containers"].append(container({HALF: "1"}, "late"))
    assert refused(once).startswith('init container "bitfusion-client" has the name of the injector\'s own')


def test_as_many_containers_as_may_ask_are_remembered_with_the_longest_annotations() -> None:
    servers = ";".join(f"h{number}:1" for number in range(550))
    annotations = {
        **INJECTION,
        REQUEST: f"-n 1 --server_list {servers}",
        FILTER: " ".join(["a='$'"] * 160),  # quoted again in the arguments
    }
    containers = [container({HALF: "1"}, f"c{number}") for number in range(15)]
    inject(pod(container({HALF: "1"}), *containers, annotations=annotations, notebook="nb"))


def test_a_pod_copied_from_a_running_one_is_not_injected_twice() -> None:
    once = as_the_apiserver_fills_it(inject(pod(container({HALF: "1"}))))
    once["spec"]["nodeName"] = "n1"
    once["status"] = {"phase": "Running"}
    assert injected_pod(once, "ann") == once


def test_the_status_alone_says_nothing() -> None:
    before = pod(container({HALF: "1"}), annotations={**INJECTION, "auto-management/status": "injected"})
    assert inject(before)["spec"]["initContainers"][0]["name"] == "bitfusion-client"


def test_a_patch_of_the_second_pass_says_what_has_changed_only() -> None:
    once = inject(pod(container({HALF: "1"})))
    once["spec"]["initContainers"].insert(0, {"name": "istio-init", "image": "x"})
    patch: list[Any] = difference(once, injected_pod(once, "ann"))
    assert [(operation["op"], operation["path"]) for operation in patch] == [
        ("remove", "/spec/initContainers/1"),
        ("add", "/spec/initContainers/0"),
    ]
