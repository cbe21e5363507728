"""Files and modules that documents and docstrings name exist; the states that are drawn are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitfusion_kernel.proxy.lifecycle import KernelState

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["/docs/explanation/architecture.md"]
PAGES += [f"/{path.relative_to(ROOT)}" for path in (ROOT / "docs/explanation/architecture").glob("*.md")]
STATES = ROOT / "docs" / "images" / "kernel-states.mmd"
PACKAGES = [path.parent.name for path in ROOT.glob("*/__init__.py")]
FOLDERS = [*PACKAGES, "benchmarks", "docs", "examples", "manifests", "requirements", "tests", "tools"]
FILES = {
    f"/{path.relative_to(ROOT)}"
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
CHECKS = ("/tests/promises.md", "/tests/test_docs_promises.py")  # what they name is checked there
TEXTS = [name for name in [*FILES, "/README.md"] if name.endswith((".md", ".py")) and name not in CHECKS]
ELSEWHERE = {
    *("backend/apps/common/status.py", "spawner.py"),  # Kubeflow, KubeSpawner
    *("jupyter_bitfusion_config.py", "jupyterhub_config.py"),  # users' own
    *("requirements/base-images.digests", "images-lock", "images.lock.yaml"),  # written by `make images`
    *("manifests/engines/NAME", "manifests/all/NAME"),
}
QUOTED = re.compile(r"`([a-z_0-9]+(?:[/.][A-Za-z_0-9-]+)*)/?`")


def is_there(name: str) -> bool:
    """Whether a quoted name is that of something in the repository, or of nothing that could be there."""
    first, *rest = re.split(r"[/.]", name)
    if name in ELSEWHERE or (first in FOLDERS and not rest):
        return True
    if name.endswith(".py") or (first in FOLDERS and "/" in name):
        return any(f"/{name}" == path[-len(name) - 1 :] or f"/{name}/" in path for path in FILES)
    return first not in PACKAGES or _has(ROOT / first, rest)


def is_history(place: str, name: str) -> bool:
    """Whether a decision names a page as it was called then."""
    return place.startswith("/docs/decisions/") and name.startswith("docs/")


def _has(place: Path, names: list[str]) -> bool:
    """Whether a dotted name is that of a module, or of something that its module speaks of."""
    if not names:
        return True
    if (place / names[0]).is_dir():
        return _has(place / names[0], names[1:])
    module = (place / f"{names[0]}.py", place / "__init__.py")
    if module[0].is_file():
        return all(re.search(rf"\b{name}\b", module[0].read_text(encoding="utf-8")) for name in names[1:2])
    return bool(re.search(rf"\b{names[0]}\b", module[1].read_text(encoding="utf-8")))


def test_every_file_and_module_that_is_named_exists() -> None:
    named = {name: QUOTED.findall((ROOT / name[1:]).read_text(encoding="utf-8")) for name in TEXTS}
    assert {page: len(named[page]) for page in PAGES if len(named[page]) < 15} == {}
    missing = [(place, name) for place, names in named.items() for name in names if not is_there(name)]
    assert [(place, name) for place, name in missing if not is_history(place, name)] == []


@pytest.mark.parametrize(
    "name", ["bitfusion_pool/x.py", "x.py", "docs/x", "bitfusion_pool.x", "bitfusion_pool.own_files.x"]
)
def test_a_name_that_is_stale_is_found(name: str) -> None:
    assert not is_there(name)


def test_the_states_of_a_kernel_are_drawn() -> None:
    diagram = STATES.read_text(encoding="utf-8")
    assert set(re.findall(r"[A-Z_]{4,}", diagram)) == {state.name for state in KernelState}
