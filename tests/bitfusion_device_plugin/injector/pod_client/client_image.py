"""The client's image as a folder, as its Containerfile lays it out, and its program of the init container."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

import bitfusion_device_plugin
from tests.cluster.debian_packages import PackagesUnavailable, unpacked
from tests.support.machine import scaled

LIMIT_S = 30.0
REPOSITORY = Path(bitfusion_device_plugin.__file__).parents[1]
SCRIPTS = REPOSITORY / "bitfusion_device_plugin" / "injector" / "pod_client"
PACKAGES = {"bitfusion_client": "shared", "bitfusion_pool": "stand-in", "bitfusion_pods": "pods"}
"""The folder of each in the image."""
POD = {
    "BITFUSION_POD_NAME": "mnist-0",
    "BITFUSION_POD_NAMESPACE": "team-a",
    "BITFUSION_POD_UID": "5f1c9a52-0000-4000-8000-000000000001",
    "BITFUSION_NOTEBOOK": "mnist",
}
"""What the downward API tells the init container."""
MAIN = ("main", "-n 1 -p 0.5", "50", "stand-in", "")
"""What the injector tells it of a container."""
PODS = ("main", "-n 1 -p 0.5", "50", "pods", "")
"""The same for a container whose programs run in pods that are made for them."""


def busybox() -> Path:
    """Debian's static busybox, fetched once into the cache."""
    try:
        return unpacked(["busybox-static"]) / "bin" / "busybox"
    except PackagesUnavailable as unavailable:
        pytest.skip(str(unavailable))


def openssl_libraries() -> tuple[list[Path], Path]:
    """This machine's openssl with its libraries, and what starts it, as the Containerfile finds them."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is missing: this machine can make no certificates as the client's image does")
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.split() for line in listed]
    (loader,) = [Path(each[0]) for each in words if each[0].startswith("/")]
    return [Path(program), *(Path(each[2]) for each in words if each[1] == "=>")], loader


def make_client_image(folder: Path, packages: Collection[str] = tuple(PACKAGES)) -> Path:
    """`/bitfusion-image`; with less than all packages it is only copied faster."""
    client = folder / "client"
    tools = client / "pods" / "openssl"
    for place in (folder / "bin", client / "bin", *map(client.joinpath, PACKAGES.values()), tools / "lib"):
        place.mkdir(parents=True)
    for shell in (folder / "bin" / "sh", client / "bin" / "sh"):
        _copy(busybox(), shell, 0o755)
    _copy(SCRIPTS / "install", folder / "install", 0o755)
    (program, *libraries), loader = openssl_libraries()
    _copy(program, tools / "openssl", 0o755)
    _copy(loader, tools / "ld.so", 0o755)
    for library in libraries:
        _copy(library, tools / "lib" / library.name, 0o644)
    _copy(SCRIPTS / "starter", client / "bin" / "bitfusion", 0o755)
    for kind in ("stand-in", "pods"):
        _copy(SCRIPTS / "start_python.py", client / kind / "bitfusion", 0o644)
    for package in packages:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, client / PACKAGES[package] / package, ignore=ignored)
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
