"""A container of the kind `pods` has the admin's settings, and an openssl by which its commands make keys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bitfusion_client.pod import pod_contract
from bitfusion_client.pod.this_pod import this_pod
from bitfusion_pods.command.keys import make_keys
from tests.bitfusion_device_plugin.injector.pod_client.client_image import (
    MAIN,
    POD,
    PODS,
    install,
    make_client_image,
)
from tests.pods.command.test_keys import pods_side, talk

SETTINGS = json.dumps({"rules": [], "pod": {"nodeSelector": {"a": "ü $(B) '\" \\n"}}})


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_client_image(tmp_path_factory.mktemp("client-image") / "bitfusion-image", [])


def test_each_container_has_the_settings_and_others_have_none(image: Path, volume: Path) -> None:
    side = ("side", *PODS[1:])
    done = install(
        image, volume, *PODS, *side, "other", *MAIN[1:], environ={**POD, "BITFUSION_PODS": SETTINGS}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(volume / "main")) == ["bin", "pod", "pods"]
    assert os.path.samefile(volume / "main/pods/bitfusion", volume / "side/pods/bitfusion")
    assert os.path.samefile(volume / "main/pods/openssl/openssl", volume / "side/pods/openssl/openssl")
    pod = this_pod(str(volume / "main"))
    assert pod is not None
    assert pod.client == pod_contract.PODS
    for container in ("main", "side"):
        assert (volume / container / "pod" / "pods.json").read_text() == SETTINGS
    assert not (volume / "other" / "pod" / "pods.json").exists()


def test_its_commands_make_keys_where_the_image_has_no_openssl(
    image: Path, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install(image, volume, *PODS).returncode == 0
    monkeypatch.setenv("PATH", "/nowhere")
    keys = make_keys(str(volume / "main"))
    assert talk(keys.context, pods_side(keys, tmp_path / "gpu")) == b"word:x"


def test_settings_without_a_bound_are_refused(image: Path, volume: Path) -> None:
    done = install(image, volume, *PODS, environ={**POD, pod_contract.ENV_SETTINGS: "x" * 65537})
    assert done.returncode == 1
    assert (
        "put into the pod: BITFUSION_PODS has 65537 characters. What to do: the injector and the client's "
        "image are of different versions: install both from one release\n"
    ) in done.stderr
    assert os.listdir(volume) == []
