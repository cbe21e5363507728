"""Whatever documents and programs tell people to install can be had: by name, or from the checkout."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, ROOT, commands

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / "lock.txt").read_text()))
PACKAGES = sorted(path.parent for path in ROOT.glob("*/__init__.py"))
WITH_VALUE = {"-r", "-c", "--requirement", "--constraint"}
CLONE = "git clone ADDRESS kubeflow-bitfusion"
"""No address is known to this project but that under which its reader has found it."""


def installed(command: str) -> list[str]:
    """The words after each `pip install` of a command line."""
    found = []
    for part in re.split(r" && |; ", command):
        after = re.search(r"\bpip3?(?: --python \S+)? install\b(.*)", part)
        found += shlex.split(after[1], comments=True) if after else []
    return found


def cannot_be_had(words: list[str]) -> list[str]:
    """Of the words after `pip install` those that name something which is not there."""
    wrong, words = [], list(words)
    while words:
        word = words.pop(0)
        if word in WITH_VALUE:
            file = words.pop(0)
            there = any((folder / file).is_file() for folder in (ROOT, ROOT / "requirements"))
            wrong += [] if there else [f"{word} {file}"]
        elif word.startswith(("-", "$")) or re.fullmatch(r"(.*/)?dist/kubeflow_bitfusion-\*\.whl", word):
            continue
        elif local := re.fullmatch(r"\.(?:\[([\w,-]+)\])?", word):
            extras = local[1].split(",") if local[1] else []
            wrong += [] if set(extras) <= set(PROJECT["optional-dependencies"]) else [word]
        elif re.split(r"[\[<>=!~ ]", word)[0].lower() not in LOCKED:
            wrong.append(word)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_installs_what_there_is(document: Path) -> None:
    lines = list(commands(document.read_text(encoding="utf-8")))
    assert [wrong for line in lines for wrong in cannot_be_had(installed(line))] == []
    assert {line.strip() for line in lines if "git clone" in line} <= {CLONE}


def test_a_notebook_installs_what_there_is() -> None:
    for file in (ROOT / "examples").glob("*.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
        assert [wrong for line in lines for wrong in cannot_be_had(installed(line))] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_what_a_program_advises_to_install_can_be_had(package: Path) -> None:
    for file in package.rglob("*.py"):
        advised = re.findall(r"""pip install ('[^']+'|[^\s"'`,;)]+)""", file.read_text(encoding="utf-8"))
        names = [re.sub(r"\{.*?\}", "form", word.strip("'")) for word in advised]
        assert cannot_be_had([name for name in names if not name.startswith("--")]) == [], file


def test_the_readme_says_how_to_get_a_checkout() -> None:
    assert f"\n{CLONE}\ncd kubeflow-bitfusion\n" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pip install kubeflow-bitfusion", ["kubeflow-bitfusion"]),
        ("pip install 'kubeflow-bitfusion[nvidia]'", ["kubeflow-bitfusion[nvidia]"]),
        ("x && /opt/a/bin/pip install --no-deps -r requirements/none.txt", ["-r requirements/none.txt"]),
        ("python3 -m pip install '.[forms]'  # nothing", [".[forms]"]),
        ("python3 -m pip install '.[form]' jupyterlab dist/kubeflow_bitfusion-*.whl", []),
        ("pip --python /opt/a/bin/python install --require-hashes -r requirements/pool.txt", []),
        ("pip uninstall kubeflow-bitfusion", []),
    ],
)
def test_what_cannot_be_had_is_found(line: str, wrong: list[str]) -> None:
    assert cannot_be_had(installed(line)) == wrong
