"""Chip, menu, panel and notices in a real JupyterLab, clicked through."""

from __future__ import annotations

import re
import shutil
import time
from functools import partial
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, TimeoutError, expect

from bitfusion_client.kernel_state.states import MIME_TYPE
from tests.jupyter_ext.labextension.conftest import Lab, Notebook, expect_toast
from tests.jupyter_ext.labextension.front_ends import FRONT_ENDS, in_front_ends, that_have
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]

HELD = r"½ GPU · [1-5]\d min"
"""What is said of a `lease`, however long a test takes."""
HALF = {"text": "1 GPU × 50 %", "what_is_left": False, "gpus": 1, "partial": 0.5}


def lease(now: float) -> dict[str, Any]:
    held = {"devices": [], "server": "gpu-1.example:56001", "simulated": True}
    return {
        "state": "running",
        "request": HALF,
        "lease": held,
        "asked_at": now - 725,
        "granted_at": now - 720,
    }


@in_front_ends(*FRONT_ENDS)
def test_a_size_is_chosen_then_a_wait_a_lease_and_a_release(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab, {"bitfusion": {"gpus": 1, "partial": 0.25}})
    chip, kernel = notebook.chip, notebook.kernel
    expect(chip).to_have_text("no GPU: the next cell takes one")

    chip.click()
    with page.expect_response("**/bitfusion/api/state*"):  # the menu that is open stays so
        lab.tell(events=[{"what": "pool"}])
    expect(notebook.entry("saved in this notebook")).to_contain_text("¼ GPU")
    expect(notebook.entry("2 GPUs")).to_contain_text("more than this pod's budget")
    expect(notebook.entry("2 GPUs")).to_have_attribute("aria-disabled", "true")
    notebook.entry("½ GPU").click()
    expect_toast(page, "Done: request.")
    asked = {"gpus": 1, "partial": 0.5, "memory_mib": None, "now": False}
    assert lab.tell()["asked"][-1] == ["request", asked]

    notebook.save({"gpus": 1, "partial": 0.5})

    now = time.time()
    queue = {"of": "pool", "position": 2, "length": 3, "held_by": ["grace"], "before": ["alan"], "why": None}
    lab.tell(kernels={kernel: {"state": "waiting", "asked_at": now - 100, "queue": queue}})
    waits = re.compile(r"queue 2 of 3 · [1-9]\d?:\d\d")
    expect(chip).to_contain_text(waits)
    page.reload()  # what a reload shows is how things are now
    expect(chip).to_contain_text(waits)
    notebook.choose("Cancel the Wait")
    expect(chip).to_have_text("no GPU: the next cell takes one")

    waiting = [{"text": "alan", "mine": False}] * 2
    lab.tell(kernels={kernel: lease(now)}, pool={"waiting": waiting}, events=[{"what": "pool"}])
    expect(chip).to_have_text(re.compile(rf"^{HELD} · 2 wait · simulated$"))
    panel = notebook.show_pool()
    expect(panel).to_contain_text("grace · <b>notes</b>.ipynb")  # as text
    expect(panel.get_by_role("meter", name="GPU 0: held")).to_have_attribute("aria-valuenow", "75")
    expect(panel.locator(".bf-Place")).to_have_count(2)
    panel.get_by_role("button", name="Release the GPU of train.ipynb").click()
    expect_toast(page, "variables will be lost")
    expect(chip).to_contain_text("no GPU")
    assert [verb for verb, _ in lab.tell()["asked"]] == ["request", "cancel", "release"]


@that_have()
def test_notices_offer_to_keep_and_the_dialog_asks_by_keyboard(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    kernel, now = notebook.kernel, time.time()
    idle = {"state": "idle", "idle_since": now - 300, "idle_release_at": now + 120}
    lab.tell(kernels={kernel: lease(now) | idle})
    notice = {"what": "notice", "kind": "idle_release_soon", "kernel_id": kernel, "message": "Back in 2 min."}
    lab.tell(events=[notice])
    toast = page.locator(".Toastify__toast").filter(has_text="train.ipynb: Back in 2 min.")
    toast.get_by_role("button", name="Keep").click()
    expect_toast(page, "Done: keep.")

    notebook.chip.focus()
    page.keyboard.press("Enter")
    expect(notebook.menu).to_be_focused()
    page.keyboard.press("a")  # the only entry with that letter
    page.keyboard.press("Enter")
    number = notebook.dialog.get_by_label("Number of GPUs")
    expect(number).to_be_focused()
    page.keyboard.press("Tab")  # the kind that is chosen: a share
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    expect(notebook.dialog.locator(".bf-Form-sum")).to_contain_text("45 % GPU")
    page.keyboard.press("Enter")
    expect_toast(page, "its variables will be lost")
    expect_toast(page, "Done: request.")
    kept, changed = lab.tell()["asked"]
    assert kept[0] == "keep"
    assert changed == ["request", {"gpus": 1, "partial": 0.45, "memory_mib": None, "now": True}]


@that_have()
def test_a_wait_that_a_file_has_kept_says_that_nobody_here_waits_for_it(page: Page, lab: Lab) -> None:
    told = {
        "kernel_id": "of-a-kernel-that-is-gone",
        "state": "waiting",
        "request": HALF,
        "asked_at": 1795750000,
    }
    shown = {"text/plain": "waited 6 s", "text/html": "<b>waited 6 s</b>", MIME_TYPE: told}
    output = nbformat.v4.new_output("display_data", data=shown)
    Notebook(page, lab, outputs=[output])
    box = page.locator(".jp-OutputArea-output .bf-Wait")
    expect(box).to_contain_text("Requested ½ GPU at")
    expect(box).to_contain_text("No kernel on this server is waiting for it any more.")


@in_front_ends(*FRONT_ENDS)
def test_beside_another_kernel_nothing_is_shown_and_nothing_asked(page: Page, lab: Lab) -> None:
    lab.write("plain.ipynb", "python3", {})
    page.goto(lab.address("plain.ipynb"))
    expect(page.locator(".jp-NotebookPanel-toolbar [data-status=idle]")).to_be_visible()
    before = lab.tell()["states"]
    page.locator(".jp-Notebook .jp-CodeCell").first.click()
    expect(page.locator(".bf-Chip:visible")).to_have_count(0)
    page.wait_for_timeout(500)
    assert lab.tell()["states"] == before


COUNT_CLICKS = """
window.clicks = 0;
addEventListener('pointerdown', event => { window.clicks += event.isTrusted; }, true);
"""


@that_have()
def test_common_jobs_take_few_clicks(page: Page, lab: Lab) -> None:
    page.add_init_script(COUNT_CLICKS)
    notebook = Notebook(page, lab)
    now = time.time()

    def clicks_of(job: str, verb: str) -> int:
        """Until the server is asked."""
        page.evaluate("window.clicks = 0")
        before = len(lab.asked())
        if job.startswith("panel: "):
            notebook.panel.get_by_role("button", name=job.removeprefix("panel: ")).click()
        else:
            notebook.choose(job)
        wait_until(lambda: len(lab.asked()) > before, job)
        assert lab.asked()[-1][0] == verb
        return int(page.evaluate("window.clicks"))

    pick = clicks_of("½ GPU", "request")
    lab.tell(kernels={notebook.kernel: lease(now)})
    expect(notebook.chip).to_contain_text("½ GPU")
    change = clicks_of("1 GPU", "request")
    assert lab.asked()[-1][1]["now"] is True
    release = clicks_of("Release", "release")
    expect(notebook.chip).to_contain_text("no GPU")
    notebook.show_pool()
    pick_in_panel = clicks_of("panel: ¼ GPU", "request")
    lab.tell(kernels={notebook.kernel: lease(now)})
    expect(notebook.chip).to_contain_text("½ GPU")
    change_in_panel = clicks_of("panel: 8 GiB", "request")
    release_in_panel = clicks_of("panel: Release the GPU", "release")
    assert (pick, change, release) == (2, 2, 2)
    assert (pick_in_panel, change_in_panel, release_in_panel) == (1, 1, 1)


@that_have()
def test_what_loses_something_can_be_taken_back(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab, takes_back=True)
    chip = notebook.chip
    lab.tell(kernels={notebook.kernel: lease(time.time())})
    expect(chip).to_contain_text("½ GPU")

    notebook.choose("Release")
    toast = notebook.toast(
        "½ GPU will be released when the cell has finished: variables will be lost. In 5 s."
    )
    expect(chip).to_have_text("about to be released")
    toast.get_by_role("button", name="Undo").click()
    expect(chip).to_contain_text(re.compile(HELD))
    notebook.choose("1 GPU")
    expect(chip).to_have_text("about to change to 1 GPU")
    notebook.choose("Undo")
    expect(chip).to_contain_text(re.compile(HELD))
    panel = notebook.show_pool()
    panel.get_by_role("button", name="Release the GPU").click()
    panel.get_by_role("button", name="Undo").click()
    expect(chip).to_contain_text(re.compile(HELD))
    notebook.choose("½ GPU")  # which it is
    expect_toast(page, "The size is already ½ GPU.")
    assert lab.asked() == []

    notebook.choose("Release")  # who leaves the page has decided
    expect(chip).to_have_text("about to be released")
    page.goto("about:blank")
    wait_until(lambda: [verb for verb, _ in lab.asked()] == ["release"], "what the page was left with", 3)


@that_have()
def test_the_panels_buttons_do_what_they_say(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    panel = notebook.show_pool()
    button = notebook.button
    button("Take a GPU now for train.ipynb").click()
    expect(panel).to_contain_text("GPU · idle")
    soon = {"idle_since": time.time() - 300, "idle_release_at": time.time() + 120}
    lab.tell(kernels={notebook.kernel: soon})
    expect(panel).to_contain_text("unless code runs before then")
    button("Keep the GPU of train.ipynb").click()
    expect(button("Keep the GPU of train.ipynb")).to_have_count(0)
    button("Release the GPU of train.ipynb").click()
    expect(notebook.chip).to_contain_text("no GPU")
    lab.tell(kernels={notebook.kernel: {"state": "waiting", "asked_at": time.time()}})
    button("Cancel the wait of train.ipynb").click()
    expect(notebook.chip).to_contain_text("no GPU")
    assert [verb for verb, _ in lab.asked()] == ["acquire", "keep", "release", "cancel"]
    with page.expect_response("**/bitfusion/api/state*"):
        button("Refresh the pool").click()
    expect(button("2 GPUs")).to_be_disabled()
    button("train.ipynb").first.click()
    lost = {"code": "pool_out_of_reach", "message": "The pool is away.", "next_step": "Ask ada."}
    lab.tell(pool={"error": lost}, events=[{"what": "pool"}])
    expect(panel.get_by_role("alert")).to_contain_text("The pool is away. Ask ada.")


@that_have()
def test_every_notice_is_told_and_its_buttons_work(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    kernel = notebook.kernel
    lab.tell(kernels={kernel: lease(time.time())})
    kinds = ("granted", "someone_waits", "idle_release_soon", "lease_ended", "pool_lost", "pool_back")

    def tell(kind: str) -> None:
        event = {"what": "notice", "kind": kind, "message": f"Told: {kind}."}
        lab.tell(events=[event | {"kernel_id": None if kind.startswith("pool") else kernel}])
        expect_toast(page, f"Told: {kind}.")

    for kind in kinds[:3]:
        tell(kind)
    tell("lease_ended")  # what was asked is answered
    expect(notebook.toast("Told: someone_waits.")).to_have_count(0)
    tell("pool_lost")
    notebook.toast("Told: pool_lost.").get_by_role("button", name="Details").click()
    expect(notebook.panel).to_be_visible()
    tell("pool_back")
    expect(notebook.toast("Told: pool_lost.")).to_have_count(0)
    tell("someone_waits")
    notebook.toast("Told: someone_waits.").get_by_role("button", name="Release").click()
    wait_until(lambda: lab.asked()[-1:] == [["release", {}]], "the release")


@pytest.mark.long
@that_have("status bar")
def test_the_status_bar_has_the_notebook_in_front_and_a_setting_hides_it(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    item = page.locator(".bf-mod-statusbar .bf-Chip")
    expect(item).to_have_text("no GPU: the next cell takes one")
    item.click()
    notebook.entry("Take a GPU Now").click()
    expect(item).to_contain_text("GPU · idle")
    page.keyboard.press("Control+,")
    editor = page.locator("#setting-editor")
    editor.wait_for()
    editor.locator(".jp-PluginList input[type=search], .jp-PluginList input").first.fill("GPU Pool")
    editor.locator(".jp-PluginList-entry").filter(has_text="GPU Pool").click()
    for title in ("Notifications", "Offer the saved size", "Status bar"):
        expect(editor.get_by_label(title, exact=True)).to_be_checked()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").filter(has_text="train.ipynb").click()
    expect(item).to_be_visible()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").filter(has_text="Settings").click()
    editor.get_by_label("Status bar", exact=True).uncheck()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").filter(has_text="train.ipynb").click()
    expect(item).to_be_hidden()
    expect(notebook.chip).to_be_visible()
    shutil.rmtree(lab.settings / "kubeflow-bitfusion")


@that_have("running")
def test_the_running_panel_has_leases_and_marks_the_kernels_that_hold_one(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    lab.tell(kernels={notebook.kernel: lease(time.time())})
    expect(notebook.chip).to_contain_text("½ GPU")
    page.locator(".jp-SideBar [data-id='jp-running-sessions']").click()
    running = page.locator("#jp-running-sessions")
    item = running.locator(".jp-RunningSessions-item").filter(has_text=re.compile(HELD))
    expect(item).to_contain_text("train.ipynb")
    kernel = running.locator(f".jp-RunningSessions-itemLabel[title*='{notebook.kernel}']")
    mark = "labels => labels.map(label => getComputedStyle(label, '::before').content)"
    # JupyterLab's own list of kernels may come later than our leases
    wait_until(lambda: kernel.evaluate_all(mark) == ['"½ GPU"'], lambda: kernel.evaluate_all(mark))
    item.hover()
    item.locator(".jp-RunningSessions-itemShutdown").click()
    expect(item).to_have_count(0)
    wait_until(lambda: kernel.evaluate_all(mark) == ["none"], lambda: kernel.evaluate_all(mark))
    lab.tell(kernels={notebook.kernel: lease(time.time())})
    section = running.locator(".jp-AccordionPanel-title").filter(has_text="GPUs")
    expect(item).to_be_visible()
    section.locator(".jp-RunningSessions-shutdownAll").click()
    expect(notebook.dialog).to_contain_text("the notebooks' variables will be lost")
    notebook.dialog.get_by_role("button", name="Release All").click()
    expect(item).to_have_count(0)
    assert [verb for verb, _ in lab.asked()] == ["release", "release"]


@that_have("launcher")
def test_tiles_make_notebooks_of_their_size(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.server.address}/lab?reset")

    def tile(name: str) -> Locator:
        return page.locator(".jp-LauncherCard:visible").filter(has_text=name)

    expect(tile("¼ GPU")).to_be_visible()
    expect(tile("2 GPUs")).to_have_count(0)  # more than the budget
    tile("½ GPU").click()
    chip = page.locator(".bf-mod-toolbar .bf-Chip:visible")
    expect(chip).to_be_visible()
    wait_until(lambda: lab.asked(), "the size of the tile")
    assert lab.asked()[0][1] == {"gpus": 1, "partial": 0.5, "memory_mib": None, "now": False}
    page.goto(f"{lab.server.address}/lab?reset")
    tile("GPU Notebook…").click()
    dialog = page.locator(".jp-Dialog")
    dialog.get_by_role("radio", name="Memory").check()
    dialog.get_by_role("slider", name="Memory").fill("4")
    expect(dialog).to_contain_text("4 GiB · ")
    dialog.get_by_role("button", name="Create").click()
    wait_until(lambda: len(lab.asked()) == 2, "the size of the dialog")
    assert lab.asked()[1][1] == {"gpus": 1, "partial": None, "memory_mib": 4096, "now": False}
    for file in lab.folder.glob("Untitled*.ipynb"):
        file.unlink()


@that_have()
def test_the_palette_has_every_command(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    palette = page.locator(".lm-CommandPalette-content")
    take = palette.locator(".lm-CommandPalette-item").filter(has_text="Take a GPU Now")

    def chosen() -> bool:
        """Notebook 7's palette closes when a page that still loads takes the focus, or a dialog does."""
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Shift+c")
        page.locator(".lm-CommandPalette-input").fill("gpu", timeout=scaled(3_000))
        for name in ("Show the GPU Pool", "Take a GPU Now", "GPU Notebook…", "Another Size…"):
            expect(palette).to_contain_text(name)
        take.click(timeout=scaled(3_000))
        return True

    wait_until(chosen, partial(page.inner_text, "body"), 20, errors=(TimeoutError,))
    expect(notebook.chip).to_contain_text("GPU · idle")
    assert lab.asked() == [["acquire", {}]]


@pytest.mark.long
@in_front_ends(*FRONT_ENDS)
def test_a_notebook_that_cannot_be_written_is_left_as_it_is(page: Page, lab: Lab) -> None:
    """The size is asked for all the same; who may not execute is shown nothing that does (`can_change`)."""
    notebook = Notebook(page, lab, may_write=False)
    notebook.choose("½ GPU")
    expect_toast(page, "Done: request.")
    lab.tell(kernels={notebook.kernel: {"request": {"text": "1 GPU", "gpus": 1}}})
    notebook.chip.click()
    expect(notebook.entry("½ GPU")).to_have_count(1)  # and none that the notebook remembers
    page.keyboard.press("Escape")
    lab.tell(can_change=False, events=[{"what": "pool"}])
    page.reload()
    notebook.chip.click()
    for entry in ("½ GPU", "Another Size…", "Take a GPU Now"):
        expect(notebook.entry(entry)).to_have_attribute("aria-disabled", "true")
    notebook.entry("Show the GPU Pool").click()
    expect(notebook.panel.locator(".bf-Size:enabled")).to_have_count(0)
    expect(notebook.panel.get_by_role("button", name="Take a GPU now")).to_have_count(0)
