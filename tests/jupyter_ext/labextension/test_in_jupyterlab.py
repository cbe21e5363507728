"""Chip, menu, panel and notices in a real JupyterLab, clicked through."""

from __future__ import annotations

import json
import time
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Page, expect

from bitfusion_client.kernel_state.states import MIME_TYPE
from tests.jupyter_ext.labextension.conftest import Lab, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(60)]

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


def test_a_size_is_chosen_then_a_wait_a_lease_and_a_release(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab, {"bitfusion": {"gpus": 1, "partial": 0.25}})
    chip, kernel = notebook.chip, notebook.kernel
    expect(chip).to_have_text("no GPU: the next cell takes one")

    chip.click()
    with page.expect_response("**/bitfusion/api/state*"):  # the menu that is open stays so
        lab.tell(events=[{"what": "pool"}])
    expect(notebook.entry("as saved in this notebook")).to_contain_text("¼ GPU")
    expect(notebook.entry("2 GPUs")).to_contain_text("more than this pod's budget")
    expect(notebook.entry("2 GPUs")).to_have_attribute("aria-disabled", "true")
    notebook.entry("½ GPU").click()
    expect(page.locator(".Toastify")).to_contain_text("Done: request.")
    asked = {"gpus": 1, "partial": 0.5, "memory_mib": None, "now": False}
    assert lab.tell()["asked"][-1] == ["request", asked]

    notebook.save()
    saved = json.loads((lab.folder / "train.ipynb").read_text())
    assert saved["metadata"]["bitfusion"] == {"gpus": 1, "partial": 0.5}

    now = time.time()
    queue = {"of": "pool", "position": 2, "length": 3, "held_by": ["grace"], "before": ["alan"], "why": None}
    lab.tell(kernels={kernel: {"state": "waiting", "asked_at": now - 100, "queue": queue}})
    expect(chip).to_contain_text("queue 2 of 3 · 1:4")
    page.reload()  # what a reload shows is how things are now
    expect(chip).to_contain_text("queue 2 of 3 · 1:")
    notebook.choose("Cancel the Wait")
    expect(chip).to_have_text("no GPU: the next cell takes one")

    waiting = [{"text": "alan", "mine": False}] * 2
    lab.tell(kernels={kernel: lease(now)}, pool={"waiting": waiting}, events=[{"what": "pool"}])
    expect(chip).to_have_text("½ GPU · 12 min · 2 wait · simulated")
    notebook.choose("Show the GPU Pool")
    panel = notebook.panel
    expect(panel).to_contain_text("grace · <b>notes</b>.ipynb")  # as text
    expect(panel.get_by_role("meter", name="GPU 0: held")).to_have_attribute("aria-valuenow", "75")
    expect(panel.locator(".bf-Place")).to_have_count(2)
    panel.get_by_role("button", name="Release the GPU of train.ipynb").click()
    expect(notebook.dialog).to_contain_text("the notebook's variables are lost")
    notebook.dialog.get_by_role("button", name="Release").click()
    expect(chip).to_contain_text("no GPU")
    assert [verb for verb, _ in lab.tell()["asked"]] == ["request", "cancel", "release"]


def test_notices_offer_to_keep_and_the_dialog_asks_by_keyboard(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    kernel, now = notebook.kernel, time.time()
    idle = {"state": "idle", "idle_since": now - 300, "idle_release_at": now + 120}
    lab.tell(kernels={kernel: lease(now) | idle})
    notice = {"what": "notice", "kind": "idle_release_soon", "kernel_id": kernel, "message": "Back in 2 min."}
    lab.tell(events=[notice])
    toast = page.locator(".Toastify__toast").filter(has_text="train.ipynb: Back in 2 min.")
    toast.get_by_role("button", name="Keep").click()
    expect(page.locator(".Toastify")).to_contain_text("Done: keep.")

    notebook.chip.focus()
    page.keyboard.press("Enter")
    notebook.menu.wait_for()
    page.keyboard.press("a")  # the only entry with that letter
    page.keyboard.press("Enter")
    number = notebook.dialog.get_by_label("Number of GPUs")
    expect(number).to_be_focused()
    page.keyboard.press("Tab")  # the kind that is chosen: a share
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    expect(notebook.dialog.locator(".bf-Form-sum")).to_contain_text("45 % GPU")
    page.keyboard.press("Enter")
    expect(notebook.dialog).to_contain_text("Change the size to 45 % GPU?")
    page.keyboard.press("Enter")
    expect(page.locator(".Toastify")).to_contain_text("Done: request.")
    kept, changed = lab.tell()["asked"]
    assert kept[0] == "keep"
    assert changed == ["request", {"gpus": 1, "partial": 0.45, "memory_mib": None, "now": True}]


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
    expect(box).to_contain_text("Waited for ½ GPU from")
    expect(box).to_contain_text("No kernel of this server waits for it any more.")


def test_beside_another_kernel_nothing_is_shown_and_nothing_asked(page: Page, lab: Lab) -> None:
    lab.write("plain.ipynb", "python3", {})
    page.goto(f"{lab.server.address}/lab/tree/plain.ipynb?reset")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle")
    before = lab.tell()["states"]
    page.locator(".jp-Notebook .jp-CodeCell").first.click()
    expect(page.locator(".bf-Chip:visible")).to_have_count(0)
    page.wait_for_timeout(500)
    assert lab.tell()["states"] == before
