"""The words of the display a waiting cell shows."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.gpu.waiting_notice import WaitingNotice, elapsed_text, notice_of, render
from bitfusion_kernel.processes.messages import LaunchedEvent

CANCEL = "To stop waiting, interrupt the kernel (■). The notebook is not lost."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599, "59 min 59 s"),
        (3720, "1 h 02 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_elapsed_time(seconds: float, text: str) -> None:
    assert elapsed_text(seconds) == text


def test_a_wait_tells_the_position_who_is_ahead_and_how_to_cancel() -> None:
    data = render(WaitingNotice("2 GPUs × 50 %", 7, False, 2, 3, ("ada: a.ipynb", "bob: b.ipynb")))
    assert data["text/plain"].splitlines() == [
        "Waiting for 2 GPUs × 50 % · 7 s",
        "Position 2 of 3 in the queue",
        "Ahead: ada: a.ipynb; bob: b.ipynb",
        CANCEL,
    ]


def test_a_client_that_tells_no_position_is_not_guessed_at() -> None:
    data = render(WaitingNotice("1 GPU", 1))
    assert data["text/plain"].splitlines() == [
        "Waiting for 1 GPU · 1 s",
        "The pool has not reported a position",
        CANCEL,
    ]


def test_a_grant_is_shown_without_the_queue() -> None:
    notice = WaitingNotice("1 GPU", 3, True, 1, 2, ("x",))
    assert render(notice)["text/plain"] == "Got 1 GPU – starting the kernel · 3 s"


def test_an_attempt_is_shown_with_what_its_client_has_told() -> None:
    acquisition = Acquisition(1, GpuRequest(gpus=2), 0.0)
    assert notice_of(acquisition, 4.0) == WaitingNotice("2 GPUs", 4.0)
    acquisition.on_line("[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: place 2 of 3, ahead: ada; bob")
    assert notice_of(acquisition, 5.0) == WaitingNotice("2 GPUs", 5.0, False, 2, 3, ("ada", "bob"))
    acquisition.on_launched(LaunchedEvent(10, 11, {}), 6.0)
    assert notice_of(acquisition, 6.0).granted


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(max_size=30), st.booleans())
def test_names_of_others_are_text_in_html(name: str, granted: bool) -> None:
    parser = _Text()
    notice = WaitingNotice(f"<script>{name}", 1, granted, 1, 2, (f"<img src=x>&amp;{name}",))
    parser.feed(render(notice)["text/html"])
    parser.close()
    assert parser.tags <= {"div", "b"}
    assert "<script>" in parser.text
    assert granted or "<img src=x>&amp;" in parser.text
