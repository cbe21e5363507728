"""Programs of Debian packages, unpacked into the user's cache: nothing is installed on this machine.

apt reads the machine's own sources and keys, with lists and archives in a folder that goes afterwards; root
isn't needed. `bootstrap` makes a folder or an archive of packages with all that they need, of any release.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.made_once import made_once, user_cache
from tests.support.machine import scaled

_LIMIT_S = 120.0
_BOOTSTRAP_LIMIT_S = 600.0


class PackagesUnavailable(Exception):
    """One line that says which packages cannot be had here, and why."""


def packages_folder(names: Sequence[str], whole: bool = False) -> Path:
    """Where these packages lie, or will: one folder for each set of names and each Debian release."""
    told = repr((sorted(set(names)), _release(), platform.machine(), *(["whole"] if whole else [])))
    return user_cache() / "node" / f"packages-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def why_no_packages() -> str | None:
    """One line that says why Debian packages cannot be unpacked here; None where they can."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program, path=_PATH) is None:
            return f"{program} is missing: this needs Debian or Ubuntu"
    return None


def unpacked(names: Sequence[str], whole: bool = False) -> Path:
    """The folder with these packages' files below it (`usr/bin/…`), fetched when it isn't there yet.

    It takes seconds the first time, nothing afterwards; several processes may ask at once. A new version in
    Debian's archive changes nothing until the folder is deleted. Raises PackagesUnavailable.

    Args:
        names: Of the packages; what they depend on is not looked at.
        whole: With what they depend on, and without all that is installed on this machine.
    """
    folder = packages_folder(names, whole)
    if not folder.is_dir():
        reason = why_no_packages()
        if reason is not None:
            raise PackagesUnavailable(f"no Debian packages: {reason}")
    return made_once(folder, lambda fresh: _fetch(sorted(set(names)), fresh, whole))


def bootstrap(suite: str, names: Sequence[str], target: Path, *options: str) -> None:
    """Unpack these packages and what they need into an empty folder, or into an archive by the name `*.tar`.

    `suite` is a release of Debian (`bookworm`, `sid`), whatever this machine has; `options` are mmdebstrap's.
    Raises PackagesUnavailable.
    """
    program = shutil.which("mmdebstrap") or str(unpacked(["mmdebstrap"]) / "usr" / "bin" / "mmdebstrap")
    without = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "info", "locale", "man")]
    command = [program, "--quiet", *without, *options]
    # it calls programs of its own package by their names
    path = f"{Path(program).parent}:{_PATH}"
    command += [f"--include={','.join(names)}", suite, str(target)]
    run(command, target if target.is_dir() else target.parent, _BOOTSTRAP_LIMIT_S, path)


def run(command: list[str], folder: Path, limit_s: float = _LIMIT_S, path: str = "") -> None:
    """Run a program in a folder, with the PATH of every Debian. Raises PackagesUnavailable."""
    # The machine's proxy settings are in its environment.
    own = {"PATH": path or _PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=scaled(limit_s),
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        raise PackagesUnavailable(
            f"no Debian packages: {Path(command[0]).name} took over {expired.timeout:.0f} s"
        ) from None
    if done.returncode != 0:
        action = next((word for word in command[1:] if not word.startswith("-")), "-x")
        lines = [line.strip() for line in done.stdout.splitlines()]
        told = [line for line in lines if line.startswith(("E:", "Err:", "dpkg"))] or lines[-3:]
        words = " | ".join(told[:3]) or "it said nothing"
        raise PackagesUnavailable(
            f"no Debian packages: {Path(command[0]).name} {action} ended with {done.returncode}: {words}"
        )


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _fetch(names: list[str], folder: Path, whole: bool) -> None:
    work = folder / ".apt"
    debs = work / "cache" / "archives"
    for each in ("state/lists/partial", "cache/archives/partial"):
        (work / each).mkdir(parents=True)
    (work / "status").touch()
    apt = [
        "apt-get",
        f"-oDir::State={work}/state",
        # No package is installed, as far as apt knows.
        *([] if whole else [f"-oDir::State::status={work}/status"]),
        f"-oDir::Cache={work}/cache",
        # Its own user could not write into our private folder.
        "-oAPT::Sandbox::User=",
        "-oAcquire::Languages=none",
        "-oAcquire::Retries=3",
        "-oDebug::NoLocking=1",
        "-q",
    ]
    get = ["install", "--download-only", "--no-install-recommends", "--yes"] if whole else ["download"]
    run([*apt, "update"], debs)
    run([*apt, *get, *names], debs)
    for deb in sorted(debs.glob("*.deb")):
        run(["dpkg", "-x", str(deb), str(folder)], debs)
    shutil.rmtree(work)


def _release() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return ""
    return ",".join(sorted(line for line in lines if line.startswith(("ID=", "VERSION_CODENAME="))))
