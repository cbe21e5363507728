"""The client's image as a folder, as its Containerfile lays it out, and its program of the init container."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import bitfusion_device_plugin
from tests.cluster.debian_packages import PackagesUnavailable, unpacked
from tests.support.machine import scaled

LIMIT_S = 30.0
REPOSITORY = Path(bitfusion_device_plugin.__file__).parents[1]
SCRIPTS = REPOSITORY / "bitfusion_device_plugin" / "injector" / "pod_client"
PACKAGES = ("bitfusion_client", "bitfusion_pool")
POD = {
    "BITFUSION_POD_NAME": "mnist-0",
    "BITFUSION_POD_NAMESPACE": "team-a",
    "BITFUSION_POD_UID": "5f1c9a52-0000-4000-8000-000000000001",
    "BITFUSION_NOTEBOOK": "mnist",
}
"""What the downward API tells the init container."""
MAIN = ("main", "-n 1 -p 0.5", "50", "stand-in", "")
"""What the injector tells it of a container."""


def busybox() -> Path:
    """Debian's static busybox, fetched once into the cache."""
    try:
        return unpacked(["busybox-static"]) / "bin" / "busybox"
    except PackagesUnavailable as unavailable:
        pytest.skip(str(unavailable))


def make_client_image(folder: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """`/bitfusion-image`; with less than all packages it is only copied faster."""
    client = folder / "client"
    for place in (folder / "bin", client / "bin", client / "stand-in"):
        place.mkdir(parents=True)
    for shell in (folder / "bin" / "sh", client / "bin" / "sh"):
        _copy(busybox(), shell, 0o755)
    _copy(SCRIPTS / "install", folder / "install", 0o755)
    _copy(SCRIPTS / "starter", client / "bin" / "bitfusion", 0o755)
    _copy(SCRIPTS / "start_stand_in.py", client / "stand-in" / "bitfusion", 0o644)
    for package in packages:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, client / "stand-in" / package, ignore=ignored)
    return folder


def install(
    image: Path, volume: Path, *words: str, environ: Mapping[str, str] = POD
) -> subprocess.CompletedProcess[str]:
    """Run the program of the init container."""
    return subprocess.run(
        [image / "bin" / "sh", image / "install", volume, *words],
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=scaled(LIMIT_S),
        check=False,
    )


def _copy(source: Path, target: Path, mode: int) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, mode)
