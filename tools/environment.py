"""Creates the virtual environment that `make` uses: uv, locked packages, this project, compiled bytecode.

    python3 tools/environment.py demo
    python3 tools/environment.py packages --python 3.14 --folder build/venv-3.14

Called by every target of the Makefile, with any Python that the machine has. pip installs uv, and uv installs
what pyproject.toml lists for the purpose, in the versions and with the hashes of requirements/lock.txt. All
purposes share one environment, but those with a lock file of their own. A stamp in it says what is installed,
so a second call returns at once.
"""

from __future__ import annotations

import argparse
import ast
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUPPORTED = ("3.15", "3.14", "3.13", "3.12", "3.11", "3.10")
# The newest for which each package of a purpose has a wheel, and which one has none for a newer.
NEWEST = {
    "demo": ("3.13", "TensorFlow"),
    "lab": ("3.13", "TensorFlow"),
    "test": ("3.13", "TensorFlow"),
    "packages": ("3.14", "orjson"),
    "jupyter-suites": ("3.14", "orjson"),
    "oldest-front-ends": ("3.13", "pycrdt"),
}
# The extras and dependency groups of pyproject.toml that each purpose needs. `test` includes all others.
PURPOSES = {
    "demo": ["--extra=demo"],
    "lab": ["--extra=demo", "--extra=lab"],
    "cluster": ["--group=cluster"],
    "lock": ["--group=lock"],
    "site": ["--group=site"],
    "any-python": ["--extra=nvidia", "--extra=service", "--group=any-python"],
    "packages": [
        *("--extra=form", "--extra=controller", "--extra=device-plugin", "--extra=nvidia", "--extra=service"),
        "--group=packages",
    ],
    "test": ["--all-extras", "--group=test"],
    "jupyter-suites": ["--group=jupyter-suites"],
    "oldest-front-ends": ["--group=oldest-front-ends"],
}
# Where the versions of a purpose stand elsewhere: it needs what this project does not, or an older one.
LOCKS = {
    "jupyter-suites": "requirements/jupyter-suites.txt",
    "oldest-front-ends": "requirements/oldest-front-ends.txt",
}
LEFT_OUT = "requirements/left-out.in"
# These need nothing of this project: neither its packages nor what those import.
WITHOUT_PROJECT = {"cluster", "lock", "site", "oldest-front-ends"}
# uv does not read pip's configuration; these environment variables tell it the same.
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


class EnvironmentFailure(Exception):
    """Why the environment cannot be created, in words for the person who typed `make`."""


class PythonMissing(EnvironmentFailure):
    """The version that was asked for cannot be had here."""


def version_of(python: str) -> str | None:
    """Return `3.11` for an interpreter that runs, None for anything else (a pyenv shim without a version)."""
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
    """Look for an interpreter of that version: $PYTHON314, the running one, PATH, then pyenv's folder."""
    named = os.environ.get("PYTHON" + version.replace(".", ""))
    places = [named, sys.executable, shutil.which("python" + version)]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    places += sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python3"), reverse=True)
    for place in places:
        if place and version_of(place) == version:
            return place
    return None


def debian_python(version: str) -> str:
    """Return an interpreter that Debian has and this machine has not, from the user's cache or fetched."""
    say(f"looking for Debian's Python {version}")
    status, output = call([sys.executable, "-m", "tests.cluster.debian_python", version], cwd=ROOT)
    if status != 0:
        raise PythonMissing(f"Python {version} is not on this machine, and Debian's cannot be had: {output}")
    return output


def choose_python(purpose: str, wanted: str | None = None, debian: bool = False) -> str:
    """Return the wanted version's interpreter, else the running one, else another that serves the purpose."""
    if wanted:
        found = find_python(wanted) or (debian_python(wanted) if debian else None)
        if not found:
            variable = "PYTHON" + wanted.replace(".", "")
            raise PythonMissing(f"Python {wanted} was not found; name it: {variable}=/path/to/python3")
        return found
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    newest, without = NEWEST.get(purpose, (SUPPORTED[0], ""))
    fitting = SUPPORTED[SUPPORTED.index(newest) :]
    if running in fitting:
        return os.path.realpath(sys.executable)  # that of a virtual environment may be about to go
    for version in fitting:
        found = find_python(version)
        if found:
            return found
    why = f" ({without} has no wheel for a newer one)" if without else ""
    raise EnvironmentFailure(
        f"Python {fitting[-1]} to {newest} is needed{why}, {sys.executable} is {running}; "
        "name another one: make PYTHON=/path/to/python3"
    )


def create(folder: str, python: str) -> str:
    """Create a virtual environment with uv in it, unless there is one, and return its interpreter."""
    inside = os.path.join(folder, "bin", "python")
    # what is left out from now on is there still: uv takes nothing away
    identity = f"{os.path.realpath(python)} {folder} {digest('requirements/uv.txt')}{digest(LEFT_OUT)}"
    stamp = os.path.join(folder, ".created")
    if read(stamp) == identity and version_of(inside):
        return inside
    there = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    if there and not there & {".created", "pyvenv.cfg"}:
        raise EnvironmentFailure(f"{folder} is no virtual environment: name another folder, or remove it")
    say(f"creating {os.path.relpath(folder, ROOT)} with Python {version_of(python)}")
    shutil.rmtree(folder, ignore_errors=True)
    status, output = call([python, "-m", "venv", folder])
    if status != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise EnvironmentFailure(
            f"{python} cannot create a virtual environment "
            f"(Debian and Ubuntu: apt-get install python3-venv):\n{output}"
        )
    options = [
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    uv = os.path.join(ROOT, "requirements", "uv.txt")
    status, output = call([inside, "-m", "pip", "install", *options, "-r", uv])
    if status != 0:
        raise EnvironmentFailure("pip cannot install uv, which installs everything else:\n" + output)
    write(stamp, identity)
    return inside


def install(python: str, folder: str, purpose: str) -> None:
    """Install the packages for a purpose and this project, unless they are there; compile what changed."""
    lock = LOCKS.get(purpose, "requirements/lock.txt")
    content = digest(lock) + digest("pyproject.toml")
    if content not in (read(stamp_of(folder, "test")), read(stamp_of(folder, purpose))):
        started = time.monotonic()
        say(f"installing the packages for `make {purpose}`")
        # Bytecode is compiled now: with PYTHONDONTWRITEBYTECODE set, every process would compile its imports.
        whole = purpose not in WITHOUT_PROJECT
        uv(
            python,
            *("--require-hashes", "--only-binary=:all:", "--compile-bytecode"),
            *(f"--constraint={lock}", f"--override={LEFT_OUT}", *PURPOSES[purpose]),
            *(("--requirement=pyproject.toml", "--group=build") if whole else ()),
        )
        if whole:
            uv(python, "--no-deps", "--no-index", "--no-build-isolation", "--editable=.")
        write(stamp_of(folder, purpose), content)
        say(f"installed in {time.monotonic() - started:.0f} s")
    packages = sorted(os.path.dirname(path) for path in glob.glob(os.path.join(ROOT, "*", "__init__.py")))
    subprocess.run([python, "-m", "compileall", "-q", *packages], cwd=ROOT, check=False)


def uv(python: str, *arguments: str) -> None:
    """Run `uv pip install` in the project's folder; what it prints is for the person at the terminal."""
    command = [os.path.join(os.path.dirname(python), "uv"), "pip", "install", "--python", python, *arguments]
    variables = {**pip_settings(python), **os.environ}
    if subprocess.run(command, cwd=ROOT, env=variables).returncode != 0:
        raise EnvironmentFailure("uv cannot install the packages, see above")


def pip_settings(python: str) -> dict[str, str]:
    """Return pip's configuration (files and PIP_*), as far as it says where packages come from, for uv."""
    _, output = call([python, "-m", "pip", "config", "list"])
    lines = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    settings = {}
    for section in ("global", "install", ":env:"):  # the last one wins
        for name, variable in UV_VARIABLES.items():
            value = lines.get(f"{section}.{name}")
            if value:
                settings[variable] = " ".join(ast.literal_eval(value).split())
    return settings


def stamp_of(folder: str, purpose: str) -> str:
    """Return the path of the file that says for which lock and pyproject.toml a purpose is installed."""
    return os.path.join(folder, ".installed-" + purpose)


def digest(path: str) -> str:
    """Return the hash of one of the project's files."""
    with open(os.path.join(ROOT, path), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def call(command: list[str], cwd: str | None = None) -> tuple[int, str]:
    """Run a command without showing its output; return its status and the last lines of its output."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = done.stdout.decode(errors="replace").splitlines()
    return done.returncode, "\n".join(lines[-25:])


def say(text: str) -> None:
    """Print one step."""
    print("· " + text, flush=True)


def read(path: str) -> str | None:
    """Return a file's text, None where it does not exist."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def write(path: str, text: str) -> None:
    """Write a file."""
    with open(path, "w") as file:
        file.write(text)


def main() -> int:
    """Create the environment that the command line asks for."""
    parser = argparse.ArgumentParser(description="Create a virtual environment from requirements/lock.txt.")
    parser.add_argument("purpose", choices=sorted(PURPOSES))
    parser.add_argument("--python", metavar="X.Y", help="the version to use (default: the running one)")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "venv"))
    parser.add_argument("--debian", action="store_true", help="take Debian's where --python is missing")
    parser.add_argument("--if-found", action="store_true", help="end with 3 where --python is missing")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    try:
        python = choose_python(options.purpose, options.python, options.debian)
        install(create(folder, python), folder, options.purpose)
    except EnvironmentFailure as failure:
        if options.if_found and isinstance(failure, PythonMissing):
            say(str(failure))
            return 3
        print(f"make: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
