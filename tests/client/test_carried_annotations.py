"""Which annotations of a Notebook are carried, and which values of theirs are refused, in which words."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.carried_annotations import (
    allowed_annotations,
    carried_annotations,
    check_carried_annotations,
    is_carried_annotation,
)

MANAGEMENT, OS, VERSION = "auto-management/bitfusion", "bitfusion-client/os", "bitfusion-client/version"
FILTER, REQUEST, PATH = "bitfusion-client/filter", "bitfusion.io/request", "bitfusion.io/path"
GPU_IMAGE = "bitfusion.io/gpu-image"
RIGHT = {
    **{MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454", FILTER: "a=b", REQUEST: "-n 1"},
    PATH: "none",
    GPU_IMAGE: "registry.example.com:5000/team/cuda@sha256:" + "0" * 64,
}
WRAPS = (
    "must be injection or none; this would run the notebook server itself on the GPUs, which it would hold "
    "until the notebook is stopped"
)
NO_IMAGE = "must be an image reference without spaces, at most 512 characters"
NO_PATH = "must be none (no command in /usr/local/bin) or absent"
WORD = (
    "must be letters, digits, dots, - or _, at most 63; remove the annotation to have the client chosen "
    "by the image"
)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_carried(name: str) -> None:
    assert is_carried_annotation(name)


@pytest.mark.parametrize(
    "name",
    [
        "bitfusion.io/pending",
        "auto-management/status",  # the injector's own
        "auto-management/x",
        "bitfusion-client/",
        "Bitfusion-client/os",
        "notebooks.kubeflow.org/creator",
        "",
    ],
)
def test_what_is_not(name: str) -> None:
    assert not is_carried_annotation(name)
    assert allowed_annotations({name: "injection", **RIGHT}) == RIGHT


def test_absent_annotations_are_none() -> None:
    assert carried_annotations(None) == allowed_annotations(None) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (MANAGEMENT, "none"),
        (OS, "a" * 63),
        (VERSION, "4.5.4-1_x"),
        (FILTER, ""),
        (FILTER, "f" * 1024),
        (REQUEST, "nonsense"),  # its words are for whoever parses it
        (REQUEST, "r" * 4096),
        (PATH, ""),
        (GPU_IMAGE, ""),
        (GPU_IMAGE, "i" * 512),
    ],
)
def test_values_that_are_allowed(name: str, value: str) -> None:
    check_carried_annotations({name: value})
    assert allowed_annotations({name: value, "x/y": "z"}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "shown", "allowed"),
    [
        *((MANAGEMENT, word, word, WRAPS) for word in ("all", "ALL", "y", "yes", "true", "On")),
        (MANAGEMENT, "", "", "must be injection or none"),
        (MANAGEMENT, "Injection", "Injection", "must be injection or none"),
        *((PATH, word, word, NO_PATH) for word in ("/usr/bin", "None", "true")),
        (OS, "", "", WORD),
        (OS, "ubuntu 22", "ubuntu 22", WORD),
        (OS, "a" * 64, "a" * 59 + "…", WORD),
        (VERSION, "../../x", "../../x", WORD),
        (VERSION, "..", "..", WORD),
        (VERSION, "４５４", "４５４", WORD),
        (GPU_IMAGE, "two words", "two words", NO_IMAGE),
        (GPU_IMAGE, "i" * 513, "i" * 59 + "…", NO_IMAGE),
        (GPU_IMAGE, "ｉmage", "ｉmage", NO_IMAGE),
        (GPU_IMAGE, 7, "7", "must be text"),
        (FILTER, "f" * 1025, "f" * 59 + "…", "must be at most 1024 characters"),
        (REQUEST, "r" * 262_144, "r" * 59 + "…", "must be at most 4096 characters"),
        (VERSION, 454, "454", "must be text"),
        (FILTER, None, "null", "must be text"),
    ],
)
def test_values_that_are_refused_and_never_carried(
    name: str, value: object, shown: str, allowed: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_carried_annotations({**RIGHT, name: value})
    assert caught.value.field == name
    assert str(caught.value) == f'invalid value "{shown}" for {name}: {allowed}'
    assert name not in allowed_annotations({**RIGHT, name: value})
    # a change of it is seen all the same
    assert carried_annotations({name: value}) == {name: value}
