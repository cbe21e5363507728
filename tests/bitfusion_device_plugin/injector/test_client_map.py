"""``clients.yaml``: which client for whom, and what is said about a wrong file."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.injector.injection.client_map import (
    DEFAULT_CLIENTS,
    MOST_RULES,
    ClientRule,
    client_for,
    parse_clients,
)
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import HALF, container, inject, mounts, named, pod

FILE = """
- {os: ubuntu20, version: 450, kind: vmware, image: "registry.local/bf:1", package: bf-ubuntu2004.deb}
- os: ubuntu22
  version: "*"
  kind: stand-in
- {os: ubuntu24, version: "*", kind: pods}
- os: "*"
  version: "*"
  kind: stand-in
  image: registry.local/client@sha256:0123456789abcdef
"""


def test_a_file_as_an_administrator_writes_it() -> None:
    rules = parse_clients(yaml.safe_load(FILE))
    assert rules == (
        ClientRule("ubuntu20", "450", "vmware", "registry.local/bf:1", "bf-ubuntu2004.deb"),
        ClientRule("ubuntu22", "*", "stand-in", "kubeflow-bitfusion/client:0.1.0"),
        ClientRule("ubuntu24", "*", "pods", "kubeflow-bitfusion/client:0.1.0"),
        ClientRule("*", "*", "stand-in", "registry.local/client@sha256:0123456789abcdef"),
    )
    assert client_for("ubuntu20", "450", rules) == rules[0]
    assert client_for("ubuntu22", "401", rules) == rules[1]
    assert client_for("ubuntu20", "401", rules) == rules[3]
    assert parse_clients(None) == DEFAULT_CLIENTS


RULE = {"os": "a", "version": "b", "kind": "stand-in"}
VMWARE = {**RULE, "kind": "vmware", "image": "x", "package": "p.deb"}
NO_LIST = "must be a list of at most 1000 items, each with os, version, kind, image, package"
NO_ITEM = "must have os, version and kind, may have image and package, and nothing else"
WORD = "letters, digits, dots, - or _, at most 63"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, 'Wrong setting clients="{}" (from clients.yaml): ' + NO_LIST),
        ([], 'Wrong setting clients="[]" (from clients.yaml): ' + NO_LIST),
        (["a"], 'Wrong setting clients[0]="a" (from clients.yaml): ' + NO_ITEM),
        (
            [RULE, {**RULE, "os": None}],
            'Wrong setting clients[1].os="null" (from clients.yaml): must be "*" for ',
        ),
        (
            [{**RULE, "version": True}],
            'Wrong setting clients[0].version="true" (from clients.yaml): must be "*"',
        ),
        (
            [{**RULE, "os": "../x"}],
            f'os="../x" (from clients.yaml): must be "*" for any, or a word of {WORD}',
        ),
        ([{**RULE, "tag": "x"}], NO_ITEM),
        ([{"os": "a", "version": "b"}], NO_ITEM),
        ([{**RULE, "kind": "real"}], 'kind="real" (from clients.yaml): must be stand-in, pods or vmware'),
        ([{**RULE, "kind": []}], 'kind="[]" (from clients.yaml): must be stand-in, pods or vmware'),
        ([{**RULE, "image": "a b"}], "must be an image reference without spaces, at most 512 characters"),
        ([{**RULE, "image": "a" * 513}], "must be an image reference without spaces, at most 512 characters"),
        ([{**RULE, "image": "a\nb"}], "must be an image reference without spaces"),
        (
            [{**VMWARE, "image": None}],
            'image="null" (from clients.yaml): is missing: kind vmware needs the image',
        ),
        ([{**RULE, "package": "x"}], "is only for kind vmware; leave it out"),
        ([{**RULE, "kind": "pods", "package": "x"}], "is only for kind vmware; leave it out"),
        ([{**VMWARE, "package": None}], "must be the package's folder in the image: " + WORD),
        ([{**VMWARE, "package": ".."}], "kind vmware needs it"),
        ([{**VMWARE, "package": "a/b"}], "kind vmware needs it"),
        ([RULE] * (MOST_RULES + 1), NO_LIST),
    ],
)
def test_a_wrong_file_is_told_item_and_field(data: Any, message: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_clients(data, "clients.yaml")
    assert message in caught.value.user_message
    assert len(caught.value.user_message.splitlines()) == 1


def test_vmwares_packages_come_by_a_second_init_container_for_each_container_that_asks() -> None:
    settings = InjectorSettings(parse_clients(yaml.safe_load(FILE)))
    annotations = {"bitfusion-client/os": "ubuntu20", "bitfusion-client/version": "450"}
    before = pod(
        container({HALF: "1"}),
        container({HALF: "1"}, "two"),
        annotations=annotations,
        init_containers=[{"name": "other", "image": "x"}],
    )
    spec = inject(before, settings=settings)["spec"]
    init = spec["initContainers"]
    assert [(made["name"], made["image"]) for made in init] == [
        ("bitfusion-client", "kubeflow-bitfusion/client:0.1.0"),
        ("bitfusion-packages", "registry.local/bf:1"),
        ("bitfusion-packages-2", "registry.local/bf:1"),
        ("other", "x"),
    ]
    assert init[0]["args"][1:] == [
        *("nb", "-n 1 -p 0.5", "50", "vmware", "bf-ubuntu2004.deb"),
        *("two", "-n 1 -p 0.5", "50", "vmware", "bf-ubuntu2004.deb"),
    ]
    assert init[1]["command"] == ["cp", "-a", "/bitfusion/.", "/bitfusion-volume/nb/packages/"]
    assert init[2]["command"] == ["cp", "-a", "/bitfusion/.", "/bitfusion-volume/two/packages/"]
    assert init[1]["volumeMounts"] == [{"name": "bitfusion-client", "mountPath": "/bitfusion-volume"}]
    assert init[1]["securityContext"] == init[0]["securityContext"]
    assert init[1]["resources"] == init[0]["resources"]
    assert mounts(spec["containers"][0])[-1] == ("bitfusion-identity", "/etc/bitfusion/tls", "")
    assert named(spec["volumes"], "bitfusion-client")["emptyDir"] == {"sizeLimit": "8Gi"}


def test_a_rule_without_an_image_means_the_injectors_own() -> None:
    (rule,) = parse_clients([{"os": "*", "version": "*", "kind": "pods"}], image="registry.example/client:7")
    assert rule.image == "registry.example/client:7"
    (rule,) = parse_clients(None, image="registry.example/client:7")
    assert (rule.kind, rule.image) == ("stand-in", "registry.example/client:7")
