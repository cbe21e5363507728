"""A GPU that goes back while the notebook stays open, and one that a restart keeps, in JupyterLab."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.jupyter.browser.notebook_page import NotebookPage, Picture
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(120)]


@pytest.fixture
def idle_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest time that there is, set before JupyterLab starts; half of it passes before the warning."""
    monkeypatch.setenv("BITFUSION_IDLE_RELEASE", "1m")


@pytest.mark.long
def test_release_asks_and_the_next_cell_says_that_it_begins_anew(
    page: Page, pool: Pool, picture: Picture
) -> None:
    notebook = NotebookPage(page)
    notebook.open_from_launcher()
    notebook.run(0, "x = 41")
    expect(notebook.prompt(0)).to_have_text("[1]:", timeout=scaled(40_000))
    (lease,) = pool.leases()
    notebook.restart_kernel()
    notebook.run(1, "'x' in globals()")
    expect(notebook.output(1)).to_have_text("False")
    assert [each["id"] for each in pool.leases()] == [lease["id"]]

    notebook.run(2, "%bitfusion release")
    asked = page.locator(".jp-Stdin")
    expect(asked).to_contain_text("Give 1 GPU back? The variables of this notebook are lost. [y/N]")
    picture(page, "release-asks")
    asked.locator("input").fill("y")
    asked.locator("input").press("Enter")
    expect(notebook.output(2).last).to_contain_text("1 GPU given back. The next cell takes a GPU again")
    assert pool.leases() == []
    notebook.run(3, "'x' in globals()")
    expect(notebook.output(3).first).to_contain_text("it begins anew, with no variables")
    expect(notebook.output(3).last).to_have_text("False")
    notebook.run(4, "%bitfusion request 0.5 --now -y")
    expect(notebook.output(4).first).to_contain_text("Asking for 1 GPU × 50 %.")
    expect(notebook.output(4).last).to_contain_text("50 %", timeout=scaled(40_000))
    expect(notebook.prompt(4)).to_have_text("[1]:")
    assert pool.leases()[0]["request"]["partial"] == 0.5
    picture(page, "released")


@pytest.mark.long
def test_a_wait_for_another_size_shows_what_is_kept_and_the_button_ends_it(
    page: Page, pool: Pool, picture: Picture
) -> None:
    pool.write(gpus=2)
    notebook = NotebookPage(page)
    notebook.open_from_launcher()
    with pool.held():
        notebook.run(0, "x = 41")
        expect(notebook.prompt(0)).to_have_text("[1]:", timeout=scaled(40_000))
        notebook.run(1, "%bitfusion request 2 --now -y")
        shown = notebook.output(1)
        expect(shown).to_contain_text("This kernel keeps 1 GPU, and tries for 30 s at most.")
        picture(page, "resize-waits")
        page.get_by_role("button", name=re.compile("Interrupt the kernel")).first.click()
        expect(notebook.cell(1)).to_contain_text("This kernel keeps the GPUs that it has, and its variables.")
        expect(notebook.output(1)).to_have_count(1)
        notebook.run(2, "x")
        expect(notebook.output(2)).to_have_text("41")
        picture(page, "resize-interrupted")


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("idle_release")
def test_an_idle_kernel_warns_with_the_time_left_and_says_that_it_has_given_back(
    page: Page, pool: Pool, picture: Picture
) -> None:
    notebook = NotebookPage(page)
    notebook.open_from_launcher()
    notebook.run(0, "x = 41")
    expect(notebook.prompt(0)).to_have_text("[1]:", timeout=scaled(40_000))
    shown = notebook.output(0)
    warned = re.compile("This kernel gives its GPU back at .*, in .*")
    expect(shown).to_contain_text(warned, timeout=scaled(45_000))
    picture(page, "idle-warning", height=328)
    expect(shown).to_contain_text("This kernel gave its GPU back at", timeout=scaled(45_000))
    assert pool.leases() == []
    picture(page, "idle-released", height=328)
