"""JupyterLab in a real browser.

SCREENSHOTS names a folder that keeps pictures; without it none is taken.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, FloatRect, Locator, Page, expect

from tests.jupyter.browser.chromium import running_chromium, screenshots
from tests.jupyter.browser.notebook_page import Picture
from tests.jupyter.browser.quiet_page import write_quiet_settings
from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled
from tests.support.waiting import wait_until
from tools.labextension import BUNDLE


@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(chromium, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    """Where JupyterLab's files are."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def lab(kernelspecs: Path, pool: Pool, lab_folder: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that ends with the test; its part of ours is this checkout's."""
    extension = kernelspecs / "share" / "jupyter" / "labextensions" / "kubeflow-bitfusion"
    if not extension.exists():
        shutil.copytree(BUNDLE, extension)
    write_quiet_settings(tmp_path / "settings")
    server = ServerProcess(
        "jupyterlab",
        tmp_path,
        [f"--ServerApp.root_dir={lab_folder}"],
        {"JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings")},
    )
    yield server.address
    server.stop()
    wait_for_no_process(pool, 5)


@pytest.fixture
def page(browser: Browser, lab: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 700}, device_scale_factor=2)
    page = context.new_page()
    page.set_default_timeout(scaled(20_000))
    expect.set_options(timeout=scaled(20_000))
    page.goto(f"{lab}/lab")
    page.locator(".jp-Launcher").wait_for()
    yield page
    context.close()


@pytest.fixture
def picture() -> Picture:
    """Takes a picture of the page or of its upper part, or of one element."""
    folder = screenshots()

    def take(shown: Page | Locator, name: str, height: int | None = None) -> None:
        if folder is None:
            return
        file = folder / f"{name}.png"
        if isinstance(shown, Locator):
            # JupyterLab replaces what a kernel updates, also while its picture is taken.
            wait_until(
                lambda: shown.screenshot(path=file, timeout=5000), f"a picture of {name}", 30, errors=(Error,)
            )
            return
        size = shown.viewport_size
        assert size is not None
        clip: FloatRect = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]}
        shown.screenshot(path=file, clip=clip)

    return take
