"""Builds this project's Containerfiles without docker, without a registry and without anything left running.

What was built before of the same files, arguments and images is found by a hash of them, in no time; of all
else `buildah` repeats what comes after the first change. The images that a file begins with stand for public
ones, see `base_images`. What a RUN needs of this machine to fetch packages comes from `image_machine`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.cluster import buildah
from tests.cluster.image_files import BuiltImage
from tests.cluster.image_machine import machine_settings
from tests.cluster.made_once import made_once, user_cache
from tools.images.containerfile import bases, parse

_GENERATION = 3
"""Raised when this builder makes other images of the same files."""

_FROM = re.compile(r"(?mi)^FROM .*$")
_STEP = re.compile(r"(?m)^(?:\[\d+/\d+\] )?STEP .*\n")

Say = Callable[[str], None]
Base = Callable[[str], BuiltImage]


class BuildFailed(Exception):
    """What of which file cannot be built, and the last that was said."""


def build(
    path: Path,
    context: Path,
    name: str,
    base: Base,
    arguments: Mapping[str, str] | None = None,
    say: Say = print,
) -> BuiltImage:
    """The image that a Containerfile describes, from the cache as far as it has been built before.

    Args:
        path: The Containerfile; what lies beside it as `Containerfile.dockerignore` limits what is copied.
        context: The folder that COPY takes files from.
        name: Of the image, with a tag.
        base: Gives the image that a FROM names; raises BuildFailed for those it does not know.
        arguments: As `docker build --build-arg`.
        say: Is told what is built, before it is, when it isn't in the cache.

    Raises:
        BuildFailed: The file says something that cannot be built, or a command in it failed.
    """
    text, given = path.read_text(), dict(arguments or {})
    file = parse(text)
    declared = {word.partition("=")[0] for each in file if each.name == "ARG" for word in each.words}
    if unknown := given.keys() - declared:
        raise BuildFailed(f"{path}: it has no ARG {', '.join(sorted(unknown))}")
    begins_with = {each: base(each).digest for each in bases(file, given)}
    ignored = Path(f"{path}.dockerignore")
    ignore = ignored.read_text() if ignored.exists() else ""
    key = key_of(text, ignore, sorted(given.items()), sorted(begins_with.items()), *_files(context))

    def make() -> str:
        say(f"images: {name} from {path} …")
        for each, digest in begins_with.items():
            buildah.tag(digest, each)
        return _build(text, str(path), context, ignore, given)

    return kept(name, key, make)


def build_layer(fill: Callable[[Path], None], containerfile: str, name: str) -> str:
    """The ID of a new image from scratch; `fill` puts the files that are copied or added into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        return _build(containerfile, name, Path(folder), "", {})


def kept(name: str, key: str, make: Callable[[], str]) -> BuiltImage:
    """The image of that key; `make` returns its ID when it isn't there yet."""
    began = time.monotonic()

    def fill(folder: Path) -> None:
        image = make()
        told = {"digest": image, "layers": buildah.layers(image), "config": buildah.config(image)}
        (folder / "image.json").write_text(json.dumps(told))

    folder = made_once(user_cache() / "images" / "built" / key, fill)
    told = json.loads((folder / "image.json").read_text())
    told["layers"] = tuple(buildah.overlay() / layer for layer in told["layers"])
    return BuiltImage(name, **told, build_s=time.monotonic() - began)


def key_of(*parts: object) -> str:
    """A short name for what something is made from."""
    return hashlib.sha256(repr((_GENERATION, *parts)).encode()).hexdigest()[:20]


def _files(context: Path) -> Iterator[tuple[str, int, str]]:
    """What a build could copy: each path with its mode and a hash of its content."""
    for path in sorted(context.rglob("*")):
        if path.is_symlink():
            yield str(path.relative_to(context)), 0, os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            yield str(path.relative_to(context)), path.stat().st_mode, content


def _build(text: str, name: str, context: Path, ignore: str, given: Mapping[str, str]) -> str:
    machine = machine_settings()
    # As arguments of each stage they are seen by every RUN, and an image's own variables win.
    stages = _FROM.sub(rf"\g<0>\nARG {' '.join(machine.env)}", text)
    words = [f"--build-arg={key}={value}" for key, value in {**machine.env, **given}.items()]
    words += [f"--volume={source}:{place}:ro" for source, place in machine.binds]
    with tempfile.TemporaryDirectory() as folder:
        files = {"Containerfile": stages, "ignore": ignore}
        for each, content in files.items():
            (Path(folder) / each).write_text(content)
        words.append(f"--ignorefile={folder}/ignore")
        try:
            return buildah.build(Path(folder) / "Containerfile", context, words)
        except buildah.BuildahFailed as failed:
            raise BuildFailed(f"{name}: {_told(str(failed))}") from None


def _told(output: str) -> str:
    """Why buildah failed, then the last lines of the command that it ran."""
    said, _, why = _STEP.split(output)[-1].strip().rpartition("Error: ")
    return "\n".join([why, *said.splitlines()[-15:]])
