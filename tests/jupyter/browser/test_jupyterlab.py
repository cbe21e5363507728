"""The kernel in a real JupyterLab, seen through a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from bitfusion_client.kernel_state import states
from tests.jupyter.browser.notebook_page import NotebookPage, Picture
from tests.jupyter.embedded_pool import DEVICE, MEMORY_MIB, Pool
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(120)]

IN_THE_QUEUE = re.compile(r"Waiting for 1 GPU · queue 1 of 1 · \d+:\d\d")
AS_OF = re.compile(r"Asked for 1 GPU at .* · waited (\d+ min )?\d+ s · as of \d\d:\d\d")
DIGITS = """\
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

digits = load_digits()
figure, axes = plt.subplots(1, 8, figsize=(8, 1.2))
for axis, image, label in zip(axes, digits.images, digits.target):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(label)
    axis.axis("off")"""


def test_notebook_from_tile_to_restart(page: Page, pool: Pool, picture: Picture) -> None:
    tile = page.locator(".jp-LauncherCard[data-category='Notebook']").filter(
        has=page.get_by_text("Bitfusion", exact=True)
    )
    expect(tile).to_be_visible()
    logo = tile.locator("img, svg").first
    expect(logo).to_be_visible()
    if logo.evaluate("element => element.tagName") == "IMG":
        wait_until(lambda: logo.evaluate("element => element.naturalWidth") > 0, "an unbroken logo", 5)
    picture(page, "launcher")

    notebook = NotebookPage(page)
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
    picture(page, "jupyterlab")
    notebook.run(3, "%bitfusion")
    expect(notebook.output(3).first).to_contain_text(DEVICE)

    notebook.run(4, "import time\nprint('begins', flush=True)\ntime.sleep(300)")
    expect(notebook.output(4).first).to_contain_text("begins")
    expect(notebook.prompt(4)).to_have_text("[*]:")
    page.get_by_role("button", name=re.compile("Interrupt the kernel")).first.click()
    expect(notebook.cell(4)).to_contain_text("KeyboardInterrupt")
    picture(page, "interrupted")

    notebook.restart_kernel()
    notebook.run(5, "'digits' in globals()")
    expect(notebook.output(5)).to_have_text("False")
    expect(notebook.prompt(5)).to_have_text("[1]:")
    assert len(pool.leases()) == 1
    picture(page, "restarted")


@pytest.mark.long
def test_the_wait_says_who_holds_who_is_before_and_why(page: Page, pool: Pool, picture: Picture) -> None:
    pool.write(gpus=2)
    notebook = NotebookPage(page)
    with pool.held("digits.ipynb"), pool.asked_before("language-model.ipynb", 2):
        notebook.open_from_launcher()
        notebook.run(0, "print('it was my turn')")
        shown = notebook.output(0)
        expect(shown).to_have_text(
            re.compile(
                r"Waiting for 1 GPU · queue 2 of 2 · (?!0:0[0-2])\d+:\d\dCancel the Wait"
                r"Held by: root: digits\.ipynb \(1 GPU, since .*\)"
                r"Before you in the queue: root: language-model\.ipynb \(2 GPUs, since .*\)"
                r"Why: there is room for 1 GPU, but those before you are served first, .*"
                r"Requested at \d\d:\d\d [AP]M\."
            )
        )
        picture(page, "waiting", height=328)
        picture(shown.locator("[role=status]"), "waiting-box")
        notebook.run(1, "%bitfusion pool")
        expect(notebook.output(1)).to_contain_text("Waiting:position 1: root: language-model.ipynb (2 GPUs")
        expect(notebook.output(1)).to_contain_text("position 2: root: Untitled.ipynb (1 GPU")
        expect(notebook.prompt(0)).to_have_text("[*]:")
        picture(page, "pool while waiting")
        notebook.choose("Kernel", "Shut Down Kernel")
        expect(notebook.output(0)).to_have_count(0)
        picture(page, "shut down")
        wait_until(lambda: len(pool.waiting()) == 1, "the end of this notebook's wait", 5)


def _goes_on(waiting: Locator) -> None:
    """The elapsed time that is shown."""
    seen = IN_THE_QUEUE.search(waiting.text_content() or "")
    assert seen
    expect(waiting).not_to_contain_text(seen[0])
    expect(waiting).to_contain_text(IN_THE_QUEUE)


@pytest.mark.long
def test_the_queue_is_seen_after_a_reload_and_in_another_page_and_the_file_says_when_it_was(
    page: Page, pool: Pool, picture: Picture, lab_folder: Path
) -> None:
    notebook = NotebookPage(page)
    with pool.held("digits.ipynb"):
        notebook.open_from_launcher()
        notebook.run(0, "print('it was my turn')")
        shown = notebook.output(0)
        expect(shown).to_contain_text(IN_THE_QUEUE)
        expect(shown).to_contain_text("Held by: root: digits.ipynb (1 GPU, since")
        _goes_on(shown)
        expect(shown).to_have_count(1)

        notebook.save()
        page.on("dialog", lambda dialog: dialog.accept())  # the notice changed the notebook again
        page.reload()
        expect(shown).to_contain_text(IN_THE_QUEUE, timeout=scaled(40_000))
        _goes_on(shown)
        expect(page.locator("#jp-main-statusbar")).to_contain_text("Bitfusion | Busy")
        assert len(pool.waiting()) == 1, "the reload lost the place in the queue"
        picture(page, "reloaded")
        other = page.context.new_page()
        other.goto(page.url)
        shown_there = NotebookPage(other).output(0)
        expect(shown_there).to_contain_text(IN_THE_QUEUE)

        notebook.run(1, "print('second')")
    expect(notebook.cell(1)).to_contain_text("second", timeout=scaled(20_000))
    expect(notebook.prompt(1)).to_have_text("[2]:")
    over = re.compile(r"^Waited \d+ (s|min) for 1 GPU, until \d\d:\d\d [AP]M\.$")
    for each in (shown, shown_there):
        expect(each).to_have_text(over)
    other.close()
    notebook.save()
    notebook.wait_until_saved()
    (saved,) = nbformat.read(lab_folder / "Untitled.ipynb", as_version=4).cells[0].outputs
    for kind in ("text/plain", "text/html"):  # for clients that show no state
        assert AS_OF.search(saved.data[kind])
    assert saved.data[states.MIME_TYPE]["state"] == "waiting"
    picture(page, "after waiting")
    notebook.run_again(0)
    expect(notebook.output(0)).to_have_text("it was my turn\n")


@pytest.mark.long
def test_interrupting_the_wait_says_so_and_the_next_cell_tries_again(
    page: Page, pool: Pool, picture: Picture
) -> None:
    notebook = NotebookPage(page)
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


@pytest.mark.long
def test_a_restart_while_a_cell_waits_leaves_its_display_and_asks_anew(
    page: Page, pool: Pool, picture: Picture
) -> None:
    notebook = NotebookPage(page)
    with pool.held("digits.ipynb"):
        notebook.open_from_launcher()
        notebook.run(0, "print('never')")
        expect(notebook.output(0)).to_contain_text("Waiting for 1 GPU")
        notebook.restart_kernel()
        expect(notebook.prompt(0)).to_have_text("[ ]:")
        expect(notebook.output(0), "nobody can clear it now").to_contain_text("This wait is over.")
        notebook.run(1, "print('later')")
        expect(notebook.output(1)).to_contain_text("Waiting for 1 GPU")
        expect(notebook.output(0)).to_contain_text("This wait is over.")
        picture(page, "restarted while waiting")
    expect(notebook.output(1)).to_have_text("later\n", timeout=scaled(20_000))
    expect(notebook.prompt(1)).to_have_text("[1]:")


@pytest.mark.long
def test_a_death_is_jupyterlabs_own_dialogue_and_the_cell_says_why(
    page: Page, pool: Pool, picture: Picture
) -> None:
    notebook = NotebookPage(page)
    notebook.open_from_launcher()
    notebook.run(0, "print('before')")
    expect(notebook.output(0)).to_contain_text("before")
    notebook.run(1, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    expect(notebook.cell(1)).to_contain_text("The kernel has died.")
    expect(notebook.cell(1)).to_contain_text("the kernel process was killed by SIGKILL")
    dialogue = page.locator(".jp-Dialog")
    expect(dialogue).to_contain_text("Kernel Restarting", timeout=scaled(20_000))
    picture(page, "died")
    dialogue.get_by_role("button", name="Ok").click()
    expect(notebook.cell(1), "the reason stays").to_contain_text("The kernel has died.")
    notebook.run(2, "'os' in globals()")
    expect(notebook.output(2)).to_have_text("False", timeout=scaled(20_000))
    expect(notebook.prompt(2)).to_have_text("[1]:")
    picture(page, "died and restarted")
