"""What a caller may wish for images: registry, tag, platforms, arguments. Pure; what is wrong is told."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

NAMES = ("client", "notebook", "notebook-controller", "pool")
"""Our images: the folders in manifests/images."""
PLATFORMS = ("linux/amd64", "linux/arm64")

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = "[A-Za-z0-9][A-Za-z0-9-]*"
_HOST = rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?=:))(?::[0-9]+)?"
_REGISTRY = re.compile(rf"{_HOST}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Refused(Exception):
    """What was given, what is allowed, what to do next: for the person at the terminal."""


def registry(text: str) -> str:
    """The part of all names before `/client`, checked."""
    if _REGISTRY.fullmatch(text):
        return text
    wanted = "a host and a path in lower case, such as registry.example.com/team"
    if not text:
        raise Refused(f"REGISTRY is missing: {wanted}. Without a registry: --no-push.")
    why = ""
    if "://" in text:
        why = f" without {text.partition('://')[0]}://"
    elif text.endswith("/"):
        why = " without / at its end"
    elif re.fullmatch(rf"{_PART}(/{_PART})*", text):
        why = f"; Docker Hub's is docker.io/{text}"
    raise Refused(f"REGISTRY={text!r} is not the name of a registry: it must be {wanted}{why}.")


def tag(text: str) -> str:
    """A tag, checked."""
    if not _TAG.fullmatch(text):
        raise Refused(
            f"TAG={text!r} is not an image's tag: it must be letters, digits, _, . or -, at most "
            f"128, and begin "
            "with a letter, a digit or _."
        )
    return text


def platforms(text: str) -> tuple[str, ...]:
    """From `linux/amd64,linux/arm64`; empty for this machine's."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for each in found:
        if each not in PLATFORMS:
            raise Refused(
                f"PLATFORM={text!r} has {each!r}: it must be {' or '.join(PLATFORMS)}, or both with a comma."
            )
    return found


def build_args(words: Sequence[str], declared: Collection[str]) -> dict[str, str]:
    """From words NAME=VALUE; `declared` are the arguments that the Containerfiles have."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in declared or not value:
            raise Refused(
                f"--build-arg {word!r} is for none of these images: it must be NAME=VALUE, with one of "
                f"{', '.join(sorted(declared))}."
            )
        found[name] = value
    return found
