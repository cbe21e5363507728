"""What the tests of an injected client share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.bitfusion_device_plugin.injector.pod_client.client_image import MAIN, install, make_client_image
from tests.bitfusion_device_plugin.injector.pod_client.container import Container


@pytest.fixture(scope="session")
def client_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_client_image(tmp_path_factory.mktemp("client-image") / "bitfusion-image")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The pod's emptyDir."""
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def installed(client_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a container with the stand-in, for copies."""
    volume = tmp_path_factory.mktemp("installed")
    assert install(client_image, volume, *MAIN).returncode == 0
    return volume / "main"


@pytest.fixture
def container(installed: Path, volume: Path, tmp_path: Path) -> Container:
    """The pod's container, with the stand-in; its image has no Python."""
    shutil.copytree(installed, volume / "main", copy_function=os.link)
    (tmp_path / "root").mkdir()
    return Container(tmp_path / "root", volume / "main")
