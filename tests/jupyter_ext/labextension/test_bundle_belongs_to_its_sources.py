"""What JupyterLab loads was made of the sources beside it. Without node: the bundle says of which."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

from tools.labextension import BUNDLE, ROOT, SOURCES, digest, source_files

LARGEST = 200_000
DESCRIBED: dict[str, Any] = json.loads((BUNDLE / "package.json").read_text())


def test_the_bundle_was_built_of_these_very_sources() -> None:
    assert DESCRIBED["sources"] == digest(), "`make labextension` builds it again"


def test_any_change_of_a_source_is_noticed(tmp_path: Path) -> None:
    copy = tmp_path / "labextension"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("bundle", "node_modules"))
    assert digest(copy) == digest()
    (copy / "style" / "index.css").write_text("")
    changed = digest(copy)
    assert changed != digest()
    (copy / "src" / "another.ts").write_text("")
    assert digest(copy) not in {changed, digest()}


def test_versions_are_the_packages() -> None:
    project = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    told = re.search(r"VERSION = '(.*)'", (SOURCES / "src" / "version.ts").read_text())
    assert project is not None
    assert told is not None
    assert {DESCRIBED["version"], told[1]} == {project[1]}


def test_it_is_whole_and_small() -> None:
    assert not list(BUNDLE.rglob("*.map"))
    entry = BUNDLE / DESCRIBED["jupyterlab"]["_build"]["load"]
    assert entry.is_file()
    scripts = [path.read_bytes() for path in (BUNDLE / "static").glob("*.js")]
    assert sum(len(gzip.compress(script)) for script in scripts) < LARGEST
    assert (BUNDLE / "schemas" / "kubeflow-bitfusion" / "plugin.json").is_file()


def test_no_file_names_a_registry_or_a_place_on_a_machine() -> None:
    files = [*source_files(), *(path for path in BUNDLE.rglob("*") if path.is_file())]
    for path in files:
        text = path.read_text()
        assert "registry." not in text, path
        assert "__archiveUrl" not in text, path
        assert str(ROOT) not in text, path
