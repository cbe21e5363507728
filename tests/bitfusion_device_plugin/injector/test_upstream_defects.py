"""What was wrong in VMware's injector, each with its letter (a to o) or in words: here it is right.

The letters are those of the project's notes on its source (``webhook/pkg/webhook/util.go`` and ``webhook.go``
of vSphere Bitfusion's device plugin for Kubernetes).
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonpatch
import pytest

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    FILTER,
    HALF,
    INJECTION,
    MANAGEMENT,
    MEMORY,
    OS,
    UNITS,
    VERSION,
    WRAPPED,
    WRITTEN,
    Object,
    container,
    inject,
    mounts,
    named,
    pod,
    refused,
)

RUN = ["/bitfusion/bin/bitfusion", "run", "-n", "1", "-p", "0.5", "--"]
VMWARE = ClientRule(
    "ubuntu22", "454", "vmware", "registry.local/bitfusion:1", "bitfusion-client-ubuntu2204_4.5.4-1_amd64.deb"
)


def wrapped(command: list[str], **fields: Any) -> Object:
    """The container that asks, after its command was put under the client."""
    after = inject(pod(container({HALF: "1"}, command=command, **fields), annotations=WRAPPED))
    return dict(after["spec"]["containers"][0])


@pytest.mark.parametrize(
    "command",
    [
        ["python", "x.py", "--a"],
        ["/bin/sh", "-c", "python x.py"],
        ["/bin/bash", "-c", "python x.py"],
        ["bash", "-c", "python x.py"],
        ["sh", "-c", "a", "--", "b"],
        ["python"],
    ],
)
def test_a_each_word_of_a_command_stays_a_word_and_one_separator_precedes_it(command: list[str]) -> None:
    assert wrapped(command)["command"] == RUN + command


@pytest.mark.parametrize("line", ["a && b", "a | b; c > d", "echo $HOME `id` $(id)", "it's", "a\nb"])
def test_b_a_shells_line_stays_one_argument_of_its_shell(line: str) -> None:
    assert wrapped(["sh", "-c", line])["command"] == [*RUN, "sh", "-c", line]


def test_c_arguments_stay_arguments() -> None:
    made = wrapped(["python"], args=["x.py", "a b"])
    assert made["command"] == [*RUN, "python"]
    assert made["args"] == ["x.py", "a b"]


def test_d_without_a_command_the_size_still_becomes_units() -> None:
    (made,) = inject(pod(container({AMOUNT: "2"})))["spec"]["containers"]
    assert made["resources"]["limits"][UNITS] == "200"
    assert not [
        key for key in json.dumps(made["resources"]).split('"') if key.startswith("bitfusion.io/gpu-")
    ]


def test_e_another_container_with_a_command_and_no_gpu_is_not_refused_nor_touched() -> None:
    sidecar = container(name="istio-proxy", command=["pilot-agent"], args=["proxy"])
    after = inject(pod(container({HALF: "1"}, command=["x"]), sidecar, annotations=WRAPPED))
    assert named(after["spec"]["containers"], "istio-proxy") == sidecar


@pytest.mark.parametrize("place", [0, 1, 2])
def test_f_the_container_that_asks_may_stand_anywhere(place: int) -> None:
    containers = [container(name=f"c{number}") for number in range(3)]
    containers[place] = container({HALF: "1"}, "asking")
    after = inject(pod(*containers))["spec"]["containers"]
    assert [made["name"] for made in after] == [made["name"] for made in containers]
    assert [after[other] for other in range(3) if other != place] == [
        containers[other] for other in range(3) if other != place
    ]
    assert after[place]["resources"]["limits"][UNITS] == "50"


def test_f_several_containers_may_ask() -> None:
    after = inject(pod(container({HALF: "1"}, "a"), container({AMOUNT: "1"}, "b")))["spec"]["containers"]
    assert [made["resources"]["limits"][UNITS] for made in after] == ["50", "100"]


def test_g_init_containers_that_are_there_stay_as_they_are() -> None:
    others: list[Object] = [
        {"name": "istio-init", "image": "proxyv2", "args": ["istio-iptables"]},
        {"name": "istio-proxy", "image": "proxyv2", "restartPolicy": "Always"},
    ]
    after = inject(pod(container({HALF: "1"}), init_containers=others))["spec"]["initContainers"]
    assert [made["name"] for made in after] == ["bitfusion-client", "istio-init", "istio-proxy"]
    assert after[1:] == others


FOREIGN = {
    "sidecar.istio.io/inject": "false",
    "traffic.sidecar.istio.io/excludeOutboundPorts": "56001",
    "poddefault.admission.kubeflow.org/poddefault-x": "1",
}


def test_h_annotations_are_merged_one_by_one() -> None:
    before = pod(container({HALF: "1"}), annotations={**INJECTION, **FOREIGN})
    after = inject(before)
    assert after["metadata"]["annotations"] == {**INJECTION, **FOREIGN, **WRITTEN}
    patch = difference(before, injected_pod(before, "ann"))
    paths = [operation["path"] for operation in patch if operation["path"].startswith("/metadata")]
    assert paths == [f"/metadata/annotations/{key.replace('/', '~1')}" for key in WRITTEN]


def test_i_pods_that_come_at_once_have_nothing_of_each_other() -> None:
    """A global ``injectionStatus``, and a sidecar's configuration that all requests shared and wrote into."""
    pods = [
        pod(
            container({HALF: str(number)}, command=["x"], name=f"c{number}"),
            annotations=WRAPPED if number % 2 else INJECTION,
        )
        for number in range(1, 60)
    ]
    alone = [injected_pod(one, "ann") for one in pods]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda one: injected_pod(one, "ann"), pods)) == alone
    for number, made in enumerate(alone, 1):
        assert isinstance(made, dict)
        (one,) = made["spec"]["containers"]
        assert (one["command"][0] == RUN[0]) == bool(number % 2)
        assert made["spec"]["initContainers"][0]["args"][1:3] == [f"c{number}", f"-n {number} -p 0.5"]
    assert InjectorSettings() == DEFAULT_SETTINGS


def test_resources_of_one_pod_do_not_reach_the_next() -> None:
    big, small = container({HALF: "1"}), container({HALF: "1"})
    big["resources"]["limits"]["cpu"] = big["resources"]["requests"]["cpu"] = "64"
    inject(pod(big))
    (init,) = inject(pod(small))["spec"]["initContainers"]
    assert init["resources"]["limits"]["cpu"] == "600m"
    bare = {"name": "nb", "image": "x", "resources": {"limits": {HALF: "1"}}}
    (init,) = inject(pod(bare))["spec"]["initContainers"]
    assert init["resources"] == {}


@pytest.mark.parametrize(
    "command",
    [
        ["bitfusion", "run", "-n", "1", "python"],
        ["/usr/bin/bitfusion", "run", "-n", "1", "--", "python"],
        ["sh", "-c", " bitfusion run -n 1 python x.py"],
    ],
)
def test_j_a_command_that_starts_the_client_is_not_wrapped_and_finds_it(command: list[str]) -> None:
    made = wrapped(command)
    assert made["command"] == command
    assert "/usr/local/bin/bitfusion" in [path for _, path, _ in mounts(made)]


@pytest.mark.parametrize("command", [["python", "bitfusion_train.py"], ["echo", "bitfusion"], ["bitfusionx"]])
def test_j_a_command_that_only_has_the_word_in_it_is_wrapped(command: list[str]) -> None:
    assert wrapped(command)["command"] == RUN + command


@pytest.mark.parametrize("missing", [OS, VERSION, MANAGEMENT])
def test_k_a_missing_annotation_is_no_reason_to_leave_a_pod_pending(missing: str) -> None:
    annotations = {key: value for key, value in INJECTION.items() if key != missing}
    rules = (ClientRule("ubuntu22", "454", "stand-in", "a/client:1"),)
    after = inject(pod(container({HALF: "1"}), annotations=annotations), settings=InjectorSettings(rules))
    assert after["spec"]["initContainers"][0]["image"] == "a/client:1"


def test_k_an_unknown_client_is_refused_with_those_there_are() -> None:
    rules = (ClientRule("ubuntu22", "454", "stand-in", "a"), ClientRule("ubuntu20", "*", "stand-in", "b"))
    before = pod(container({HALF: "1"}), annotations={**INJECTION, OS: "centos8"})
    assert refused(before, settings=InjectorSettings(rules)) == (
        'Invalid value "centos8 454" for bitfusion-client/os and bitfusion-client/version: this cluster has '
        "clients for ubuntu22 454, ubuntu20 *."
    )


def test_l_the_namespace_is_that_of_the_request() -> None:
    before = pod(container({HALF: "1"}))
    assert "namespace" not in before["metadata"]
    assert injected_pod(before, "kube-system") is before
    assert injected_pod(before, "ann") is not before


def test_m_all_and_injection_differ_in_the_command_alone() -> None:
    before = [pod(container({HALF: "1"}, command=["x"]), annotations=notes) for notes in (WRAPPED, INJECTION)]
    every, injection = map(inject, before)
    assert every["spec"]["containers"][0].pop("command") == [*RUN, "x"]
    assert injection["spec"]["containers"][0].pop("command") == ["x"]
    memory = every["spec"]["initContainers"][0]["env"].pop()
    assert memory == {"name": "BITFUSION_WRAPPED", "value": "nb"}
    assert every["spec"] == injection["spec"]


@pytest.mark.parametrize("word", ["y", "yes", "true", "on", "all", "ALL", "Yes"])
def test_m_the_words_for_all_are_upstreams(word: str) -> None:
    annotations = {**INJECTION, MANAGEMENT: word}
    after = inject(pod(container({HALF: "1"}, command=["x"]), annotations=annotations))
    assert after["spec"]["containers"][0]["command"] == [*RUN, "x"]


def test_n_no_operation_replaces_what_may_be_missing() -> None:
    bare = {"name": "nb", "image": "x", "resources": {"limits": {HALF: "1"}}}
    before: Object = {"metadata": {"name": "x"}, "spec": {"containers": [bare]}}
    patch = difference(before, injected_pod(before, "ann"))
    assert {operation["op"] for operation in patch} == {"add", "remove"}
    assert jsonpatch.apply_patch(before, patch) == injected_pod(before, "ann")


def test_o_an_air_gapped_cluster_names_its_own_images() -> None:
    rules = (VMWARE,)
    settings = InjectorSettings(rules, client_image="registry.local/client:1")
    init = inject(pod(container({HALF: "1"})), settings=settings)["spec"]["initContainers"]
    assert [made["image"] for made in init] == ["registry.local/client:1", "registry.local/bitfusion:1"]
    assert {made["imagePullPolicy"] for made in init} == {"IfNotPresent"}


def test_filters_reach_no_shell() -> None:
    """Upstream pasted ``bitfusion-client/filter`` into ``bash -c``."""
    annotations = {**WRAPPED, FILTER: "model=V100;rm x=$(id)`id`"}
    after = inject(pod(container({HALF: "1"}, command=["python"]), annotations=annotations))
    assert after["spec"]["containers"][0]["command"] == [
        *RUN[:-1],
        *("--filter", "model=V100;rm", "--filter", "x=$$(id)`id`"),  # the kubelet makes $ of $$
        *("--", "python"),
    ]
    assert after["spec"]["initContainers"][0]["args"][2] == (
        "-n 1 -p 0.5 --filter 'model=V100;rm' --filter 'x=$$(id)`id`'"
    )


def test_memory_is_counted_in_the_units_it_is_written_in() -> None:
    """Upstream took 8Gi for 8589 MB, and the memory of a GPU for 0: each size by memory was refused."""
    settings = InjectorSettings(gpu_memory_mib=16384)
    for size, options, units in [
        ({AMOUNT: "1", MEMORY: "8Gi"}, "-n 1 -m 8192", "50"),
        ({AMOUNT: "2", MEMORY: "8G"}, "-n 2 -m 7629", "94"),
        ({"bitfusion.io/gpu-16gib": "1"}, "-n 1 -m 16384", "100"),  # the whole card, which upstream refused
    ]:
        spec = inject(pod(container(size)), settings=settings)["spec"]
        assert spec["initContainers"][0]["args"][2:4] == [options, units]
        assert spec["containers"][0]["resources"]["limits"][UNITS] == units


def test_no_variable_of_a_container_is_touched() -> None:
    """Upstream set ``LD_LIBRARY_PATH`` and thereby wiped the image's own."""
    env = [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/cuda/lib64"}, {"name": "PATH", "value": "/bin"}]
    settings = InjectorSettings((VMWARE,))
    (made,) = inject(pod(container({HALF: "1"}, env=env)), settings=settings)["spec"]["containers"]
    assert made["env"] == env
    (made,) = inject(pod(container({HALF: "1"})), settings=settings)["spec"]["containers"]
    assert "env" not in made


def test_nothing_needs_root_nor_a_home_of_root() -> None:
    """Upstream's init container wrote ``/root/.bitfusion``, and the client was mounted there."""
    after = inject(pod(container({HALF: "1"})), settings=InjectorSettings((VMWARE,)))
    assert "/root" not in json.dumps(after)
    for made in after["spec"]["initContainers"]:
        assert made["securityContext"]["runAsNonRoot"] is True
        assert made["securityContext"]["runAsUser"] == 65532


def test_the_secret_is_named_and_never_copied() -> None:
    """Upstream copied Secrets into the namespace within admission, once, and never again."""
    volume = named(inject(pod(container({HALF: "1"})))["spec"]["volumes"], "bitfusion-identity")
    assert volume == {
        "name": "bitfusion-identity",
        "secret": {"secretName": "bitfusion-client", "optional": True},
    }
    for _, path, part in mounts(inject(pod(container({HALF: "1"})))["spec"]["containers"][0]):
        assert path != "/bitfusion/identity" or not part, "a part of a Secret is never renewed in a pod"
