"""Where `make images` is tried: a clone of this checkout, buildah, bases without a registry, and a registry.

The bases are the stand-ins of `base_images`; what a RUN needs to fetch packages comes from this machine, as
in `image_builder`. The registry is Debian's `docker-registry`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.cluster import buildah
from tests.cluster.base_images import base_image
from tests.cluster.debian_packages import unpacked
from tests.cluster.image_machine import machine_settings
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.tools.clones import clone
from tools.images.containerfile import bases, parse

_FROM = re.compile(r"(?mi)^FROM .*$")
_REGISTRY = """version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/content}}}}
http: {{addr: "{host}:{port}"}}
"""


@dataclass(frozen=True)
class Place:
    """A clone with a builder.

    Attributes:
        clone: The project's folder.
        env: Variables with which its commands find buildah and nothing else that builds.
        more: What the builder is told besides.
    """

    clone: Path
    env: Mapping[str, str]
    more: Sequence[str]

    def images(self, *words: str, more: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """`python3 -m tools.images …` in the clone, with a Python that has no package."""
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", _WITHOUT_PACKAGES, *words, "--", *self.more, *more],
            cwd=self.clone,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


_WITHOUT_PACKAGES = (
    "import runpy, sys; sys.path.insert(0, '.'); runpy.run_module('tools.images', run_name='__main__')"
)


def place(folder: Path, names: Sequence[str], notebook_image: str = "") -> Place:
    """A clone in which these images can be built; the one of the notebook on that base, if it is given."""
    given = {"NOTEBOOK_IMAGE": notebook_image} if notebook_image else {}
    cloned, machine = clone(folder / "clone"), machine_settings()
    for name in names:
        file = cloned / "manifests" / "images" / name / "Containerfile"
        for each in bases(parse(file.read_text()), given):
            buildah.tag(base_image(each).digest, each)
        # The one change: with these arguments RUN finds packages, and nothing of them stays in an image.
        file.write_text(_FROM.sub(rf"\g<0>\nARG {' '.join(machine.env)}", file.read_text()))
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    commit = ["git", *identity, "commit", "--quiet", "--all", "--message=For this machine"]
    subprocess.run(commit, cwd=cloned, check=True)
    program = buildah.command_in(folder / "builder")
    words = [f"--build-arg={key}={value}" for key, value in machine.env.items()]
    words += [f"--volume={source}:{place}:ro" for source, place in machine.binds]
    env = {**os.environ, "PATH": f"{program.parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
    env |= given
    if syft := shutil.which("syft"):
        env["PATH"] = f"{Path(syft).parent}:{env['PATH']}"
    return Place(cloned, env, [*buildah.RUN_AS, *words])


@contextmanager
def registry(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Debian's, without TLS: its address."""
    port = free_port()
    config = folder / "registry.yml"
    config.write_text(_REGISTRY.format(folder=folder, host=host, port=port))
    program = unpacked(["docker-registry"], whole=True) / "usr" / "bin" / "docker-registry"
    with (folder / "registry.log").open("w") as log:
        process = subprocess.Popen([str(program), "serve", str(config)], stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(host, port))
        yield f"{host}:{port}"
    finally:
        process.terminate()
        process.wait()


def _answers(host: str, port: int) -> bool:
    try:
        with urlopen(f"http://{host}:{port}/v2/", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
