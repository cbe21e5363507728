"""The images that ours begin with, and the digests by which they are pinned. Pure.

requirements/base-images.digests has a line `REFERENCE DIGEST` for each. `python3 -m tools.images --pin`
writes it from what the registries say now; a build takes from it what is there, and says what is not pinned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.checkout import ROOT
from tools.images.wishes import Refused

FILE = ROOT / "requirements" / "base-images.digests"
PIN = "python3 -m tools.images --pin"
_LINE = re.compile(r"(\S+) (sha256:[0-9a-f]{64})")


def parse(text: str) -> dict[str, str]:
    """The digests by reference."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None:
                raise Refused(
                    f"{FILE.name} has the line {line!r}: must be REFERENCE sha256:… Renew it: {PIN}"
                )
            found[match[1]] = match[2]
    return found


def text(digests: Mapping[str, str]) -> str:
    """The file's text."""
    head = f"# Base images by digest, each for all its architectures. Renew them: {PIN}\n"
    return head + "".join(f"{reference} {digest}\n" for reference, digest in sorted(digests.items()))


def read(file: Path = FILE) -> dict[str, str]:
    """What is pinned; nothing without the file."""
    return parse(file.read_text()) if file.is_file() else {}


def in_file(arguments: Mapping[str, str]) -> dict[str, str]:
    """The references that a Containerfile begins with, of all that stands before its first FROM."""
    return {name: value for name, value in arguments.items() if name.endswith("_IMAGE")}


def pinned(references: Mapping[str, str], digests: Mapping[str, str]) -> dict[str, str]:
    """The arguments of those that have a digest: `repository@digest`, which every builder understands."""
    return {
        name: f"{repository(reference)}@{digests[reference]}"
        for name, reference in references.items()
        if reference in digests
    }


def loose(references: Iterable[str]) -> set[str]:
    """Those that have no digest, neither by themselves nor in the file."""
    return {each for each in references if "@" not in each} - set(read())


def repository(reference: str) -> str:
    """A reference without its tag and digest."""
    name = reference.partition("@")[0]
    head, colon, last = name.rpartition(":")
    return head if colon and "/" not in last else name
