"""Container images without a registry: root filesystem in, archive out, as ``docker save`` writes it.

An archive is a tar of an image's configuration, its layers and a list (Docker image specification v1.2),
which containerd imports. Layers are kept by the digest of their content, so images share them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One that doesn't change: an image of the same content has the same digest.
_EPOCH = "1970-01-01T00:00:00Z"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """One layer of a root filesystem: a tar that is not compressed."""

    file: Path
    digest: str
    """SHA-256 of the file, hexadecimal."""


@dataclass(frozen=True)
class Image:
    """What an image consists of; the names are those of a Containerfile."""

    layers: Sequence[Layer]
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    user: str = ""
    workdir: str = ""
    ports: Sequence[int] = ()

    def config(self) -> dict[str, Any]:
        """The image's configuration file."""
        config: dict[str, Any] = {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.cmd) or None,
            "User": self.user,
            "WorkingDir": self.workdir,
        }
        if self.ports:
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in self.ports}
        return {
            "architecture": architecture(),
            "os": "linux",
            "created": _EPOCH,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each.digest}" for each in self.layers]},
        }

    @property
    def digest(self) -> str:
        """Changes with anything in it, hexadecimal."""
        return hashlib.sha256(_json(self.config())).hexdigest()

    def write_archive(self, path: Path, name: str) -> None:
        """Write an archive of it under a name such as ``kubeflow-bitfusion/client:0.1.0``."""
        config = f"{self.digest}.json"
        layers = {f"{layer.digest}/layer.tar": layer.file for layer in self.layers}  # the same one once
        names = [f"{layer.digest}/layer.tar" for layer in self.layers]
        repository = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
        with tarfile.open(path, "w") as archive:
            _add(archive, config, _json(self.config()))
            for stored, file in layers.items():
                archive.add(file, stored, filter=_nobodys)
            manifest = {"Config": config, "RepoTags": [repository], "Layers": names}
            _add(archive, "manifest.json", _json([manifest]))


def layer_of_files(files: Mapping[str, tuple[bytes, int]], cache: Path) -> Layer:
    """Root's files by path, each with its content and mode; a folder's path ends with ``/``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in sorted(files.items()):
            _add(archive, name.lstrip("/"), content, mode)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / f"{digest}.tar"
    if not file.exists():
        fresh = cache / f"building-{os.getpid()}-{digest}"
        fresh.write_bytes(buffer.getvalue())
        fresh.rename(file)
    return Layer(file, digest)


def small_image(busybox: Path, cache: Path) -> Image:
    """A shell with the usual tools (busybox, static) and nothing else; the pause image of a node, too.

    Every tool is ``/bin/busybox TOOL``; `/bin/sh` is there.
    """
    program = busybox.read_bytes()
    files = {"bin/busybox": (program, 0o755), "bin/sh": (program, 0o755), "tmp/": (b"", 0o1777)}
    return Image(
        [layer_of_files(files, cache)],
        env={"PATH": "/bin"},
        entrypoint=["/bin/busybox", "sleep", "2147483647"],
    )


def architecture() -> str:
    """This machine's, as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    if name.endswith("/"):
        entry.type = tarfile.DIRTYPE
    archive.addfile(entry, io.BytesIO(content))


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
