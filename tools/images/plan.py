"""What is to be built, and by which commands: lists of words, never a line for a shell. Pure.

`builders` chooses the program and runs them. podman and buildah take the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.checkout import Checkout

PROGRAMS = ("docker", "podman", "buildah")


@dataclass(frozen=True)
class Order:
    """One image.

    Attributes:
        name: `client`, …
        repository: Its name without tag and digest.
        tag: Its tag.
        platforms: `linux/amd64`, …; none for this machine's.
        build_args: As for `--build-arg`.
        labels: By their names of OCI.
        epoch: The date that the image gets.
        own_layers: How many layers are put on a base of the caller's, for the one image that has such a base.
    """

    name: str
    repository: str
    tag: str
    platforms: tuple[str, ...] = ()
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0
    own_layers: int | None = None

    @property
    def reference(self) -> str:
        """Its name as pods have it."""
        return f"{self.repository}:{self.tag}"

    @property
    def file(self) -> str:
        """Its Containerfile, seen from the project's folder."""
        return containerfile(self.name)


@dataclass(frozen=True)
class How:
    """What counts for all images.

    Attributes:
        program: One of PROGRAMS.
        push: Whether they go to the registry.
        insecure: Whether the registry is spoken to without TLS, or with a certificate that nobody knows.
        sbom: Whether docker's buildkit attaches an SBOM.
        more: Words for the builder from the command line, such as `--no-cache`.
    """

    program: str
    push: bool = True
    insecure: bool = False
    sbom: bool = False
    more: Sequence[str] = ()


@dataclass(frozen=True)
class Step:
    """One command; the result of one that `may_fail` does not count."""

    argv: tuple[str, ...]
    may_fail: bool = False


def containerfile(name: str) -> str:
    """Where an image's Containerfile is in the project's folder."""
    return f"manifests/images/{name}/Containerfile"


def labels(checkout: Checkout, tag: str) -> dict[str, str]:
    """What an image says about where it comes from; what is not known is left out."""
    known = {
        "version": tag,
        "created": checkout.created,
        "revision": checkout.revision,
        "source": checkout.source,
    }
    return {f"org.opencontainers.image.{name}": value for name, value in known.items() if value}


def steps(order: Order, how: How, digest_file: str) -> list[Step]:
    """The commands for one image, in the project's folder. One that pushes writes `digest_file`."""
    return _docker(order, how, digest_file) if how.program == "docker" else _podman(order, how, digest_file)


def _docker(order: Order, how: How, digest_file: str) -> list[Step]:
    output = "type=image,push=true" + (",registry.insecure=true" if how.insecure else "")
    return [
        Step(
            (
                *("docker", "buildx", "build", "--tag", order.reference, *_platforms(order)),
                *_common(order, {**order.build_args, "SOURCE_DATE_EPOCH": str(order.epoch)}),
                *(("--attest", "type=sbom") if how.sbom else ()),
                *(("--output", output, "--metadata-file", digest_file) if how.push else ("--load",)),
                *how.more,
                ".",
            )
        )
    ]


def _podman(order: Order, how: How, digest_file: str) -> list[Step]:
    build = (
        *(how.program, "build", "--layers", "--format", "oci", "--timestamp", str(order.epoch)),
        *(
            "--ignorefile",
            f"{order.file}.dockerignore",
            *_common(order, order.build_args),
            *_platforms(order),
        ),
    )
    push = ("--digestfile", digest_file, *(("--tls-verify=false",) if how.insecure else ()))
    target = f"docker://{order.reference}"
    if len(order.platforms) < 2:
        built = Step((*build, "--tag", order.reference, *how.more, "."))
        return [built, Step((how.program, "push", *push, order.reference, target))] if how.push else [built]
    # A list of an earlier build would keep its images. And buildah before 1.41 takes an image FROM scratch
    # that is in its cache for one platform for the others, too (podman's issue 18723).
    several = f"localhost/kubeflow-bitfusion/{order.name}-platforms:{order.tag}"
    return [
        Step((how.program, "manifest", "rm", several), may_fail=True),
        Step((*build, "--no-cache", "--manifest", several, *how.more, ".")),
        Step((how.program, "manifest", "push", "--all", *push, several, target)),
    ]


def _platforms(order: Order) -> tuple[str, ...]:
    return ("--platform", ",".join(order.platforms)) if order.platforms else ()


def _common(order: Order, build_args: Mapping[str, str]) -> list[str]:
    words = ["--file", order.file]
    for option, values in (("--build-arg", build_args), ("--label", order.labels)):
        for name, value in sorted(values.items()):
            words += [option, f"{name}={value}"]
    return words
