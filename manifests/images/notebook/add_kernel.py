"""Adds the Bitfusion kernel to the Python that runs this: the Containerfile beside it does.

What the image has and what is good enough stays as it is. What is missing or too old comes from kernel.txt,
in its version and by its hash. Each change is printed, and what other packages of the image say about it.

Only the standard library and the image's own pip are used. Python 3.7 must be able to read this file, to
say that it is too old.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib import import_module

OLDEST = (3, 10)
PROJECT = "kubeflow-bitfusion"
HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Add the kernel, or end with one line that says why that is not possible and what to do."""
    why_not = unfit(sys.version_info[:3], sys.executable) or not_writable(sysconfig.get_path("purelib"))
    if why_not:
        sys.exit(why_not)
    with open(os.path.join(HERE, "kernel.txt")) as file:
        locked = lock_entries(file.read())
    wheels = [name for name in os.listdir(HERE) if name.endswith(".whl")]
    if len(wheels) != 1:
        sys.exit(
            f"There must be one wheel in dist/, not {len(wheels)}: remove dist/ and run "
            "`python3 -m pip wheel --no-deps --wheel-dir dist .` again."
        )
    before, complained = versions(), complaints()
    pip_install("--no-index", os.path.join(HERE, wheels[0]))
    wanted = missing(PROJECT)
    while wanted:
        install_locked(wanted, locked)
        wanted = missing(PROJECT)
    for line in changes(before, versions()):
        print(line)
    for line in complaints():
        if line not in complained:
            print(f"note: {line}")


def unfit(version: tuple[int, ...], executable: str) -> str:
    """One line that says that this Python is too old, and what to do; empty for one that fits."""
    if version[:2] >= OLDEST:
        return ""
    return (
        f"The Bitfusion kernel needs Python 3.10 or newer, and this image's {executable} is "
        f"{'.'.join(map(str, version))}: name another image, --build-arg NOTEBOOK_IMAGE=...; Kubeflow's own "
        "have 3.8 up to release 1.7 and 3.11 or newer from 1.8 on, and those run in an older Kubeflow, too."
    )


def not_writable(folder: str) -> str:
    """One line that says that packages would go elsewhere; empty where they can be put."""
    # pip would take the home folder instead, which a notebook's volume hides.
    if os.access(folder, os.W_OK):
        return ""
    return (
        f"User {os.getuid()} of this image may not write to {folder}: build on an image whose USER may, as "
        "Kubeflow's do, or put a USER who may before the first RUN and the image's own after the last."
    )


def lock_entries(text: str) -> dict[str, list[str]]:
    """The entries of a requirements file with hashes, by the name of the package: one or several each."""
    entries: dict[str, list[str]] = {}
    for entry in re.findall(r"(?m)^[^ #\n].*\\\n(?:    --hash=.*\n?)+", text):
        entries.setdefault(canonical(re.split(r"[=; ]", entry)[0]), []).append(entry)
    return entries


def canonical(name: str) -> str:
    """A package's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(project: str) -> list[str]:
    """What is not there, or not in a good version, of all that a package needs, directly or not."""
    metadata = import_module("importlib.metadata")  # Python 3.7 has none
    requirement = import_module("pip._vendor.packaging.requirements").Requirement
    found: set[str] = set()
    seen: set[str] = set()
    names = [project]
    while names:
        name = canonical(names.pop())
        if name in seen:
            continue
        seen.add(name)
        for words in metadata.requires(name) or []:
            needed = requirement(words)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            try:
                version = metadata.version(needed.name)
            except metadata.PackageNotFoundError:
                version = ""
            if version and needed.specifier.contains(version, prereleases=True):
                names.append(needed.name)
            else:
                found.add(canonical(needed.name))
    return sorted(found)


def install_locked(names: list[str], locked: dict[str, list[str]]) -> None:
    """Install these in the versions of the lock, by their hashes, and nothing else."""
    # What is in the lock fits together: each package is wanted once at most.
    unknown = [name for name in names if name not in locked]
    if unknown:
        sys.exit(f"kernel.txt has no good {', '.join(unknown)}: run `make lock` in the project's folder.")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for name in names:
            file.writelines(locked.pop(name))
        file.flush()
        pip_install("--only-binary=:all:", "--require-hashes", "-r", file.name)


def pip_install(*words: str) -> None:
    """Run pip; it tells by itself what goes wrong."""
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--no-user"]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *options, *words])
    if done.returncode != 0:
        sys.exit(f"pip ended with {done.returncode}.")


def versions() -> dict[str, str]:
    """Every package of this Python and its version."""
    found = {}
    for each in import_module("importlib.metadata").distributions():
        name = each.metadata["Name"]
        if name:  # pip leaves folders without one where it was interrupted
            found[canonical(name)] = each.version
    return found


def complaints() -> list[str]:
    """What `pip check` says of packages that do not fit together."""
    command = [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return [line for line in done.stdout.splitlines() if " requires " in line or " has requirement " in line]


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """A line for each package that is new or has another version."""
    return [
        f"{name} {version}" if name not in before else f"{name} {before[name]} -> {version}"
        for name, version in sorted(after.items())
        if before.get(name) != version
    ]


if __name__ == "__main__":
    main()
