"""The form's list of sizes, from the admin's file to the Jupyter server in the notebook's pod."""

from __future__ import annotations

import datetime
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_client.errors import WrongSetting
from bitfusion_client.pod.pod_contract import SIZES_FILE
from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.form_sizes import LONGEST_TEXT, parse_form_sizes
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from jupyter_ext.server import config
from jupyter_ext.server.sizes_file import SizesFile
from jupyter_ext.spawner.sizes import example
from tests.bitfusion_device_plugin.injector.pod_client.client_image import (
    MAIN,
    POD,
    PODS,
    install,
    make_client_image,
)
from tests.bitfusion_device_plugin.injector.pods import HALF, container, inject, named, pod
from tests.bitfusion_device_plugin.injector.stage import expanded

LABEL = "½ $(HOME) $$ '\" \\"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["stand-in", "pods"])
def test_the_list_of_the_form_is_offered_in_each_container_as_it_was_written(
    kind: str, tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = yaml.safe_load(example())
    given["sizes"].append({"label": LABEL, "share": "40 %"})
    settings = InjectorSettings((ClientRule("*", "*", kind, "client:1"),), sizes=parse_form_sizes(given))
    variables = named(
        inject(pod(container({HALF: "1"})), settings=settings)["spec"]["initContainers"], "bitfusion-client"
    )["env"]
    value = expanded(named(variables, "BITFUSION_SIZES")["value"], {"HOME": "/root"})
    image = make_client_image(tmp_path / "bitfusion-image", [])
    environ = {**POD, "BITFUSION_PODS": "{}", "BITFUSION_SIZES": value}
    asks = PODS if kind == "pods" else MAIN
    done = install(image, volume, *asks, "side", *asks[1:], environ=environ)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("main", "side"):
        file = volume / name / "pod" / SIZES_FILE
        monkeypatch.setattr(config, "INJECTED_SIZES", str(file))
        path = config.BitfusionServer().sizes_file
        assert path == str(file)
        sizes = SizesFile(path, logging.getLogger()).sizes()
        assert sizes is not None
        assert [each.label for each in sizes] == [each["label"] for each in given["sizes"]]


def test_without_a_list_nothing_of_it_is_in_the_pod(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "BITFUSION_SIZES" not in json.dumps(inject(pod(container({HALF: "1"}))))
    assert install(make_client_image(tmp_path / "image", []), volume, *MAIN, environ=POD).returncode == 0
    file = volume / "main" / "pod" / SIZES_FILE
    assert not file.exists()
    monkeypatch.setattr(config, "INJECTED_SIZES", str(file))
    assert config.BitfusionServer().sizes_file == ""


def test_a_list_without_a_bound_is_refused_by_the_init_container(tmp_path: Path, volume: Path) -> None:
    environ = {**POD, "BITFUSION_SIZES": "x" * (LONGEST_TEXT + 1)}
    done = install(make_client_image(tmp_path / "image", []), volume, *MAIN, environ=environ)
    assert done.returncode == 1
    assert "BITFUSION_SIZES has 65537 characters" in done.stderr


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "must have a list `sizes`"),
        ({"sizes": []}, "must have a list `sizes`"),
        ({"sizes": ["1 GPU"]}, "must have a list `sizes`"),
        ({"sizes": [{"label": datetime.date(2026, 11, 27)}]}, "must have a list `sizes`"),
        ({"sizes": [{"label": "x" * 100}] * 700}, "is too long"),
    ],
    ids=["no mapping", "empty", "words", "a date", "long"],
)
def test_another_file_is_refused_with_what_is_allowed(data: Any, told: str) -> None:
    with pytest.raises(WrongSetting, match=told):
        parse_form_sizes(data, "sizes.yaml")
    assert parse_form_sizes(None) == ""
