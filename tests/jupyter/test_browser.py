"""The kernel in a real JupyterLab, seen through a real browser.

SCREENSHOTS names a folder that keeps the pictures (default: the test's own temporary folder).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.embedded_pool import DEVICE, MEMORY_MIB, Pool
from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(120)]

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

# No question about news (it would call home), none for a name at the first saving.
QUIET_SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"renameUntitledFileOnSave": False},
}

DIGITS = """\
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

digits = load_digits()
figure, axes = plt.subplots(1, 8, figsize=(8, 1.2))
for axis, image, label in zip(axes, digits.images, digits.target):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(label)
    axis.axis("off")"""


@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # a runtime folder of its own: the browser leaves dconf's there, the suite wants its own empty
    environment: dict[str, str | float | bool] = {
        **os.environ,
        "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("browser")),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS, env=environment)
        yield browser
        browser.close()


@pytest.fixture
def lab(kernelspecs: Path, pool: Pool, tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that ends with the test."""
    work = tmp_path / "work"
    work.mkdir()
    for name, content in QUIET_SETTINGS.items():
        file = tmp_path / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    server = ServerProcess(
        "jupyterlab",
        tmp_path,
        [f"--ServerApp.root_dir={work}"],
        {"JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings")},
    )
    yield server.address
    server.stop()
    wait_for_no_process(pool, 5)


@pytest.fixture
def page(browser: Browser, lab: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 680}, device_scale_factor=2)
    page = context.new_page()
    page.set_default_timeout(scaled(20_000))
    expect.set_options(timeout=scaled(20_000))
    page.goto(f"{lab}/lab")
    page.locator(".jp-Launcher").wait_for()
    yield page
    context.close()


@pytest.fixture
def picture(tmp_path: Path) -> Any:
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return take


class Notebook:
    """The notebook that is open in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def open_from_launcher(self) -> None:
        self.page.locator(".jp-LauncherCard[data-category='Notebook']").filter(
            has=self.page.get_by_text("Bitfusion", exact=True)
        ).click()
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        # until then JupyterLab may still take the focus away from a cell
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("Bitfusion | Idle")

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def run(self, number: int, code: str) -> Locator:
        """Type into an (empty) cell and run it with Shift-Enter, which also opens the next one."""
        cell = self.cell(number)
        editor = cell.locator(".cm-content")
        editor.click()
        expect(editor).to_be_focused()
        # as text, not as keys: the editor would close brackets and indent by itself
        self.page.keyboard.insert_text(code)
        expect(editor).to_contain_text(code.splitlines()[0])
        self.page.keyboard.press("Shift+Enter")
        return cell

    def output(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-OutputArea-output")

    def prompt(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-InputPrompt")

    def save(self) -> None:
        self.page.keyboard.press("Control+s")


def test_notebook_from_tile_to_restart(page: Page, pool: Pool, picture: Any) -> None:
    tile = page.locator(".jp-LauncherCard[data-category='Notebook']").filter(
        has=page.get_by_text("Bitfusion", exact=True)
    )
    expect(tile).to_be_visible()
    logo = tile.locator("img, svg").first
    expect(logo).to_be_visible()
    if logo.evaluate("element => element.tagName") == "IMG":
        wait_until(lambda: logo.evaluate("element => element.naturalWidth") > 0, "an unbroken logo", 5)
    picture(page, "launcher")

    notebook = Notebook(page)
    notebook.open_from_launcher()
    assert pool.leases() == []
    notebook.run(0, "%bitfusion request -n 1 -p 0.5")
    expect(notebook.output(0)).to_contain_text("50 %")
    assert pool.leases() == []
    notebook.run(1, DIGITS)
    expect(notebook.output(1).locator("img")).to_be_visible(timeout=scaled(40_000))
    expect(notebook.prompt(1)).to_have_text("[1]:")
    assert pool.leases()[0]["devices"][0]["memory_mib"] == MEMORY_MIB // 2
    notebook.run(2, "%bitfusion pool")
    expect(notebook.output(2).locator("table")).to_contain_text(f"{MEMORY_MIB // 2} of {MEMORY_MIB} MiB")
    picture(page, "notebook")
    notebook.run(3, "%bitfusion")
    expect(notebook.output(3)).to_contain_text(DEVICE)

    notebook.run(4, "import time\nprint('begins', flush=True)\ntime.sleep(300)")
    expect(notebook.output(4).first).to_contain_text("begins")
    expect(notebook.prompt(4)).to_have_text("[*]:")
    page.get_by_role("button", name=re.compile("Interrupt the kernel")).first.click()
    expect(notebook.cell(4)).to_contain_text("KeyboardInterrupt")
    picture(page, "interrupted")

    page.get_by_role("button", name=re.compile("Restart the kernel")).first.click()
    page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    notebook.run(5, "'digits' in globals()")
    expect(notebook.output(5)).to_have_text("False")
    expect(notebook.prompt(5)).to_have_text("[1]:")
    assert len(pool.leases()) == 1
    picture(page, "restarted")


def test_queue_is_seen_survives_a_reload_and_ends_in_the_result(page: Page, pool: Pool, picture: Any) -> None:
    notebook = Notebook(page)
    with pool.held("digits.ipynb"):
        notebook.open_from_launcher()
        notebook.run(0, "print('it was my turn')")
        shown = notebook.output(0)
        expect(shown).to_contain_text("Waiting for 1 GPU")
        expect(shown).to_contain_text("1 of 1")
        expect(shown).to_contain_text("digits.ipynb")
        expect(shown).to_have_count(1)
        expect(shown, "the elapsed time goes on").not_to_have_text(shown.text_content() or "")
        expect(shown).to_have_count(1)
        picture(page, "waiting")

        notebook.save()
        page.wait_for_timeout(1000)
        page.on("dialog", lambda dialog: dialog.accept())  # the notice changed the notebook again
        page.reload()
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=scaled(40_000))
        page.wait_for_timeout(2500)
        assert len(pool.waiting()) == 1, "the reload lost the place in the queue"
        picture(page, "reloaded")

        notebook.run(1, "print('second')")
        page.wait_for_timeout(500)
    expect(notebook.cell(1)).to_contain_text("second", timeout=scaled(20_000))
    expect(notebook.prompt(1)).to_have_text("[2]:")
    picture(page, "after waiting")


def test_interrupting_the_wait_says_so_and_the_next_cell_tries_again(
    page: Page, pool: Pool, picture: Any
) -> None:
    notebook = Notebook(page)
    with pool.held("digits.ipynb"):
        notebook.open_from_launcher()
        notebook.run(0, "print('never')")
        expect(notebook.output(0)).to_contain_text("Waiting for 1 GPU")
        page.get_by_role("button", name=re.compile("Interrupt the kernel")).first.click()
        expect(notebook.output(0)).to_contain_text("cancelled")
        expect(notebook.cell(0)).not_to_contain_text("1 of 1")
        picture(page, "cancelled")
        notebook.run(1, "print('later')")
        expect(notebook.output(1)).to_contain_text("Waiting for 1 GPU")
    expect(notebook.output(1)).to_have_text("later\n", timeout=scaled(20_000))
    expect(notebook.prompt(1)).to_have_text("[1]:")
