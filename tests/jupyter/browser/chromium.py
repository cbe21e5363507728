"""Debian's Chromium, as the tests run it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.jupyter.browser import deaf_to_interfaces

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium_path() -> str:
    """The installed one; the test is skipped where there is none, and fails with CI=true."""
    path = shutil.which("chromium")
    if path is None:
        message = "no chromium on PATH: install Debian's package chromium to run the browser tests"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def screenshots() -> Path | None:
    """The folder SCREENSHOTS, which keeps pictures; without it none is taken, as each costs seconds."""
    if not (name := os.environ.get("SCREENSHOTS")):
        return None
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def running_chromium(path: str, runtime: Path, more: Sequence[str] = ()) -> Iterator[Browser]:
    """One browser. `runtime` is its own: it leaves dconf's folder there, the suite wants its own empty."""
    environment: dict[str, str | float | bool] = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    program = runtime.parent / f"{runtime.name}-chromium"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, deaf_to_interfaces.__file__, path])} "$@"\n'
    )
    program.chmod(0o755)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *more], env=environment)
        yield browser
        browser.close()
