"""The manifests' pods.yaml has what holds without it, and an example that can be used as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bitfusion_client.errors import WrongSetting
from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS, FIELDS, parse_settings
from tests.cluster.project_images import ROOT

FOLDER = ROOT / "manifests" / "base" / "injector"
FILE = (FOLDER / "pods.yaml").read_text(encoding="utf-8")


def test_it_says_what_holds_without_it() -> None:
    assert parse_settings(yaml.safe_load(FILE)) == parse_settings(None) == DEFAULT_SETTINGS


def test_every_setting_is_explained() -> None:
    missing = [name for name in FIELDS if name not in FILE]
    assert not missing


def test_the_example_in_its_comment_can_be_used_as_it_is() -> None:
    comment = [line[2:] for line in FILE.splitlines() if line.startswith("# ")]
    start = next(place for place, line in enumerate(comment) if line.startswith("- name:"))
    (rule,) = parse_settings({"rules": yaml.safe_load("\n".join(comment[start:]))}).rules
    assert rule.name == "slice"


def test_the_deployment_reads_the_file_of_the_config_map() -> None:
    deployment = yaml.safe_load((FOLDER / "deployment.yaml").read_text(encoding="utf-8"))
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (path,) = [Path(word.partition("=")[2]) for word in container["args"] if word.startswith("--pods=")]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == str(path.parent)]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert "subPath" not in mount  # or a change would never arrive
    generators = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))[
        "configMapGenerator"
    ]
    (files,) = [each["files"] for each in generators if each["name"] == volume["configMap"]["name"]]
    assert files == [path.name]


@pytest.mark.parametrize(
    "text", ["[]", "x: 1", "rules: 3", "port: 80", "- a", "pod: {spec: {hostNetwork: true}}"]
)
def test_a_mistake_is_told_in_one_line(text: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_settings(yaml.safe_load(text), "pods.yaml")
    assert len(caught.value.user_message.splitlines()) == 1
    assert "(from pods.yaml)" in caught.value.user_message
