"""Writes requirements/*.txt: exact versions of every package, with the hashes of the wheels for Linux.

    make lock                              # keeps the versions that there are
    make lock LOCK=--upgrade               # takes the newest that pyproject.toml allows
    make lock LOCK='--upgrade-package=ruff'

uv resolves for every supported Python at once. Only wheels are installed, so only their hashes are kept: for
CPython 3.10 to 3.15 on x86_64 and aarch64. No address of a registry is written, the machine's own is used.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
LOCK = REQUIREMENTS / "lock.txt"
LEFT_OUT = REQUIREMENTS / "left-out.in"
# Dependency groups with environments of their own: what other projects' tests import, and older front ends.
APART = ("jupyter-suites", "oldest-front-ends")
HEADER = "# Written by `make lock`.\n"
TAG = re.compile(
    r"(py3\d*-none|cp3(\d|1[0-5])-abi3|(cp31[0-5])-(\3|none))"
    r"-(any|(many|musl)?linux.*_(x86_64|aarch64))"
)


def compile_lock(*arguments: str | Path, given: str = "") -> None:
    """Run `uv pip compile` for all supported Pythons."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--universal", "--python-version=3.10", "--only-binary=:all:", "--generate-hashes"]
    options += ["--no-emit-index-url", "--no-annotate", "--no-header", f"--override={LEFT_OUT}"]
    subprocess.run([uv, "pip", "compile", *options, *arguments], cwd=ROOT, input=given, text=True, check=True)


def can_be_installed(wheel: str) -> bool:
    """Say whether a wheel's tags fit a CPython and a platform that this project supports."""
    return any(TAG.fullmatch(str(tag)) for tag in parse_wheel_filename(wheel)[3])


def hashes_of_wheels(lock: dict[str, Any]) -> set[str]:
    """Return the hashes of all wheels in a pylock.toml that this project can install."""
    wheels = [wheel for package in lock["packages"] for wheel in package.get("wheels", ())]
    return {
        wheel["hashes"]["sha256"] for wheel in wheels if can_be_installed(wheel["url"].rpartition("/")[2])
    }


def wheels_for(*arguments: str | Path) -> set[str]:
    """Return the hashes of the wheels of what `compile_lock` finds for the same arguments."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "pylock.toml"
        compile_lock(*arguments, "--format=pylock.toml", "--output-file", files)
        return hashes_of_wheels(tomllib.loads(files.read_text()))


def keep_only(path: Path, hashes: set[str]) -> None:
    """Drop all other hashes from a lock file, and the packages that have none left."""
    text = HEADER
    for name, *lines in re.findall(r"(?m)^([^ #].*) \\\n((?:    --hash=.*\n)+)", path.read_text()):
        kept = [digest for digest in re.findall(r"sha256:(\w+)", lines[0]) if digest in hashes]
        if kept:
            text += name + "".join(f" \\\n    --hash=sha256:{digest}" for digest in kept) + "\n"
    path.write_text(text)


def named(requirements: list[str], name: str) -> list[str]:
    """Return the requirements of one package."""
    return [requirement for requirement in requirements if Requirement(requirement).name == name]


def lock_apart(group: str, wanted: list[Any]) -> None:
    """Lock a group of its own: this project's versions, but of what the group names exactly."""
    path = REQUIREMENTS / f"{group}.txt"
    path.unlink(missing_ok=True)
    pinned = {Requirement(each).name for each in wanted if isinstance(each, str) and "==" in each}
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "constraints.txt"
        lines = re.findall(r"(?m)^(\S+)(==[^\\\n]+)", LOCK.read_text())
        ours.write_text("".join(f"{name}{rest}\n" for name, rest in lines if name not in pinned))
        arguments: list[str | Path] = [f"--group={group}", "--constraint", ours]
        compile_lock(*arguments, "--output-file", path)
        keep_only(path, wheels_for(*arguments, "--constraint", path))


def main() -> None:
    """Write the lock of everything, then its parts that are installed by pip alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    everything = ["pyproject.toml", "--all-extras", "--group=test", "--group=build", "--group=installer"]
    # uv would keep the hashes that it finds: without those of wheels for a Python that came later
    LOCK.write_text(re.sub(r" \\\n    --hash=\S+", "", LOCK.read_text()))
    compile_lock(*everything, "--output-file", LOCK, *sys.argv[1:])
    hashes = wheels_for(*everything, "--constraint", LOCK)
    own, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]
    parts = {
        # What tools/environment.py lets pip install.
        "uv.txt": project["dependency-groups"]["installer"],
        # What builds the wheel and the archives of a release, tools/wheel.py.
        "build.txt": project["dependency-groups"]["build"],
        # What the image of all Kubernetes processes holds: without the kernel's packages.
        "controller.txt": [*extras["controller"], *extras["device-plugin"]],
        # What the pool's image holds: what its service needs, and what finds NVIDIA's cards.
        "pool.txt": [*extras["service"], *extras["nvidia"], *named(own, "tomli")],
        # What a notebook image may lack for the kernel; manifests/images/notebook/ takes its pick.
        "kernel.txt": own,
    }
    for name, wanted in parts.items():
        part = REQUIREMENTS / name
        part.unlink(missing_ok=True)
        compile_lock("-", "--constraint", LOCK, "--output-file", part, given="\n".join(wanted))
        keep_only(part, hashes)
    keep_only(LOCK, hashes)
    for group in APART:
        lock_apart(group, project["dependency-groups"][group])


if __name__ == "__main__":
    main()
