"""Names and answers with markup in them are text wherever a page shows them, and nothing of them runs."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import nbformat
import pytest
from playwright.sync_api import Page, Route, expect

from bitfusion_client.kernel_state.states import MIME_TYPE
from tests.jupyter_ext.labextension.conftest import Lab, Notebook, expect_toast

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(60)]

RAN = "() => window.ran || []"
"""The fields of which something has run."""

MARKUP = "window.ran || document.querySelectorAll('img[src=x], b.hostile').length"


def hostile(field: str) -> str:
    """A text that would say which field it stood in, if a page took it for markup; short as titles are."""
    run = f"(window.ran=window.ran||[]).push('{field}')"
    return f'<b class="hostile">{field}</b><img src=x onerror="{run}">'


def gpu() -> dict[str, Any]:
    return {
        "index": 0,
        "name": hostile("gpu"),
        "simulated": True,
        "free_mib": 0,
        "total_mib": 16160,
        "holders": [
            {"text": hostile("mine"), "mine": True, "mib": 8080},
            {"text": hostile("other"), "mine": False, "mib": None},
        ],
        "notes": [hostile("gpu-note")],
    }


POOL = {
    "servers": [{"address": hostile("server"), "gpus": [gpu()]}],
    "waiting": [{"text": hostile("waiting"), "mine": False, "position": 1}],
    "notes": [hostile("note")],
    "error": {"code": "no_answer", "message": hostile("error"), "next_step": hostile("next-step")},
}


def waits() -> dict[str, Any]:
    return {
        "state": "waiting",
        "asked_at": time.time() - 60,
        "request": {"text": hostile("request"), "what_is_left": False, "gpus": 1, "partial": 0.5},
        "queue": {
            "of": "pool",
            "position": 2,
            "length": 2,
            "held_by": [hostile("held-by")],
            "before": [hostile("before")],
            "why": hostile("why"),
        },
    }


def with_hostile_sizes(route: Route) -> None:
    """The state as the stand-in tells it, but for the sizes."""
    state = route.fetch().json()
    for size in state["sizes"]:
        size |= {"label": hostile("label"), "note": hostile("size-note"), "words": hostile("words")}
    route.fulfill(json=state)


@pytest.mark.long
def test_markup_in_any_answer_is_shown_as_text(page: Page, lab: Lab) -> None:
    page.route("**/bitfusion/api/state*", with_hostile_sizes)
    done = {"message": hostile("done"), "kernel": None}
    page.route("**/bitfusion/api/kernels/*/acquire*", lambda route: route.fulfill(json=done))
    refused = {"code": "refused", "message": hostile("refused"), "next_step": hostile("then")}
    page.route("**/bitfusion/api/kernels/*/request*", lambda route: route.fulfill(status=409, json=refused))
    notebook = Notebook(page, lab)
    kernel, panel = notebook.kernel, notebook.panel
    notebook.choose("Take a GPU Now")
    expect_toast(page, '<b class="hostile">done')
    notebook.chip.click()
    notebook.menu.locator(".lm-Menu-item").filter(has_text=hostile("size-note")).first.click()
    expect_toast(page, '<b class="hostile">refused')
    lab.tell(pool=POOL, kernels={kernel: waits()}, events=[{"what": "pool"}])
    expect(notebook.chip).to_contain_text("queue 2 of 2")
    notebook.chip.hover()
    notebook.choose("Show the GPU Pool")
    shown = ("gpu", "mine", "other", "gpu-note", "server", "waiting", "note", "error", "next-step")
    for field in shown:
        expect(panel, field).to_contain_text(hostile(field))

    kinds = ("someone_waits", "idle_release_soon", "granted", "lease_ended", "pool_lost", "pool_back")
    for kind in kinds:
        told = {"what": "notice", "kind": kind, "kernel_id": kernel, "message": hostile(kind)}
        lab.tell(events=[told])
        expect_toast(page, f'<b class="hostile">{kind}</b>')

    lab.tell(kernels={kernel: {"state": "idle", "granted_at": time.time(), "waited_for_by": [hostile("by")]}})
    expect(notebook.chip).to_have_attribute("data-state", "idle")
    notebook.chip.hover()
    lab.tell(pool=POOL | {"servers": [], "waiting": [], "text": hostile("text")}, events=[{"what": "pool"}])
    expect(panel).to_contain_text(hostile("text"))
    assert page.evaluate(MARKUP) in (0, None), page.evaluate(RAN)
    lab.tell(pool={"text": None, "error": None, "notes": []})


@pytest.mark.long
def test_markup_in_a_file_its_name_and_a_wait_is_shown_as_text(page: Page, lab: Lab) -> None:
    name = hostile("file").replace("/", "") + ".ipynb"  # a file's name has no slash
    metadata = {"bitfusion": {field: hostile(field) for field in ("gpus", "partial", "text")}}
    lab.write(name, "bitfusion", metadata)
    page.goto(f"{lab.server.address}/lab/tree/{quote(name)}?reset")
    chip = page.locator(".bf-mod-toolbar .bf-Chip")
    chip.wait_for()
    kernel = lab.kernel()
    wait = waits()
    shown = {"text/plain": hostile("plain"), MIME_TYPE: wait | {"kernel_id": kernel}}
    lab.write(name, "bitfusion", metadata, [nbformat.v4.new_output("display_data", data=shown)])
    page.reload()
    lab.tell(kernels={kernel: wait}, events=[{"what": "pool"}])
    box = page.locator(".jp-OutputArea-output .bf-Wait")
    for field in ("held-by", "before", "why"):
        expect(box).to_contain_text(hostile(field))
    chip.click()
    page.locator(".bf-Menu .lm-Menu-item").filter(has_text="Show the GPU Pool").click()
    expect(page.locator("#bitfusion-pool")).to_contain_text(name)
    lab.tell(events=[{"what": "notice", "kind": "granted", "kernel_id": kernel, "message": "It has a GPU."}])
    expect_toast(page, '<b class="hostile">file')
    assert page.evaluate(MARKUP) in (0, None), page.evaluate(RAN)
