"""TypeScript's own checks, and the bundle built again. Skipped where npm's packages cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import labextension


def run_tool(what: str) -> None:
    options = [] if os.environ.get("CI") == "true" else ["--if-found"]
    done = subprocess.run(
        [sys.executable, labextension.__file__, what, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == labextension.MISSING:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_types_style_and_unit_tests() -> None:
    run_tool("check")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_bundle_is_built_again_byte_for_byte() -> None:
    run_tool("again")


@pytest.mark.parametrize(
    ("told", "if_found", "status"),
    [
        ("YN0001: RequestError: getaddrinfo EAI_AGAIN", True, labextension.MISSING),
        ("YN0001: RequestError: getaddrinfo EAI_AGAIN", False, 1),
        ("YN0028: The lockfile would have been modified", True, 1),
    ],
)
def test_only_packages_that_cannot_be_fetched_may_be_left_out(
    told: str,
    if_found: bool,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    yarn = tmp_path / "jlpm"
    yarn.write_text(f"#!/bin/sh\necho '{told}'\nexit 1\n")
    yarn.chmod(0o755)
    monkeypatch.setattr(labextension, "WORK", tmp_path)
    with pytest.raises(SystemExit) as ended:
        labextension.install({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, if_found)
    assert ended.value.code == status
    assert ("left out" in capsys.readouterr().out) is (status == labextension.MISSING)
