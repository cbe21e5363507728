"""Writes the templates of charts/kubeflow-bitfusion from manifests/engines, a test fails when they are old.

    make chart

Each engine's folder is built by `kubectl kustomize` as it stands, and with each switch thrown
(`chart_templates.py`). The kubectl is the test cluster's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster.binaries import ClusterUnavailable, binaries
from tools.chart_templates import ENGINES, SWITCHES, Variant, templates
from tools.chart_values import CHART

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "manifests"
TEMPLATES = CHART / "templates"
CHART_ONLY = tuple(
    each for each in ("form-give-back", "doctor") if (MANIFESTS / "components" / each).is_dir()
)
"""Components that are hooks of helm, which kubectl has no time for."""

Build = Callable[[str, Iterable[str]], str]
"""What kustomize makes of an engine with these switches thrown."""


@contextmanager
def builder(kubectl: Path) -> Iterator[Build]:
    """Builds in a copy of the manifests."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "manifests"
        shutil.copytree(MANIFESTS, copy)

        def build(engine: str, thrown: Iterable[str]) -> str:
            source = copy / "engines" / engine
            own = Path(tempfile.mkdtemp(dir=copy / "engines"))
            shutil.copytree(source, own, dirs_exist_ok=True)
            made = yaml.safe_load((source / "kustomization.yaml").read_text())
            made["components"] = components(engine, made["components"], thrown)
            (own / "kustomization.yaml").write_text(yaml.safe_dump(made))
            return subprocess.run(
                [kubectl, "kustomize", own], capture_output=True, text=True, check=True
            ).stdout  # fmt: skip

        yield build


def components(engine: str, own: list[str], thrown: Iterable[str]) -> list[str]:
    """Of an engine's folder, with these switches thrown."""
    found = [*own, *(f"../../components/{each}" for each in CHART_ONLY)]
    for name in thrown:
        for part in SWITCHES[name].parts(engine):
            path = f"../../components/{part}"
            if SWITCHES[name].by_default:
                found = [each for each in found if each != path]
            else:
                found.append(path)
    return found


def variants() -> list[Variant]:
    """All that the chart is made of, each engine first as it stands."""
    return [
        Variant(engine, switch)
        for engine in ENGINES
        for switch in ("", *(name for name, each in SWITCHES.items() if each.parts(engine)))
    ]


def written(kubectl: Path) -> dict[Path, str]:
    """All files that this script writes."""
    with builder(kubectl) as build:
        builds = {each: build(each.engine, [each.switch] if each.switch else []) for each in variants()}
    return {TEMPLATES / name: text for name, text in templates(builds).items()}


def main() -> int:
    """Write them; the exit status."""
    try:
        kubectl = binaries(lambda line: print(line, file=sys.stderr)).path("kubectl")
        files = written(kubectl)
    except ClusterUnavailable as error:
        print(f"The chart was not written: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"The chart was not written: kustomize: {error.stderr.strip()}", file=sys.stderr)
        return 1
    for path in TEMPLATES.glob("*.yaml"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        path.write_text(text)
    print(f"{len(files)} files in {os.path.relpath(TEMPLATES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
