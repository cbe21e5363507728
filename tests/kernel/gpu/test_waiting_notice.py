"""The words of the display a waiting cell shows."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.gpu.waiting_notice import elapsed_text, render

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


def test_a_wait_tells_place_who_is_ahead_and_how_to_cancel() -> None:
    data = render("2 GPUs × 50 %", 7, 2, 3, ("ada: a.ipynb", "bob: b.ipynb"), False)
    assert data["text/plain"].splitlines() == [
        "Waiting for 2 GPUs × 50 % · 7 s",
        "Place 2 of 3 in the queue",
        "Ahead: ada: a.ipynb; bob: b.ipynb",
        CANCEL,
    ]


def test_a_client_that_tells_no_place_is_not_guessed_at() -> None:
    data = render("1 GPU", 1, None, None, (), False)
    assert data["text/plain"].splitlines() == [
        "Waiting for 1 GPU · 1 s",
        "The pool has not told a place",
        CANCEL,
    ]


def test_a_grant_is_told_without_the_queue() -> None:
    assert render("1 GPU", 3, 1, 2, ("x",), True)["text/plain"] == "Got 1 GPU – starting the kernel · 3 s"


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
    parser.feed(render(f"<script>{name}", 1, 1, 2, (f"<img src=x>&amp;{name}",), granted)["text/html"])
    parser.close()
    assert parser.tags <= {"div", "b"}
    assert "<script>" in parser.text
    assert granted or "<img src=x>&amp;" in parser.text
