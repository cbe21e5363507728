"""A Python that this machine lacks: Debian's newest, with its own C library, in the user's cache.

    python3 -m tests.cluster.debian_python 3.15      # prints where it is; 1 and a line where it cannot be had

`tools/environment.py` calls it for `make test-pythons`, with any Python and nothing but the standard library.
Packages of Debian's development want a newer C library than a stable release has. So where their loader and
libraries lie is written into the program, which then starts as any other does, and starts the machine's own.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.cluster.debian_packages import PackagesUnavailable, bootstrap, run, unpacked
from tests.cluster.made_once import made_once, user_cache

_SUITE = "sid"
_GENERATION = 1
_WHEELS = "usr/share/python-wheels"
"""Where Debian's `venv` finds pip."""


def debian_python(version: str) -> Path:
    """The interpreter of a version such as `3.15`, fetched when it isn't there yet: half a minute.

    A new version in Debian's archive changes nothing until its folder is deleted. Raises PackagesUnavailable.
    """
    folder = user_cache() / "python" / f"{version}-{_GENERATION}"
    made_once(folder, lambda fresh: _make(version, fresh, folder))
    return folder / "usr" / "bin" / f"python{version}"


def _make(version: str, fresh: Path, folder: Path) -> None:
    # A mirror may stand still for longer than the lists of `sid` are valid.
    options = ("--variant=extract", '--aptopt=Acquire::Check-Valid-Until "false"')
    bootstrap(_SUITE, [f"python{version}", f"python{version}-venv"], fresh, *options)
    for name in ("dev", "tmp", "var"):
        shutil.rmtree(fresh / name)
    python = fresh / "usr" / "bin" / f"python{version}"
    python.with_name("python3").symlink_to(python.name)
    for settings in fresh.glob(f"usr/lib/python{version}/_sysconfig*"):
        if not settings.is_symlink():
            settings.write_text(settings.read_text().replace(f"/{_WHEELS}", f"{folder}/{_WHEELS}"))
    loader = next(fresh.glob("usr/lib/*/ld-linux-*"))
    # Bytecode, because many machines let no program write its own; with the names that the files will have.
    names = ("-s", fresh, "-p", folder)
    library = fresh / "usr" / "lib" / f"python{version}"
    compile_all = (python, "-I", "-m", "compileall", "-q", *names, library)
    run([*map(str, (loader, "--library-path", loader.parent, *compile_all))], fresh)
    there = folder / loader.relative_to(fresh)
    # The older kind of path counts for the libraries of libraries, too.
    path = ("--force-rpath", "--set-rpath", there.parent)
    patchelf = unpacked(["patchelf"]) / "usr" / "bin" / "patchelf"
    run([*map(str, (patchelf, "--set-interpreter", there, *path, python))], fresh)


if __name__ == "__main__":
    try:
        print(debian_python(sys.argv[1]))
    except PackagesUnavailable as unavailable:
        sys.exit(str(unavailable))
