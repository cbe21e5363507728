"""The project's own rules, checked by its tools: style, types, imports, locked versions, what is packed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bitfusion_client.command.find_client import INSTALLED_MARK
from tools import environment, lock, mutants
from tools.mutants import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "lock.txt"
LOCKS = sorted(LOCK.parent.glob("*.txt"))
APART = [LOCK.with_name(f"{group}.txt") for group in lock.APART]
"""What the own tests of Jupyter projects import, and older front ends, which this project does not."""


def run(*command: str | Path) -> str:
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


def test_style() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_jupyterlab_works_on_copies_of_the_examples(tmp_path: Path) -> None:
    """What is saved in `make lab` changes no file of the checkout, and is there the next time."""
    (tmp_path / "bin").mkdir(parents=True)
    for name in ("bitfusion-kernel", "jupyter"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho {name} $*\n")
        (tmp_path / "bin" / name).chmod(0o755)
    make = ["make", "lab", f"FOLDER={tmp_path}", f"BIN={tmp_path}/bin", "ENVIRONMENT=true"]
    assert f"jupyter lab --ServerApp.root_dir={tmp_path}/lab" in run(*make)
    copies = {file.name: file for file in (tmp_path / "lab").iterdir()}
    assert copies.keys() == {"tensorflow_digits.ipynb"}
    copies["tensorflow_digits.ipynb"].write_text("edited")
    run(*make)
    assert copies["tensorflow_digits.ipynb"].read_text() == "edited"


@pytest.mark.parametrize(
    ("ci", "statuses", "ran", "passes"),
    [
        ("true", [0], 1, True),
        ("true", [1, 0], 2, True),
        ("true", [1, 1], 2, False),
        ("true", [1, 5], 2, False),  # nothing was chosen: it was no test that failed
        ("true", [3], 1, False),  # a test process died: some did not run
        ("true", [2], 1, False),
        ("", [1], 1, False),
    ],
)
def test_on_ci_what_failed_runs_once_more_alone_and_decides(
    tmp_path: Path, ci: str, statuses: list[int], ran: int, passes: bool
) -> None:
    (tmp_path / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    python = tmp_path / "python"
    # Says what it was called with, and ends with the next status.
    next_status = "read status < statuses; sed -i 1d statuses; exit $status"
    python.write_text(f"#!/bin/sh\ncd {tmp_path}\necho called $*\n{next_status}\n")
    python.chmod(0o755)
    make = ["make", "test", f"CI={ci}", f"FOLDER={tmp_path}", f"BIN={tmp_path}"]
    make += ["ENVIRONMENT=true", "WORKERS=4", "TESTS=x"]
    done = subprocess.run(make, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    calls = [line for line in done.stdout.splitlines() if line.startswith("called")]
    assert (len(calls), done.returncode == 0) == (ran, passes), done.stdout
    assert calls[0].startswith("called -m pytest -n 4 ")
    assert "--last-failed" not in calls[0]
    assert all("-n 0 --last-failed" in again and again.endswith("-m not long x") for again in calls[1:])


def test_format() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_types() -> None:
    run(sys.executable, "-m", "mypy")


def test_imports_go_down_only() -> None:
    run(Path(sys.executable).with_name("lint-imports"), "--no-cache")


# Of the extra `service`: only what an administrator starts, never the `bitfusion` command.
SERVICE_EXTRA = {
    "bitfusion_pool/access/certificates.py": {"cryptography"},
    "bitfusion_pool/admin/certificate_command.py": {"cryptography"},
    "bitfusion_pool/service/monitoring/metrics.py": {"prometheus_client"},
    "bitfusion_pool/service/monitoring/metrics_port.py": {"prometheus_client"},
    "bitfusion_pool/service/process.py": {"prometheus_client"},
}


@pytest.mark.parametrize("package", ["bitfusion_client", "bitfusion_pods", "bitfusion_pool"])
def test_the_package_needs_the_standard_library_only(package: str) -> None:
    standard = {*sys.stdlib_module_names, "tomllib", "tomli", *PACKAGES}
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            file = path.relative_to(ROOT).as_posix()
            foreign = {name.split(".")[0] for name in names} - standard - SERVICE_EXTRA.get(file, set())
            assert not foreign, f"{file} imports {foreign}"


def pins(lock: Path) -> dict[str, set[str]]:
    """What a lock file holds: `name==version ; marker` and its hashes."""
    found = re.findall(r"(?m)^(\S+==[^\\\n]+?) \\\n((?:    --hash=sha256:.*\n)+)", lock.read_text())
    return {pin: set(re.findall(r"sha256:([0-9a-f]{64})\b", hashes)) for pin, hashes in found}


def names(lock: Path) -> set[str]:
    return {pin.split("==")[0] for pin in pins(lock)}


@pytest.mark.parametrize("file", LOCKS, ids=lambda path: path.stem)
def test_locked_versions_have_hashes_and_name_no_place(file: Path) -> None:
    text = file.read_text()
    assert "://" not in text
    assert pins(file)
    assert all(pins(file).values())
    assert len(pins(file)) == len(re.findall(r"(?m)^[^ #\n]", text)), "there is a line of another kind"


@pytest.mark.parametrize("part", [lock for lock in LOCKS if lock != LOCK], ids=lambda path: path.stem)
def test_lock_files_agree(part: Path) -> None:
    whole = {pin.split(" ;")[0]: hashes for pin, hashes in pins(LOCK).items()}
    chosen = re.findall(r'(?m)^  "([\w-]+==[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    for pin, hashes in pins(part).items():
        if part in APART and (pin in chosen or pin.split("==")[0] not in names(LOCK)):
            continue
        assert whole.get(pin.split(" ;")[0]) == hashes, f"{part.name} has {pin}, lock.txt has not"


def test_every_dependency_is_locked() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = {name.lower() for name in re.findall(r'(?m)^  "([A-Za-z0-9-]+)>=', text)}
    assert listed
    assert listed <= names(LOCK).union(*map(names, APART))


def test_only_wheels_that_can_be_installed_are_locked() -> None:
    for tags, fits in [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("cp310-cp310-manylinux2014_aarch64.manylinux_2_17_aarch64", True),
        ("cp313-cp313-musllinux_1_2_x86_64", True),
        ("cp315-abi3.abi3t-manylinux_2_28_x86_64", True),
        ("cp39-abi3-manylinux_2_28_x86_64", True),
        ("cp313-cp313t-manylinux_2_28_x86_64", False),
        ("cp316-cp316-manylinux_2_28_x86_64", False),
        ("cp316-abi3.abi3t-manylinux_2_28_x86_64", False),
        ("cp39-cp39-manylinux_2_28_x86_64", False),
        ("pp310-pypy310_pp73-manylinux_2_28_x86_64", False),
        ("cp311-cp311-macosx_11_0_arm64", False),
        ("cp311-cp311-manylinux2014_ppc64le", False),
        ("cp311-cp311-win_amd64", False),
    ]:
        assert lock.can_be_installed(f"name-1.0-{tags}.whl") == fits, tags


def test_mutants_are_what_a_person_may_have_got_wrong() -> None:
    source = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING: x = 1 < 2
def wrong(a: Literal[1], *, b: int = 3) -> Literal[2]:
    "1 < 2"
    if not (a) or b < (  # and
        2.5
    ): return f"{1}"
    while a.b: x: Literal[7] = a if a is not b else True
    return False
"""
    changes = []
    for mutant in mutants.mutants("x.py", source):
        lines = mutants.difference(source, mutant).splitlines()
        changes.append((mutant.line, mutant.kind, lines[-1][1:].strip()))
    assert changes == [
        (3, "number", "def wrong(a: Literal[1], *, b: int = 4) -> Literal[2]:"),
        (5, "not", "if  (a) or b < (  # and"),
        (5, "and/or", "if not (a) and b < (  # and"),
        (5, "comparison", "if not (a) or b <= (  # and"),
        (5, "comparison", "if not (a) or b >= (  # and"),
        (6, "number", "3.5"),
        (8, "not", "while not a.b: x: Literal[7] = a if a is not b else True"),
        (8, "comparison", "while a.b: x: Literal[7] = a if a is b else True"),
        (9, "truth", "return True"),
    ]
    drawn = mutants.draw({"x.py": source}, seed=7, count=4)
    assert drawn == mutants.draw({"x.py": source}, seed=7, count=4) != mutants.draw({"x.py": source}, 8, 4)


def test_the_tests_that_name_a_module_see_its_mutants_first() -> None:
    tests = {
        "tests/pool/test_a.py": "",
        "tests/pool/service/test_b.py": "",
        "tests/pool/service/test_c.py": "from bitfusion_pool.service.leases.limits import Limits",
        "tests/pool/service/test_d.py": "limits",
        "tests/pool/service/test_limits.py": "",
        "tests/pool/service/deep/test_e.py": "from bitfusion_pool.service.leases import limits",
        "tests/pool/service/deep/test_f.py": "",
        "tests/kernel/test_limits.py": "",
    }
    here = [f"tests/pool/service/test_{name}.py" for name in ("limits", "c", "d", "b")]
    here.insert(1, "tests/pool/service/deep/test_e.py")
    assert mutants.in_order("bitfusion_pool/service/leases/limits.py", tests) == here
    assert mutants.in_order("bitfusion_kernel/gpu/x.py", tests) == ["tests/kernel/test_limits.py"]


def test_all_name_the_same_pythons() -> None:
    oldest, newest = environment.SUPPORTED[-1], environment.SUPPORTED[0]
    text = (ROOT / "pyproject.toml").read_text()
    assert f'\nrequires-python = ">={oldest}"\n' in text
    assert re.findall(r"Python :: (3\.\d+)", text) == list(reversed(environment.SUPPORTED))
    tested = (oldest, environment.NEWEST["packages"][0], newest)
    makefile = (ROOT / "Makefile").read_text()
    assert "\ntest-pythons:" + "".join(f" test-python-{version}" for version in tested) + "\n" in makefile
    for version in environment.SUPPORTED:
        tag = "cp" + version.replace(".", "")
        assert lock.can_be_installed(f"name-1.0-{tag}-{tag}-manylinux_2_28_x86_64.whl")
    readme = (ROOT / "README.md").read_text()
    assert f"with Python {oldest} to {environment.NEWEST['demo'][0]} (TensorFlow has no newer)" in readme


def test_the_wheel_has_all_that_runs_and_the_licence(tmp_path: Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"),
        *("--quiet", "--wheel-dir", tmp_path, ROOT),
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        others = (
            ".dist-info/",
            ".data/data/etc/jupyter/jupyter_server_config.d/kubeflow-bitfusion.json",
            ".data/data/share/jupyter/labextensions/kubeflow-bitfusion/",
        )
        assert not [
            name
            for name in names
            if name.split("/")[0] not in PACKAGES and not any(other in name for other in others)
        ]
        assert any(name.endswith("/labextensions/kubeflow-bitfusion/package.json") for name in names)
        assert not [name for name in names if name.startswith("jupyter_ext/labextension/")]
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert {f"{package}/__init__.py" for package in PACKAGES} <= names
        for name in ("bitfusion", "bitfusion-pool"):
            command = archive.getinfo(f"bitfusion_pool/bin/{name}")
            assert command.external_attr >> 16 & 0o111 == 0o111, f"{name} would not be executable"
        for path in (ROOT / "bitfusion_kernel/install/logo").iterdir():
            assert f"bitfusion_kernel/install/logo/{path.name}" in names
        assert "jupyter_ext/spawner/sizes-example.yaml" in names
    target = tmp_path / "target"
    run(
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"),
        "--target",
        target,
        wheel,
    )
    assert INSTALLED_MARK in (target / "bin/bitfusion").read_bytes(), "pip's script has no mark"
    environ = {"PATH": f"{target}/bin:/usr/bin:/bin", "PYTHONPATH": str(target)}
    said = subprocess.run([target / "bin/bitfusion", "version"], env=environ, capture_output=True, text=True)
    assert ("embedded pool, stand-in" in said.stdout, said.stderr) == (True, "")


def test_the_controllers_lock_has_no_package_of_the_kernel() -> None:
    locked = names(ROOT / "requirements" / "controller.txt")
    assert "kubernetes" in locked
    assert not {"ipykernel", "pyzmq", "jupyter-client", "traitlets"} & locked


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
