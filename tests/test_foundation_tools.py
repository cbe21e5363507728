"""The project's own rules, kept by its tools: style, types, imports, locked versions, what is packed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "bitfusion_client",
    "bitfusion_kernel",
    "bitfusion_pool",
    "jupyter_ext",
    "notebook_controller_patch",
)
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def run(*command: str | Path) -> str:
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


def test_style() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_format() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_types() -> None:
    run(sys.executable, "-m", "mypy")


def test_imports_go_down_only() -> None:
    run(Path(sys.executable).with_name("lint-imports"), "--no-cache")


@pytest.mark.parametrize("room", ["bitfusion_client", "bitfusion_pool"])
def test_the_room_needs_the_standard_library_only(room: str) -> None:
    allowed = {*sys.stdlib_module_names, "tomllib", "tomli", *ROOMS}
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            foreign = {name.split(".")[0] for name in names} - allowed
            assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_locked_versions_have_hashes_and_name_no_place(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    pins = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    assert pins
    assert not [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin]


def test_lock_files_agree() -> None:
    whole = set(re.findall(r"(?m)^[A-Za-z0-9].*?==\S+", (ROOT / "requirements/test.txt").read_text()))
    for lock in LOCKS:
        pins = set(re.findall(r"(?m)^[A-Za-z0-9].*?==\S+", lock.read_text()))
        assert pins <= whole, f"{lock.name} has {pins - whole}, test.txt has not"


def test_every_dependency_is_locked() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    names = {name.lower() for name in re.findall(r'(?m)^  "([A-Za-z0-9-]+)>=', text)}
    locked = set(re.findall(r"(?m)^([A-Za-z0-9-]+)==", (ROOT / "requirements/test.txt").read_text()))
    assert names
    assert names <= locked


def test_the_wheel_has_all_that_runs_and_the_licence(tmp_path: Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"),
        *("--quiet", "--wheel-dir", tmp_path, ROOT),
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert not [name for name in names if name.split("/")[0] not in ROOMS and ".dist-info/" not in name]
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert {f"{room}/__init__.py" for room in ROOMS} <= names
        client = archive.getinfo("bitfusion_pool/bin/bitfusion")
        assert client.external_attr >> 16 & 0o111 == 0o111, "the command would not be executable"
        for path in (ROOT / "bitfusion_kernel/install/logo").iterdir():
            assert f"bitfusion_kernel/install/logo/{path.name}" in names
        assert "jupyter_ext/spawner/sizes-example.yaml" in names


def test_the_controllers_lock_has_no_package_of_the_kernel() -> None:
    pins = re.findall(r"(?m)^([A-Za-z0-9-]+)==", (ROOT / "requirements/controller.txt").read_text())
    assert "kubernetes" in pins
    assert not {"ipykernel", "pyzmq", "jupyter-client", "traitlets"} & set(pins)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == "bitfusion"
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} → {target}"
