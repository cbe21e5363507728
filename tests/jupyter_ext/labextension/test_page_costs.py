"""What an open page asks the server for, counted over minutes of the page's own clock."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, Request, expect

from tests.jupyter.browser.quiet_page import HIDE
from tests.jupyter_ext.labextension.conftest import Lab, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(60)]

MINUTES = 5


@pytest.mark.long
def test_a_page_asks_less_than_once_in_ten_seconds_and_a_hidden_one_never(page: Page, lab: Lab) -> None:
    asked: list[str] = []
    unanswered: set[Request] = set()

    def ask(request: Request) -> None:
        if "/bitfusion/" in request.url:
            asked.append(request.url)
            unanswered.add(request)

    page.on("request", ask)
    for over in ("requestfinished", "requestfailed"):
        page.on(over, lambda request: unanswered.discard(request))
    page.clock.install()
    notebook = Notebook(page, lab)
    expect(notebook.chip).to_have_text("no GPU: the next cell takes one")
    lab.tell(kernels={notebook.kernel: {"state": "idle", "granted_at": time.time()}})
    expect(notebook.chip).to_have_attribute("data-state", "idle")

    def minutes_pass() -> int:
        asked.clear()
        for _ in range(MINUTES * 6):
            page.clock.run_for(10_000)
            while unanswered:  # the page's clock stands meanwhile
                page.wait_for_timeout(10)
        return len(asked)

    visible = minutes_pass()
    assert MINUTES <= visible <= MINUTES * 6, asked
    page.evaluate(HIDE, True)
    lab.tell(kernels={notebook.kernel: {"state": "none", "granted_at": None}}, events=[{"what": "pool"}])
    assert minutes_pass() == 0, asked
    page.evaluate(HIDE, False)
    page.clock.run_for(1000)
    expect(notebook.chip).to_have_attribute("data-state", "none")
