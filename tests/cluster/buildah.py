"""Debian's buildah, unpacked into the user's cache, with a store of images of its own there.

It runs as root in new namespaces of mounts and processes: what a build that is killed has started or mounted
is gone with it, and no cgroup, file or setting of this machine is used or changed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.debian_packages import packages_folder, unpacked, why_no_packages
from tests.cluster.made_once import user_cache
from tests.support.machine import scaled

_PACKAGES = ("buildah", "crun")
_LIMIT_S = 1800.0
_HIDDEN = "/var/lib"
"""Where it keeps a cache, whatever it is told."""
# crun, told to leave cgroups alone, still looks at them, and wants none of both versions.
_HIDE = f'for each in {_HIDDEN} /sys/fs/cgroup; do mount -t tmpfs tmpfs $each || exit; done; exec "$@"'
_ALONE = (
    *("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child"),
    *("sh", "-c", _HIDE, "sh", "buildah"),
)
_ANY_IMAGE = '{"default": [{"type": "insecureAcceptAnything"}]}'
"""A signature policy: nothing is pulled, so nothing is signed."""
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{store}"\nrunroot = "{own}/run"\n'
_BESIDE = '[storage.options]\nadditionalimagestores = ["{store}"]\n'
RUN_AS = (
    *("--isolation=oci", "--runtime=crun", "--runtime-flag=cgroup-manager=disabled"),
    *("--security-opt=seccomp=unconfined", "--network=host", "--no-hosts"),
)
"""What a build needs on a machine without docker's daemons and cgroups."""


class BuildahFailed(Exception):
    """What it printed, all of it."""


def why_not() -> str | None:
    """One line that says why it cannot be had here; None where it can."""
    if user_cache().resolve().is_relative_to(_HIDDEN):
        return f"the cache is {user_cache()}, which is hidden from buildah; choose another folder"
    return None if packages_folder(_PACKAGES, whole=True).is_dir() else why_no_packages()


def build(file: Path, context: Path, words: Sequence[str]) -> str:
    """The ID of the image that a Containerfile describes; images that it begins with have been tagged.

    Layers that an earlier build made of the same are taken from it. Raises BuildahFailed.
    """
    _buildah("rm", "--all")  # what a killed build has left
    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder) / "id"
        options = ("--layers", "--pull-never", "--force-rm", *RUN_AS, f"--iidfile={done}", f"--file={file}")
        _buildah("build", *options, *words, str(context), signed=True)
        return done.read_text().removeprefix("sha256:")


def tag(image: str, name: str) -> None:
    """Have a FROM of this name mean this image."""
    _buildah("tag", image, name)


def config(image: str) -> dict[str, Any]:
    """As the specification of OCI has it."""
    told = json.loads(_buildah("inspect", "--type=image", image))
    found: dict[str, Any] = told["OCIv1"]["config"]
    return found


def layers(image: str) -> list[str]:
    """The folders of its layers below `overlay()`, the lowest first, as overlayfs takes them."""
    every = json.loads((_store() / "overlay-images" / "images.json").read_text())
    (top,) = (overlay() / each["layer"] for each in every if each["id"] == image)
    lower = top / "lower"
    links = [f"l/{(top / 'link').read_text()}", *(lower.read_text().split(":") if lower.exists() else [])]
    return links[::-1]


def overlay() -> Path:
    """Where the store has layers."""
    return _store() / "overlay"


def write_archive(image: str, path: Path, name: str) -> None:
    """One that containerd imports, as `docker save` writes it."""
    _buildah("push", image, f"docker-archive:{path}:{name}", signed=True)


def command_in(folder: Path) -> Path:
    """A program `buildah` in a folder, for what calls it by its name; its own images lie in the folder, too.

    It knows the images of this store by the names that `tag` has given them. A build wants RUN_AS.
    """
    policy = folder / ".config" / "containers" / "policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text(_ANY_IMAGE)
    storage = _STORAGE.format(store=folder / "store", own=folder) + _BESIDE.format(store=_store())
    (folder / "storage.conf").write_text(storage)
    env = {**_environment(folder), "HOME": str(folder)}
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in env.items() if os.environ.get(name) != value
    ]
    program = folder / "bin" / "buildah"
    program.parent.mkdir()
    program.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.join(_ALONE)} "$@"', ""]))
    program.chmod(0o755)
    return program


def _store() -> Path:
    return user_cache().resolve() / "images" / "store"


def _environment(own: Path) -> dict[str, str]:
    """The variables with which it finds its programs, and its settings in a folder of this call's own."""
    packages = unpacked(_PACKAGES, whole=True)
    folders = [packages / "usr" / "bin", *(os.environ.get("PATH", os.defpath).split(":"))]
    libraries = [*packages.glob("usr/lib/*-linux-gnu*"), *packages.glob("lib/*-linux-gnu*")]
    return {
        **os.environ,
        **dict.fromkeys(("CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF"), os.devnull),
        "CONTAINERS_STORAGE_CONF": f"{own}/storage.conf",
        "PATH": ":".join(map(str, folders)),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        **dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), str(own)),
    }


def _buildah(command: str, *words: str, signed: bool = False) -> str:
    with tempfile.TemporaryDirectory(prefix="bft-buildah-") as own:
        (Path(own) / "policy.json").write_text(_ANY_IMAGE)
        (Path(own) / "storage.conf").write_text(_STORAGE.format(store=_store(), own=own))
        policy = [f"--signature-policy={own}/policy.json"] if signed else []
        done = subprocess.run(
            [*_ALONE, command, *policy, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=scaled(_LIMIT_S),
            env=_environment(Path(own)),
        )
    if done.returncode != 0:
        raise BuildahFailed(done.stdout)
    return done.stdout
