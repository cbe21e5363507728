"""Which client an image gets, by the default rules and by an administrator's."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.kubernetes.client_images import (
    DEFAULT_RULES,
    ImageRule,
    client_for_image,
    default_rules,
    parse_image_rules,
)

FOCAL = ("ubuntu20", "450")
JAMMY = ("ubuntu22", "454")
DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "client"),
    [
        ("public.ecr.aws/j1r0q0g6/notebooks/notebook-servers/jupyter-scipy:v1.4", FOCAL),
        ("public.ecr.aws/j1r0q0g6/notebooks/notebook-servers/jupyter-tensorflow-cuda-full:v1.5.0", FOCAL),
        ("public.ecr.aws/j1r0q0g6/notebooks/notebook-servers/codeserver-python:master-1831e436", FOCAL),
        ("kubeflownotebookswg/jupyter-scipy:v1.6.0", FOCAL),
        ("kubeflownotebookswg/jupyter-pytorch-full:v1.6.1-rc.0", FOCAL),
        ("kubeflownotebookswg/jupyter-tensorflow-full:v1.7.0", FOCAL),
        ("docker.io/kubeflownotebookswg/jupyter-scipy:v1.7.0", FOCAL),
        ("kubeflownotebookswg/jupyter-scipy:v1.8.0", JAMMY),
        ("kubeflownotebookswg/rstudio-tidyverse:v1.9.2", JAMMY),
        ("kubeflownotebookswg/jupyter-scipy:latest", JAMMY),
        ("ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-scipy:v1.10.0", JAMMY),
        ("ghcr.io/kubeflow/notebooks/notebook-servers/jupyter-scipy:v1.11.0", JAMMY),
        # mirrors put something in front, digests something behind
        ("registry.example.org:5000/mirror/kubeflownotebookswg/jupyter-scipy:v1.7.0", FOCAL),
        ("registry.example.org/ecr/j1r0q0g6/notebooks/notebook-servers/jupyter:v1.4", FOCAL),
        ("kubeflownotebookswg/jupyter-scipy:v1.7.0" + DIGEST, FOCAL),
        # no part of a name is taken for the whole
        ("notkubeflownotebookswg/jupyter-scipy:v1.7.0", JAMMY),
        # nothing that a registry could have: patterns are not tried on it
        ("kubeflownotebookswg/" * 26 + "jupyter:v1.7.0", JAMMY),
        ("kubeflownotebookswg/" * 20_000, JAMMY),
        # what nobody knows
        ("team/notebook", JAMMY),
        ("", JAMMY),
        (None, JAMMY),
        (7, JAMMY),
    ],
)
def test_the_client_for_an_image(image: object, client: tuple[str, str]) -> None:
    rule = client_for_image(image, DEFAULT_RULES)
    assert (rule.client_os, rule.client_version) == client


def test_the_admins_rules_go_first_in_their_order() -> None:
    rules = parse_image_rules(
        [
            {"image": "team/old:*", "os": "centos7", "version": 401},
            {"image": "team/*", "os": "ubuntu20", "version": "450"},
        ]
    )
    assert rules == (
        ImageRule("team/old:*", "centos7", "401"),
        ImageRule("team/*", "ubuntu20", "450"),
        *DEFAULT_RULES,
    )
    assert client_for_image("harbor.example.org/team/old:3", rules).client_os == "centos7"
    assert client_for_image("team/new:1", rules).client_os == "ubuntu20"
    assert client_for_image("kubeflownotebookswg/jupyter-scipy:v1.7.0", rules).client_os == "ubuntu20"
    assert client_for_image("other:1", rules) == DEFAULT_RULES[-1]


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_an_empty_file_leaves_the_defaults(nothing: Any) -> None:
    assert parse_image_rules(nothing) == DEFAULT_RULES


def test_without_a_rule_for_everything_the_default_holds() -> None:
    assert client_for_image("other:1", (ImageRule("team/*", "centos7", "401"),)) == DEFAULT_RULES[-1]


ITEM = "must have image, os and version, such as {image: 'team/*:v2*', os: ubuntu22, version: 454}"
IMAGE = "must be a pattern like team/notebook:v2*, without spaces and without a digest"
WORD = "must be letters, digits, dots, - or _, at most 63"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"image": "a"},
            'Wrong setting images="{"image": "a"}" (from images.yaml): '
            "must be a list of items, each with image, os and version",
        ),
        (
            "a",
            'Wrong setting images="a" (from images.yaml): '
            "must be a list of items, each with image, os and version",
        ),
        (["a"], f'Wrong setting images[0]="a" (from images.yaml): {ITEM}'),
        (
            [{"image": "a", "os": "ubuntu20"}],
            f'Wrong setting images[0]="{{"image": "a", "os": "ubuntu20"}}" (from images.yaml): {ITEM}',
        ),
        (
            [{"image": "a", "os": "b", "version": 1}, {"image": 1, "os": "b", "version": 1}],
            f'Wrong setting images[1].image="1" (from images.yaml): {IMAGE}',
        ),
        (
            [{"image": "a b", "os": "b", "version": 1}],
            f'Wrong setting images[0].image="a b" (from images.yaml): {IMAGE}',
        ),
        (
            [{"image": "a@sha256:00", "os": "b", "version": 1}],
            f'Wrong setting images[0].image="a@sha256:00" (from images.yaml): {IMAGE}',
        ),
        (
            [{"image": "a", "os": "", "version": 1}],
            f'Wrong setting images[0].os="" (from images.yaml): {WORD}',
        ),
        (
            [{"image": "a", "os": "../b", "version": 1}],
            f'Wrong setting images[0].os="../b" (from images.yaml): {WORD}',
        ),
        (
            [{"image": "a", "os": "b", "version": True}],
            f'Wrong setting images[0].version="true" (from images.yaml): {WORD}',
        ),
        (
            [{"image": "a", "os": "b", "version": "4" * 64}],
            f'Wrong setting images[0].version="{"4" * 64}" (from images.yaml): {WORD}',
        ),
    ],
)
def test_a_wrong_item_is_named(data: Any, message: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_image_rules(data, "images.yaml")
    assert caught.value.user_message == message


# The clients in the list of VMware's injector; it refuses a pod that names another one.
VMWARES = {
    (os, version) for os in ("ubuntu18", "ubuntu20", "centos7", "centos8") for version in ("401", "450")
}


@pytest.mark.parametrize(
    "image", ["kubeflownotebookswg/x:v1.8.0", "ghcr.io/kubeflow/kubeflow/notebook-servers/x:1", "a", ""]
)
def test_with_vmwares_list_no_image_gets_a_client_that_it_has_not(image: str) -> None:
    chosen = client_for_image(image, default_rules("vmware"))
    assert (chosen.client_os, chosen.client_version) == ("ubuntu20", "450")
    assert {(rule.client_os, rule.client_version) for rule in default_rules("vmware")} <= VMWARES
    assert default_rules("any") == DEFAULT_RULES


def test_with_vmwares_list_a_rule_of_ones_own_must_name_a_client_that_it_has() -> None:
    right = {"image": "team/*", "os": "centos8", "version": 401}
    rules = parse_image_rules([right], "images.yaml", "vmware")
    assert rules == (ImageRule("team/*", "centos8", "401"), *default_rules("vmware"))
    wrong = {"image": "lab/*", "os": "ubuntu22", "version": 454}
    with pytest.raises(WrongSetting) as caught:
        parse_image_rules([right, wrong], "images.yaml", "vmware")
    assert caught.value.user_message == (
        'Wrong setting images[1]="ubuntu22 454" (from images.yaml): VMware\'s injector has no such client; '
        "os is one of ubuntu18, ubuntu20, centos7, centos8, version one of 401, 450"
    )
    assert parse_image_rules([right, wrong])[1] == ImageRule("lab/*", "ubuntu22", "454")
