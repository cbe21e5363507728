"""Which image a GPU pod has."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.gpu_pods.settings import parse_settings
from bitfusion_pods.pod.image import pinned_image
from tests.pods.pod.notebook_pods import DIGEST, made, notebook, program

TWINS = parse_settings({"images": [{"image": "team/notebook:*", "gpu_image": "team/notebook-cuda:v3"}]})


@pytest.mark.parametrize(
    ("own", "image_id", "pinned"),
    [
        ("team/notebook:v3", f"docker.io/team/notebook@{DIGEST}", f"docker.io/team/notebook@{DIGEST}"),
        ("python:3.11", f"docker.io/library/python@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        ("docker.io/team/a", f"docker.io/team/a@{DIGEST}", f"docker.io/team/a@{DIGEST}"),
        ("index.docker.io/team/a", f"docker.io/team/a@{DIGEST}", f"docker.io/team/a@{DIGEST}"),
        ("r.example.org:5000/a:1", f"r.example.org:5000/a@{DIGEST}", f"r.example.org:5000/a@{DIGEST}"),
        ("r.example.org:5000/a", f"r.example.org:5000/a@{DIGEST}", f"r.example.org:5000/a@{DIGEST}"),
        ("team/a:1", f"docker-pullable://team/a@{DIGEST}", f"team/a@{DIGEST}"),
        ("team/a:1", DIGEST, ""),  # built or loaded on the node
        ("team/a:1", f"docker.io/mirror/a@{DIGEST}", ""),  # another repository's digest
        ("team/a:1", f"docker.io/team/a@{DIGEST[:-1]}", ""),
        ("team/a:1", f"docker.io/team/a@{DIGEST.upper()}", ""),
        ("team/a:1", f"docker.io/team/a@{DIGEST} x", ""),
        ("team/a:1", "", ""),
        ("team/a:1", "@", ""),
    ],
)
def test_the_digest_that_a_node_tells(own: str, image_id: str, pinned: str) -> None:
    assert pinned_image(own, image_id) == pinned


def of_pod(
    policy: str = "Always", annotation: Any = None, image: str = "team/notebook:v3", **others: Any
) -> Any:
    pod = notebook()
    pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": policy}
    if annotation is not None:
        pod["metadata"]["annotations"]["bitfusion.io/gpu-image"] = annotation
    container = program(made(pod=pod, **others))
    return container["image"], container.get("imagePullPolicy")


def test_the_image_is_pinned_and_not_asked_for_again() -> None:
    assert of_pod() == (f"docker.io/team/notebook@{DIGEST}", "IfNotPresent")


def test_an_image_that_is_never_pulled_keeps_its_tag() -> None:
    assert of_pod("Never") == ("team/notebook:v3", "Never")


def test_an_image_with_a_digest_stays() -> None:
    assert of_pod(image=f"team/other@{DIGEST}") == (f"team/other@{DIGEST}", "Always")


def test_the_annotation_goes_before_the_admins_list() -> None:
    assert of_pod(settings=TWINS) == ("team/notebook-cuda:v3", "Always")
    assert of_pod(annotation="mine:1", settings=TWINS) == ("mine:1", "Always")
    assert of_pod(annotation="", settings=TWINS)[0] == "team/notebook-cuda:v3"
    assert of_pod(image="other:1", settings=TWINS)[0] == "other:1"


@pytest.mark.parametrize("wrong", ["two words", "a" * 600, 7, "ü"])
def test_an_annotation_that_is_no_image_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"bitfusion\.io/gpu-image"):
        of_pod(annotation=wrong)
