"""Images without a registry: what an archive consists of, and what its digest depends on."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.images import Image, Layer, layer_of_files


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    return layer_of_files({"bin/sh": (b"a shell", 0o755), "tmp/": (b"", 0o1777)}, tmp_path / "layers")


def test_an_archive_holds_the_configuration_each_layer_once_and_the_list(
    tmp_path: Path, layer: Layer
) -> None:
    image = Image(
        [layer, layer],
        env={"A": "b=c"},
        entrypoint=["/bin/sh"],
        cmd=["-c", "x"],
        user="1000",
        workdir="/srv",
        ports=[8888],
    )
    image.write_archive(tmp_path / "image.tar", "example/told")
    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        (listed,) = json.load(files["manifest.json"] or pytest.fail("no file"))
        assert listed["RepoTags"] == ["example/told:latest"]
        assert listed["Layers"] == [f"{layer.digest}/layer.tar"] * 2
        assert len(files) == 3, "the layer stands there once"
        stored = files[listed["Layers"][0]]
        assert stored is not None
        assert hashlib.sha256(stored.read()).hexdigest() == layer.digest
        config = json.load(files[listed["Config"]] or pytest.fail("no file"))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}"] * 2
    assert config["config"] == {
        "Env": ["A=b=c"],
        "Entrypoint": ["/bin/sh"],
        "Cmd": ["-c", "x"],
        "User": "1000",
        "WorkingDir": "/srv",
        "ExposedPorts": {"8888/tcp": {}},
    }
    assert listed["Config"] == f"{image.digest}.json"


@pytest.mark.parametrize(
    "change", [{"user": "1"}, {"env": {"A": "b"}}, {"cmd": ["x"]}, {"workdir": "/x"}, {"layers": []}]
)
def test_any_change_gives_another_digest(layer: Layer, change: dict[str, object]) -> None:
    image = Image([layer])
    assert image.digest == Image([layer]).digest
    assert replace(image, **change).digest != image.digest  # type: ignore[arg-type]  # one of its fields


def test_a_layer_of_the_same_files_is_the_same_file(tmp_path: Path, layer: Layer) -> None:
    again = layer_of_files({"tmp/": (b"", 0o1777), "bin/sh": (b"a shell", 0o755)}, tmp_path / "layers")
    assert again == layer
    assert [path.name for path in (tmp_path / "layers").iterdir()] == [f"{layer.digest}.tar"]


def test_a_layer_of_files_has_their_modes_and_folders(layer: Layer) -> None:
    with tarfile.open(layer.file) as tar:
        entries = {each.name: each for each in tar.getmembers()}
    assert (entries["bin/sh"].mode, entries["bin/sh"].uid) == (0o755, 0)
    assert (entries["tmp"].mode, entries["tmp"].isdir()) == (0o1777, True)
