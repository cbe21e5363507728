"""Every message of the injector, as it stands in the form's status column: what was given, allowed, to do."""

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
    MEMORY,
    PERCENT,
    REQUEST,
    UNITS,
    WRAPPED,
    Object,
    container,
    pod,
    refused,
)

NOT_OURS = "has the name of the injector's own init container, but is a different one. Give it another name."
WHERE = "is the place of the client, /bitfusion. Mount it at another path."
SHARE = (
    "requests memory, but how much memory a GPU of this cluster's pool has is not known. Request a share "
    "instead (bitfusion.io/gpu-50: 1 is half a GPU), or ask your administrator to set the injector's "
    "--gpu-memory."
)


def asking(annotations: dict[str, Any] | None = None, sizes: Any = None, **spec: Any) -> Object:
    fields = {key: spec.pop(key) for key in ("volumeMounts", "volumeDevices", "command") if key in spec}
    made = container({HALF: "1"} if sizes is None else sizes, **fields)
    return pod(made, annotations={**INJECTION, **(annotations or {})}, **spec)


REFUSALS: list[tuple[Object, str]] = [
    # sizes, in the words of the forms
    (
        asking(sizes={AMOUNT: "0.5"}),
        'Invalid value "0.5" for bitfusion.io/gpu-amount: must be a whole number from 1 to 1024. For part of '
        "a GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU.",
    ),
    (
        asking(sizes={AMOUNT: "1", PERCENT: "0.5"}),
        'Invalid value "0.5" for bitfusion.io/gpu-percent: must be a whole number from 1 to 100; write 50.',
    ),
    (
        asking(sizes={"bitfusion.io/gpus": "1"}),
        "bitfusion.io/gpus is not a Bitfusion size; did you mean bitfusion.io/gpu-amount? If the form "
        "offers it, ask your administrator to correct the form's list.",
    ),
    (
        asking(sizes={HALF: "1", AMOUNT: "1"}),
        "bitfusion.io/gpu-50 is a second size in addition to bitfusion.io/gpu-amount. Keep one of them.",
    ),
    (
        asking(sizes={UNITS: "50"}),
        "bitfusion.io/gpu is not a Bitfusion size: it is what the cluster counts; only the pod "
        "injector may write it. Write bitfusion.io/gpu-amount: 1 for a whole GPU, bitfusion.io/gpu-50: 1 for "
        "half of one.",
    ),
    (
        asking({REQUEST: "-n 1 -p 50%"}),
        'Invalid value "-n 1 -p 50%" for bitfusion.io/request: -p "50%" must be greater than 0.0 and at most '
        "1.0; write -p 0.5.",
    ),
    (
        asking({"bitfusion-client/filter": "model"}),
        'Invalid value "model" for bitfusion-client/filter: must be key=value, the key without spaces.',
    ),
    (asking(sizes={AMOUNT: "1", MEMORY: "8Gi"}), "bitfusion.io/gpu-amount " + SHARE),
    (asking(sizes={"bitfusion.io/gpu-8gib": "1"}), "bitfusion.io/gpu-8gib " + SHARE),
    (asking({REQUEST: "-n 1 -m 8192"}), "bitfusion.io/request " + SHARE),
    # annotations
    (
        asking({MANAGEMENT: "injektion"}),
        'Invalid value "injektion" for auto-management/bitfusion: must be injection (the client is put into '
        "the pod), all (the container's command is run with the GPUs, too) or none.",
    ),
    (
        asking({"bitfusion.io/path": "/opt"}),
        'Invalid value "/opt" for bitfusion.io/path: must be none (no command in /usr/local/bin) or absent.',
    ),
    (
        asking({MANAGEMENT: "all"}),
        'auto-management/bitfusion requires the command of container "nb" to run with the GPUs, but the pod '
        "has only its image's command. Write the command into the pod, or use auto-management/bitfusion: "
        "injection and "
        "start bitfusion run inside.",
    ),
    # containers
    (
        pod(container(), init_containers=[container({HALF: "1"}, "prepare")]),
        'bitfusion.io/gpu-50 is requested by init container "prepare"; init containers, including sidecars, '
        "cannot have GPUs. Set the size on the container that computes.",
    ),
    (
        pod(
            container({HALF: "1"}, "a"),
            container({HALF: "1"}, "b"),
            annotations={**INJECTION, REQUEST: "-n 1"},
        ),
        "bitfusion.io/request replaces the size of one container, but several containers request GPUs. "
        "Remove the annotation and write each size in the limits of its container.",
    ),
    (
        asking(os={"name": "windows"}),
        "spec.os.name: windows cannot have the Bitfusion client, which is a program for Linux. Remove "
        "the size from the pod, or run the pod on Linux.",
    ),
    (
        pod(*(container({HALF: "1"}, f"c{number}") for number in range(17))),
        "bitfusion.io/gpu-50 is requested by 17 containers; at most 16 of a pod can. Set sizes on fewer "
        "containers, or create another pod for them.",
    ),
    # names and paths that are taken
    (
        asking(volumeMounts=[{"name": "mine", "mountPath": "/bitfusion"}]),
        f'mountPath /bitfusion of container "nb" {WHERE}',
    ),
    (
        asking(volumeMounts=[{"name": "mine", "mountPath": "//bitfusion/../bitfusion/data/"}]),
        f'mountPath /bitfusion/data of container "nb" {WHERE}',
    ),
    (
        asking(volumeMounts=[{"name": "mine", "mountPath": "/"}]),
        f'mountPath / of container "nb" {WHERE}',
    ),
    (
        asking(volumeDevices=[{"name": "mine", "devicePath": "/bitfusion/disk"}]),
        f'mountPath /bitfusion/disk of container "nb" {WHERE}',
    ),
    (
        asking(volumes=[{"name": "bitfusion-client", "persistentVolumeClaim": {"claimName": "x"}}]),
        f'volume "bitfusion-client" {NOT_OURS}',
    ),
    (
        asking(volumes=[{"name": "bitfusion-identity", "secret": {"secretName": "mine"}}]),
        f'volume "bitfusion-identity" {NOT_OURS}',
    ),
    (
        asking(initContainers=[{"name": "bitfusion-client", "image": "x", "command": ["sh"]}]),
        f'init container "bitfusion-client" {NOT_OURS}',
    ),
]


@pytest.mark.parametrize(("before", "message"), REFUSALS, ids=lambda value: str(value)[:40] if value else "")
def test_the_words_of_a_refusal(before: Object, message: str) -> None:
    assert refused(before) == message


def test_a_size_above_the_memory_of_a_gpu() -> None:
    assert refused(
        asking(sizes={"bitfusion.io/gpu-32gib": "2"}), settings=InjectorSettings(gpu_memory_mib=16160)
    ) == (
        "bitfusion.io/gpu-32gib requests 32768 MiB of each GPU, but a GPU of the pool has 16160 MiB. "
        "Request less of each GPU, or more GPUs."
    )


def test_a_container_of_the_name_of_the_packages() -> None:
    settings = InjectorSettings((ClientRule("*", "*", "vmware", "packages:1", "p.deb"),))
    before = asking(initContainers=[{"name": "bitfusion-packages", "image": "x"}])
    assert refused(before, settings=settings) == f'init container "bitfusion-packages" {NOT_OURS}'


def test_a_hostile_value_is_one_short_line() -> None:
    for value in ("\x1b[31m\n" * 300, "x" * 100_000, "$(id)", "x\u2028"):
        assert len(refused(asking({MANAGEMENT: value}))) < 800
        assert len(refused(asking({REQUEST: value}))) < 800
        os = {"bitfusion-client/os": value}
        rules = (ClientRule("a", "b", "stand-in", "x"),)
        assert len(refused(asking(os), settings=InjectorSettings(rules))) < 800


def test_what_asks_for_nothing_is_never_refused() -> None:
    """A pod's other parts may look as they like: it is not the injector's."""
    for one in (
        pod(container(), annotations={MANAGEMENT: "nonsense", "bitfusion.io/path": "x"}),
        pod(container(command=None), annotations=WRAPPED),
        pod(container(), init_containers=[{"name": "bitfusion-client", "image": "x"}]),
    ):
        assert injected_pod(one, "ann") is one
