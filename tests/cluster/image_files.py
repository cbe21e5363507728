"""Images as files on this machine: layers, how to become a process in them, how to hand them to a runtime.

A layer is a folder as overlayfs writes it, in the store of `buildah`.
Root is needed to put layers on top of each other; `why_no_images` says in a line what else is.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import buildah

_ENTER = Path(__file__).with_name("enter_image.py")
_PROGRAMS = ("unshare", "mount")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_PATH = _PATH
"""PATH in an image that sets none."""


@dataclass(frozen=True)
class BuiltImage:
    """An image that is ready to run.

    Attributes:
        name: With its tag, as pods write it.
        digest: Changes with anything in it, hexadecimal.
        layers: Their folders as overlayfs takes them, the lowest first.
        config: The `config` of an OCI image: Env, User, WorkingDir, Entrypoint, Cmd, ExposedPorts, Labels.
        build_s: Seconds this call's build took; next to nothing when the image was in the cache.
    """

    name: str
    digest: str
    layers: tuple[Path, ...]
    config: Mapping[str, Any]
    build_s: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """Its variables; PATH always."""
        words = (word.partition("=") for word in self.config.get("Env", ()))
        return {"PATH": DEFAULT_PATH, **{name: value for name, _, value in words}}

    @property
    def command(self) -> list[str]:
        """What it runs by itself."""
        return [*self.config.get("Entrypoint", ()), *self.config.get("Cmd", ())]

    def files(self) -> dict[str, Path]:
        """Of all layers, by the paths that they have in the image."""
        every = ((layer, path) for layer in self.layers for path in layer.rglob("*") if not path.is_dir())
        return {str(path.relative_to(layer)): path for layer, path in every}

    def size(self) -> int:
        """Bytes of the files in all layers."""
        return sum(path.lstat().st_size for path in self.files().values() if not path.is_symlink())

    def write_archive(self, path: Path, name: str) -> None:
        """For a node of the test cluster, under this name."""
        buildah.write_archive(self.digest, path, name)


@dataclass(frozen=True)
class Entry:
    """How to become a process in some layers: what `enter_image` is told.

    Attributes:
        layers: Their folders, the lowest first.
        root: An empty folder to put them together at.
        upper: Where changes go; without it, nothing can be changed.
        work: overlayfs' own, beside `upper`.
        argv: The program and its words.
        env: All its variables.
        user: As in an image's USER.
        cwd: Its folder.
        binds: Files and folders of this machine and where they are seen; below /dev/ any name is free.
        tmpfs: Folders of the image that are empty and writable.
        read_only: As `readOnlyRootFilesystem`.
        own_network: Nothing but a loopback interface.
        no_new_privileges: As `allowPrivilegeEscalation: false`.
    """

    layers: Sequence[str]
    root: str
    upper: str = ""
    work: str = ""
    argv: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    cwd: str = "/"
    binds: Sequence[tuple[str, str]] = ()
    tmpfs: Sequence[str] = ()
    read_only: bool = False
    own_network: bool = False
    no_new_privileges: bool = False

    def words(self) -> list[str]:
        """The command that does it. It ends when its parent does, and with it all that it started."""
        spaces = ["--mount", "--pid", "--fork", "--kill-child", *(["--net"] if self.own_network else [])]
        return ["unshare", *spaces, sys.executable, "-I", "-S", str(_ENTER), json.dumps(asdict(self))]


def why_no_images() -> str | None:
    """One line that says why no image can be built or entered here; None where that can be done."""
    if platform.system() != "Linux":
        return "no images: they need Linux"
    if os.geteuid() != 0:
        return "no images: putting layers on top of each other needs root"
    for program in _PROGRAMS:
        if shutil.which(program, path=_PATH) is None:
            return f"no images: {program} is missing"
    with tempfile.TemporaryDirectory() as place:
        folders = {name: f"{place}/{name}" for name in ("lower", "upper", "work", "root")}
        for folder in folders.values():
            os.mkdir(folder)
        layers = f"lowerdir={folders['lower']},upperdir={folders['upper']},workdir={folders['work']}"
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", layers, folders["root"]]
        done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"no images: overlayfs cannot be mounted here: {words}"
    reason = buildah.why_not()
    return f"no images: {reason}" if reason else None
