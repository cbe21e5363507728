"""Builds and pushes the images of this project: `make images REGISTRY=…`, or without make what stands here.

    python3 -m tools.images --registry registry.example.com/team

It runs in the project's folder. Where the images are is written to images.lock.yaml, for helm, and
images-lock/, for kustomize. It needs Python 3.10 or newer with its `venv`, and docker with buildx, podman or
buildah; no package.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import checkout, wheel
from tools.checkout import ROOT
from tools.images import after_push, bases, builders, lock, plan, registry, wishes
from tools.images.containerfile import Instruction, arguments, parse
from tools.images.lock import Locked
from tools.images.plan import How, Order
from tools.images.wishes import NAMES, Refused


@dataclass(frozen=True)
class Source:
    """A Containerfile, the arguments that the command line gives it, and its bases by their arguments."""

    file: tuple[Instruction, ...]
    given: Mapping[str, str]
    bases: Mapping[str, str]


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    options = _options(sys.argv[1:] if words is None else words)
    try:
        sources = _sources(options.only or NAMES, options.build_arg)
        references = {each for source in sources.values() for each in source.bases.values()}
        if options.pin:
            return _pin(references, options.insecure)
        return _build(options, _orders(options, sources), bases.loose(references))
    except (Refused, checkout.WrongCheckout) as refused:
        print(f"images: {refused}", file=sys.stderr)
        return 2
    except (builders.BuildFailed, wheel.WheelFailed, OSError) as failed:
        print(f"images: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _sources(names: Sequence[str], build_args: Sequence[str]) -> dict[str, Source]:
    files = {name: parse((ROOT / plan.containerfile(name)).read_text()) for name in names}
    given = wishes.build_args(build_args, {name for file in files.values() for name in arguments(file)})
    found = {}
    for name, file in files.items():
        own = {key: value for key, value in given.items() if key in arguments(file)}
        found[name] = Source(file, own, bases.in_file(arguments(file, own)))
    return found


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.images",
        description="Builds and pushes this project's images, and writes where they are to images.lock.yaml.",
        epilog="Words after -- go to the builder, such as -- --no-cache",
    )
    given = os.environ.get
    add = parser.add_argument
    add("--registry", metavar="HOST/PATH", default=given("REGISTRY", ""), help="where images go ($REGISTRY)")
    add("--tag", default=given("TAG", ""), help="their tag ($TAG; default: the project's version)")
    add(
        "--platform",
        default=given("PLATFORM", ""),
        help="linux/amd64,linux/arm64 ($PLATFORM; default: this machine's)",
    )
    add(
        "--builder",
        choices=plan.PROGRAMS,
        default=given("BUILDER") or None,
        help="the program ($BUILDER; default: the first that answers)",
    )
    add("--only", nargs="+", choices=NAMES, metavar="NAME", help=f"these images alone: {', '.join(NAMES)}")
    add(
        "--build-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="such as NOTEBOOK_IMAGE=… ($NOTEBOOK_IMAGE) or PYTHON_REPOSITORY=… of a mirror",
    )
    add("--no-push", action="store_true", help="leave them with the builder; there are no digests then")
    add("--insecure", action="store_true", help="the registry has no TLS, or a certificate that nobody knows")
    add(
        "--sbom",
        choices=("auto", "syft", "buildkit", "none"),
        default="auto",
        help="by which program (default: syft, if it is found)",
    )
    add(
        "--pin",
        action="store_true",
        help=f"build nothing; renew {bases.FILE.relative_to(ROOT)} from the registries",
    )
    add("--dry-run", action="store_true", help="print the builder's commands and run none")
    words, more = _cut(words)
    options = parser.parse_args(words)
    options.more = more
    base = given("NOTEBOOK_IMAGE")
    if base and "notebook" in (options.only or NAMES):
        options.build_arg.insert(0, f"NOTEBOOK_IMAGE={base}")
    return options


def _cut(words: Sequence[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def _orders(options: argparse.Namespace, sources: Mapping[str, Source]) -> list[Order]:
    """The images that are to be built, pinned as far as they are."""
    # Without a registry the names are those of the manifests, `kubeflow-bitfusion/client`.
    named = options.registry or not options.no_push
    place = wishes.registry(options.registry) if named else "kubeflow-bitfusion"
    platforms = wishes.platforms(options.platform)
    if options.no_push and len(platforms) > 1:
        raise Refused(
            "Only a registry can keep several platforms under one name: leave --no-push out, or name one."
        )
    state, digests = checkout.read(), bases.read()
    tag = wishes.tag(options.tag or state.version)
    if state.revision.endswith("-dirty"):
        _say(f"files were changed since commit {state.revision[:12]}; the images' label `revision` says so")
    return [
        Order(
            name,
            f"{place}/{name}",
            tag,
            platforms,
            {**source.given, **bases.pinned(source.bases, digests)},
            plan.labels(state, tag),
            state.epoch,
            sum(step.name in ("COPY", "ADD", "RUN") for step in source.file) if name == "notebook" else None,
        )
        for name, source in sources.items()
    ]


def _build(options: argparse.Namespace, orders: Sequence[Order], loose: Collection[str]) -> int:
    # What is printed needs no program.
    program = options.builder or "docker" if options.dry_run else builders.choose(options.builder or "")
    syft = after_push.find_syft(options.sbom, program)
    how = How(program, not options.no_push, options.insecure, options.sbom == "buildkit", options.more)
    if options.dry_run:
        for order in orders:
            for step in plan.steps(order, how, f"build/{order.name}.digest"):
                print(shlex.join(step.argv))
        return 0
    (ROOT / lock.COMPONENT).parent.mkdir(exist_ok=True)
    _locked()  # what cannot be written down is not built
    if loose:
        _say(f"base images by tag, not by digest: {len(loose)}; to pin them: {bases.PIN}")
    if any("dist/" in (ROOT / f"{order.file}.dockerignore").read_text() for order in orders):
        _wheel(orders[0].epoch)
    names = [order.name for order in orders]
    for at, order in enumerate(orders):
        _say(f"{order.reference} with {program}")
        try:
            _one(order, how)
        except (builders.BuildFailed, OSError, KeyboardInterrupt):
            if at:
                _say(
                    f"{lock.VALUES} has {', '.join(names[:at])} of this run, and what it had before of: "
                    f"{', '.join(names[at:])}. When the cause is gone: --only {' '.join(names[at:])}"
                )
            raise
    if how.push:
        locked = _locked()
        for order in orders:
            after_push.tell(order, locked[order.name], options.insecure)
        if syft:
            after_push.sbom(syft, {order.name: locked[order.name] for order in orders}, options.insecure)
        elif options.sbom == "auto":
            _say("no SBOM: syft was not found (with docker's buildkit: --sbom buildkit)")
    print(f"Written: {lock.VALUES}, {lock.COMPONENT}")
    return 0


def _one(order: Order, how: How) -> None:
    with tempfile.TemporaryDirectory() as folder:
        digest = Path(folder) / "digest"
        builders.run(plan.steps(order, how, str(digest)), how.program, order.repository.partition("/")[0])
        _keep(order, builders.digest_in(digest) if how.push else "")


def _wheel(epoch: int) -> None:
    """The one wheel in dist/ that Containerfiles copy."""
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.glob("kubeflow_bitfusion-*.whl"):
        old.unlink()
    _say("the wheel, dist/")
    wheel.build(["wheel"], ROOT, dist, epoch)


def _keep(order: Order, digest: str) -> None:
    """Write the lock with this image; what it says about others stays."""
    images = _locked()
    images[order.name] = Locked(order.repository, order.tag, digest)
    for name, text in ((lock.COMPONENT, lock.component(images)), (lock.VALUES, lock.values(images))):
        new = ROOT / f"{name}.new"  # whoever ends this half-way leaves a whole file
        new.write_text(text)
        new.replace(ROOT / name)


def _locked() -> dict[str, Locked]:
    values = ROOT / lock.VALUES
    return lock.parse(values.read_text(errors="replace")) if values.exists() else {}


def _pin(references: set[str], insecure: bool) -> int:
    """Renew the digests of all bases; one that cannot be asked for stays as it is, which is an error."""
    digests, failed = bases.read(), False
    for reference in sorted(each for each in references if "@" not in each):
        try:
            now = registry.digest(reference, insecure)
        except registry.RegistryFailed as why:
            print(f"images: {why}", file=sys.stderr)
            failed = True
            continue
        print(f"{reference} {now}{'' if digests.get(reference) == now else '  (new)'}")
        digests[reference] = now
    if digests:
        bases.FILE.write_text(bases.text(digests))
    return 1 if failed else 0


def _say(text: str) -> None:
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
