"""docs/how-to/images.md: its commands, where the builder and the registry are played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.guide import DOCS, REGISTRY, Reader, blocks
from tests.tools.played_builder import DIGEST
from tools.images.wishes import NAMES

PAGE = DOCS / "how-to" / "images.md"
HEADINGS = ("Build and push the images", "Options")


@pytest.mark.long
@pytest.mark.runs(
    *(f"docs/how-to/images.md#{heading}" for heading in HEADINGS), "docs/tutorials/kubeflow.md#1. Images"
)
def test_its_commands_build_what_they_say(cluster: Cluster, tmp_path: Path) -> None:
    reader = Reader(cluster, tmp_path, cloned=True)
    all_images, by_platform, pin = blocks(*HEADINGS, page=PAGE)
    reader.run(all_images)
    lock = yaml.safe_load((reader.folder / "images.lock.yaml").read_text())["images"]
    assert {each["repository"] for each in lock.values()} == {f"{REGISTRY}/{name}" for name in NAMES}
    assert {each["digest"] for each in lock.values()} == {DIGEST}
    reader.run(by_platform)
    told = [json.loads(line) for line in (reader.bridge / "docker.json").read_text().splitlines()]
    again = [(Path(words[3]).name, words[words.index("--platform") + 1]) for words in told[len(NAMES) :]]
    assert again == [
        *((f"{name}:0.1.0", "linux/amd64,linux/arm64") for name in NAMES if name != "notebook"),
        ("notebook:0.1.0", "linux/amd64"),
    ]
    assert f" {DIGEST}  (new)\n" in reader.run(pin)
    assert DIGEST in (reader.folder / "requirements" / "base-images.digests").read_text()
