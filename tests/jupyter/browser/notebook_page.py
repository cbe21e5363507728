"""A notebook that is open in JupyterLab."""

from __future__ import annotations

import re
from typing import Protocol

from playwright.sync_api import Locator, Page, Response, expect


class Picture(Protocol):
    """Takes a picture of a page, or of one element, and keeps it."""

    def __call__(self, shown: Page | Locator, name: str, height: int | None = None) -> None:
        """`height`: of the upper part of a page, in CSS pixels; None for the whole page."""


class NotebookPage:
    """The notebook that is open in a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def open_from_launcher(self) -> None:
        self.page.locator(".jp-LauncherCard[data-category='Notebook']").filter(
            has=self.page.get_by_text("Bitfusion", exact=True)
        ).click()
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        self.wait_until_idle()  # until then JupyterLab may still take the focus away from a cell

    def open_file(self, name: str, kernel: str = "Bitfusion") -> None:
        """Open a notebook from JupyterLab's folder, it alone, and wait for its kernel."""
        self.page.goto(f"{self.page.url.partition('/lab')[0]}/lab/tree/{name}?reset")
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        self.wait_until_idle(kernel)

    def wait_until_idle(self, kernel: str = "Bitfusion") -> None:
        """Until JupyterLab says that the kernel has nothing to do."""
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text(f"{kernel} | Idle")

    def restart_kernel(self) -> None:
        """With the button, and yes to JupyterLab's question."""
        self.page.get_by_role("button", name=re.compile("Restart the kernel")).first.click()
        self.page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
        expect(self.page.locator(".jp-Dialog")).to_have_count(0)

    def choose(self, menu: str, entry: str) -> None:
        """Choose an entry of the menu bar."""
        self.page.locator(".lm-MenuBar-itemLabel").get_by_text(menu, exact=True).click()
        self.page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()

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

    def run_again(self, number: int) -> None:
        """Run a cell as it stands."""
        editor = self.cell(number).locator(".cm-content")
        editor.click()
        expect(editor).to_be_focused()
        self.page.keyboard.press("Shift+Enter")

    def output(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-OutputArea-output")

    def prompt(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-InputPrompt")

    @property
    def prompts(self) -> Locator:
        """The prompts of all code cells."""
        return self.page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")

    def save(self) -> None:
        """Save it; a notebook whose outputs change is soon unsaved again."""
        with self.page.expect_response(_is_of_saving):
            self.choose("File", "Save Notebook")

    def wait_until_saved(self) -> None:
        """Until no change is left to save."""
        expect(self.page.locator("#jp-main-dock-panel .lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)


def _is_of_saving(response: Response) -> bool:
    return response.request.method == "PUT" and "/api/contents/" in response.url
