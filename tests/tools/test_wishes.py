"""What the caller says about images: what is taken, and how the rest is refused."""

from __future__ import annotations

import pytest

from tools.images import wishes
from tools.images.wishes import Refused


@pytest.mark.parametrize(
    "text",
    [
        "registry.example.com",
        "registry.example.com/team",
        "Registry.Example.com:5000/a/b-c/d__e",
        "localhost/team",
        "127.0.0.1:5000/team",
        "registry:5000",
    ],
)
def test_a_registry(text: str) -> None:
    assert wishes.registry(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "REGISTRY is missing: a host and a path in lower case, such as registry.example.com/team"),
        ("https://a.b/c", "such as registry.example.com/team without https://."),
        ("a.b/c/", "without / at its end"),
        ("team", "Docker Hub's is docker.io/team"),
        ("a.b/Team", "REGISTRY='a.b/Team' is not the name of a registry: it must be"),
        ("a.b/c:1", "is not the name of a registry"),
        ("a.b/c d", "is not the name of a registry"),
        ("a.b/$(id)", "is not the name of a registry"),
        ("--push.x/a", "is not the name of a registry"),
        ("a.b/c\n", "is not the name of a registry"),
    ],
)
def test_a_wrong_registry_is_told(text: str, told: str) -> None:
    with pytest.raises(Refused) as refused:
        wishes.registry(text)
    assert told in str(refused.value)


@pytest.mark.parametrize("text", ["", ".x", "-x", "a b", "a/b", "a" * 129, "ä", "1\n"])
def test_a_wrong_tag_is_told(text: str) -> None:
    with pytest.raises(Refused, match=r"is not an image's tag: it must be letters, digits, _, . or -"):
        wishes.tag(text)
    assert wishes.tag("v1.0_rc-1") == "v1.0_rc-1"


def test_platforms() -> None:
    assert wishes.platforms("") == ()
    assert wishes.platforms("linux/amd64, linux/arm64,linux/amd64") == ("linux/amd64", "linux/arm64")
    with pytest.raises(Refused, match="has 'arm64': it must be linux/amd64 or linux/arm64, or both"):
        wishes.platforms("linux/amd64,arm64")


def test_arguments_are_those_of_the_files() -> None:
    assert wishes.build_args(["A=1=2"], {"A", "B"}) == {"A": "1=2"}
    for word in ("C=1", "A", "A="):
        with pytest.raises(Refused, match=rf"'{word}' is for none of these images: .* with one of A, B"):
            wishes.build_args([word], {"A", "B"})
