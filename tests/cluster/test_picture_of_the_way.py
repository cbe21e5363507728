"""README's picture of the whole way: the form's choice, the cell in the notebook's pod, the pool's table.

The form is the guide's drawing of it; JupyterLab in the pod and the pool's table are what was there. As with
the other pictures of JupyterLab, `SCREENSHOTS=folder` keeps it; look at it when what people see has changed.
"""

from __future__ import annotations

import base64
import html
import os
import re
import string
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cluster.guide import CELL, PROFILE, ROOT, blocks
from tests.cluster.installation import Installation
from tests.jupyter.browser.chromium import chromium_path, running_chromium
from tests.jupyter.browser.notebook_page import NotebookPage
from tests.support.machine import scaled

pytestmark = [pytest.mark.long, pytest.mark.browser, pytest.mark.timeout(1200)]

FORM = ROOT / "docs" / "images" / "form-sizes.svg"
SVG = "{http://www.w3.org/2000/svg}"
CHOSEN = "0 16 580 384"
"""The part of the drawing with the number and the vendors."""
NAME = "digits"
PAGE = Path(__file__).with_name("whole_way.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # pods are reached at their addresses, which no proxy knows
    with running_chromium(
        chromium_path(), tmp_path_factory.mktemp("browser"), ["--no-proxy-server"]
    ) as running:
        yield running


def chosen_size() -> dict[str, str]:
    """The limits that the drawing of the form says its choice becomes."""
    texts = ElementTree.parse(FORM).getroot().findall(f"{SVG}text")
    (limits,) = [text.text or "" for text in texts if text.get("class") == "code"]
    key, _, value = limits.partition(": ")
    return {key: value.strip('"')}


def opened(page: Page, address: str) -> NotebookPage:
    """JupyterLab with a new notebook of the Bitfusion kernel."""
    page.goto(f"{address}/lab")
    page.locator(".jp-Launcher").wait_for()
    notebook = NotebookPage(page)
    notebook.open_from_launcher()
    question = page.get_by_role("button", name="No", exact=True)
    if question.count():  # about news of Jupyter
        question.first.click()
    page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab").first.click()  # closes the list of files
    expect(page.locator("#jp-left-stack")).to_be_hidden()
    return notebook


@pytest.mark.apart
def test_the_whole_way(installation: Installation, browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=scaled(60_000))
    (cell,) = (block for block in blocks(CELL) if block.language == "python")
    with installation.user(PROFILE) as user:
        server = user.notebook(NAME, chosen_size()).jupyter()
        context = browser.new_context(viewport={"width": 900, "height": 560}, device_scale_factor=2)
        page = context.new_page()
        page.set_default_timeout(scaled(60_000))
        notebook = opened(page, server.url)
        notebook.run(0, cell.commands.rstrip("\n"))
        expect(notebook.output(0).last).to_have_text(re.compile("loss 0.00000"), timeout=scaled(120_000))
        notebook.wait_until_idle()
        lab = page.screenshot()
        status = installation.pool.ask("status")
        assert re.search(rf"cluster/{PROFILE} .* {PROFILE}/{NAME}: .* 2 GPUs × 50 %", status), status
        context.close()
    take(browser, folder / "whole-way.png", lab, status)


def take(browser: Browser, file: Path, lab: bytes, status: str) -> None:
    """Put the three beside each other."""
    drawing = re.sub(
        r'width="\d+" height="\d+" viewBox="[^"]*"', f'viewBox="{CHOSEN}"', FORM.read_text(), count=1
    )
    parts = {"form": drawing, "lab": base64.b64encode(lab).decode(), "pool": without_folder(status)}
    shown = string.Template(PAGE.read_text()).substitute(parts)
    context = browser.new_context(viewport={"width": 1200, "height": 400}, device_scale_factor=1.5)
    page = context.new_page()
    page.set_content(shown)
    page.screenshot(path=file, full_page=True)
    context.close()


def without_folder(status: str) -> str:
    """The pool's tables; its first line has the folder of a test."""
    return html.escape("\n".join(status.splitlines()[2:]))
