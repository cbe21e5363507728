"""Make an environment for one purpose, from a lock file with hashes, with nothing but Python's own pip.

    python3 tools/environment.py demo            # build/venv with requirements/demo.txt and this project
    python3 tools/environment.py packages --python 3.13 --folder build/venv-3.13

A stamp in the environment tells what is in it, so a second call returns at once. Purposes share one
environment: their lock files agree with each other.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUPPORTED = ("3.13", "3.12", "3.11", "3.10")
PURPOSES = ("demo", "kernel", "lab", "lint", "packages", "test")


class Trouble(Exception):
    """What keeps the environment from being made, in words for the person who typed `make`."""


def version_of(python: str) -> str | None:
    """`3.11` for an interpreter that runs, None for anything else (a pyenv shim of nothing, say)."""
    try:
        answer = subprocess.run(
            [python, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode().strip()


def find_python(version: str) -> str | None:
    """An interpreter of that version: $PYTHON313 and the like, this one, PATH, then pyenv's folder."""
    named = os.environ.get("PYTHON" + version.replace(".", ""))
    places = [named, sys.executable, shutil.which("python" + version)]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    places += sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python3"), reverse=True)
    for place in places:
        if place and version_of(place) == version:
            return place
    return None


def choose_python(wanted: str | None) -> str:
    if wanted:
        found = find_python(wanted)
        if not found:
            variable = "PYTHON" + wanted.replace(".", "")
            raise Trouble(f"Python {wanted} was not found; name it: {variable}=/path/to/python3")
        return found
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if running in SUPPORTED:
        return sys.executable
    for version in SUPPORTED:
        found = find_python(version)
        if found:
            return found
    raise Trouble(
        f"Python 3.10 to 3.13 is needed, {sys.executable} is {running}; "
        "name another one: make PYTHON=/path/to/python3"
    )


def make_folder(folder: str, python: str) -> str:
    """A fresh virtual environment, unless one of this interpreter and place is there; its python."""
    inside = os.path.join(folder, "bin", "python")
    identity = f"{os.path.realpath(python)} {folder}"
    note = os.path.join(folder, ".made-from")
    if os.path.exists(note) and version_of(inside):
        with open(note) as file:
            if file.read() == identity:
                return inside
    say(f"making {os.path.relpath(folder, ROOT)} with Python {version_of(python)}")
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([python, "-m", "venv", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise Trouble(
            f"{python} cannot make a virtual environment (Debian and Ubuntu: apt-get install python3-venv):\n"
            + made.stdout.decode(errors="replace").strip()
        )
    with open(note, "w") as file:
        file.write(identity)
    return inside


def install(python: str, folder: str, purpose: str) -> None:
    # requirements/test.txt has all that the others have.
    if not (has(folder, "test") or has(folder, purpose)):
        with open(lock_file(purpose), "rb") as file:
            text = file.read()
        pins = len(re.findall(rb"(?m)^[A-Za-z0-9][^ ]*==", text))
        started = time.monotonic()
        # The lock is complete: no dependencies to look for. Bytecode is written at the first import.
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"]
        pip(python, ["install", *options, "-r", lock_file(purpose)], Progress(pins, purpose))
        write(stamp(folder, purpose), hashlib.sha256(text).hexdigest())
        say(f"packages for {purpose} are in place ({time.monotonic() - started:.0f} s)")
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = hashlib.sha256(file.read()).hexdigest()
    if purpose != "lint" and read(stamp(folder, "this-project")) != project:
        pip(python, ["install", "--no-deps", "--no-build-isolation", "--no-index", "-e", ROOT], None)
        write(stamp(folder, "this-project"), project)
        say("this project is in place")


def has(folder: str, purpose: str) -> bool:
    with open(lock_file(purpose), "rb") as file:
        return read(stamp(folder, purpose)) == hashlib.sha256(file.read()).hexdigest()


def lock_file(purpose: str) -> str:
    return os.path.join(ROOT, "requirements", purpose + ".txt")


def stamp(folder: str, content: str) -> str:
    return os.path.join(folder, ".has-" + content)


def pip(python: str, arguments: list[str], progress: Progress | None) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    command += ["--progress-bar", "off"]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            said.append(line)
            if progress:
                progress.see(line)
    if progress:
        progress.end()
    if process.returncode != 0:
        raise Trouble(f"pip {arguments[0]} failed:\n" + "\n".join(said[-25:]))


class Progress:
    """pip's many lines as a few: one that changes in a terminal, one every 20 packages in a log."""

    def __init__(self, pins: int, purpose: str) -> None:
        self.total = pins
        self.done = 0
        self.live = sys.stdout.isatty()
        say(f"fetching the packages for {purpose}")

    def see(self, line: str) -> None:
        words = line.split()
        if line.startswith("Ignoring "):
            self.total -= 1  # for another Python or system
        elif line.startswith("Collecting ") and len(words) > 1:
            self.done += 1
            self.show(words[1].split("==")[0])
        elif words[:1] == ["Downloading"] and line.endswith("MB)"):
            size = line.rsplit("(", 1)[1][:-1]
            if float(size.split()[0]) > 50:
                self.show(f"{words[1].rsplit('/', 1)[-1].split('-')[0]}, {size}", always=True)
        elif line.startswith("Installing collected packages"):
            self.show(f"unpacking {self.done} packages", always=True)

    def show(self, what: str, always: bool = False) -> None:
        text = f"  {self.done:3d}/{self.total}  {what}"
        if self.live:
            print("\r\033[K" + text, end="", flush=True)
        elif always or self.done % 20 == 0:
            print(text, flush=True)

    def end(self) -> None:
        if self.live:
            print("\r\033[K", end="", flush=True)


def say(text: str) -> None:
    print("· " + text, flush=True)


def read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make an environment from a lock file.")
    parser.add_argument("purpose", choices=PURPOSES)
    parser.add_argument("--python", metavar="X.Y", help="the version to use (default: the running one)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "venv"))
    parser.add_argument("--if-found", action="store_true", help="end with 3 where --python is missing")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    try:
        if options.if_found and not find_python(options.python or ""):
            print(f"· Python {options.python} is not on this machine")
            return 3
        install(make_folder(folder, choose_python(options.python)), folder, options.purpose)
    except Trouble as trouble:
        print(f"make: {trouble}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
