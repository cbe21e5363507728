"""The words of the display a waiting cell shows."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.clock_time import clock_time, elapsed_text
from bitfusion_client.command.client_lines import Waiting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.gpu.waiting_notice import render
from bitfusion_kernel.processes.messages import LaunchedEvent

CANCEL = "To stop waiting, interrupt the kernel. The notebook is not lost."
ASKED_AT = time.mktime((2026, 11, 21, 14, 3, 7, 0, 0, -1))
SINCE = clock_time(ASKED_AT, ASKED_AT)


def shown(
    *,
    request: GpuRequest = GpuRequest(),  # noqa: B008  # it cannot be changed
    seconds: float = 7,
    granted: bool = False,
    unattended: bool = False,
    queue: tuple[int | None, int | None] | None = None,
    held_by: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
    why: str = "",
) -> dict[str, str]:
    """What is shown of an attempt whose client has told this."""
    acquisition = Acquisition(1, request, 0.0)
    if queue is not None:
        acquisition.queue = Waiting("", "INFO", "", *queue, held_by, before, why)
    if granted:
        acquisition.on_launched(LaunchedEvent(10, 11, {}), 6.0)
    return render(acquisition, seconds, ASKED_AT, ASKED_AT + seconds, unattended=unattended)


def test_a_wait_tells_holders_from_waiters_why_and_how_to_cancel() -> None:
    data = shown(
        request=GpuRequest(2, 0.5),
        queue=(2, 3),
        held_by=("ada: a.ipynb (2 GPUs, since 14:03)", "3 more"),
        before=("bob: b.ipynb (1 GPU, since 14:05)",),
        why="there is room",
    )
    assert data["text/plain"].splitlines() == [
        f"Asked for 2 GPUs × 50 % at {SINCE} · waited 7 s · as of {SINCE}",
        "Position 2 of 3 in the queue",
        "Held by:",
        "  ada: a.ipynb (2 GPUs, since 14:03)",
        "  3 more",
        "Before you in the queue:",
        "  bob: b.ipynb (1 GPU, since 14:05)",
        "Why: there is room",
        CANCEL,
    ]


def test_where_nobody_knows_an_order_the_reason_says_it() -> None:
    data = shown(queue=(None, None), why="2 of 3 nodes have no free GPU")
    assert data["text/plain"].splitlines()[1:] == ["Why: 2 of 3 nodes have no free GPU", CANCEL]


def test_the_button_is_named_where_there_is_one() -> None:
    data = shown(queue=(1, 1))
    assert "interrupt the kernel (■)." in data["text/html"]
    assert "■" not in data["text/plain"]


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("seconds", [7, 6 * 60, 3 * 3600, 30 * 3600])
def test_a_display_that_nobody_clears_stays_true(seconds: float, granted: bool) -> None:
    """JupyterLab drops its displays at a restart or reload: what was shown last stays in the notebook."""
    now = ASKED_AT + seconds
    data = shown(queue=(1, 1), seconds=seconds, granted=granted)
    for text in data.values():
        assert "aiting for" not in text
        assert granted or f"at {clock_time(ASKED_AT, now)} · waited {elapsed_text(seconds)} · " in text
        assert f" · as of {clock_time(now, now)}" in text


def test_a_machine_that_slept_shows_the_time_of_day_all_the_same() -> None:
    slept = ASKED_AT + 3600
    shown = render(Acquisition(1, GpuRequest(), 0.0), 7, ASKED_AT, slept)["text/plain"]
    assert shown.splitlines()[0].endswith(f" · waited 7 s · as of {clock_time(slept, slept)}")


def test_a_client_that_tells_no_position_is_not_guessed_at() -> None:
    data = shown(seconds=1)
    assert data["text/plain"].splitlines() == [
        f"Asked for 1 GPU at {SINCE} · waited 1 s · as of {SINCE}",
        "No position in the queue has been reported yet",
        CANCEL,
    ]


def test_only_where_nobody_watches_it_says_what_counts_the_wait() -> None:
    words = (
        "A time limit for cells counts this wait. "
        "With BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts it instead."
    )
    watched, unattended = shown(), shown(unattended=True)
    assert unattended["text/plain"] == f"{watched['text/plain']}\n{words}"
    assert _shown_text(unattended["text/html"]) == _shown_text(watched["text/html"]) + words
    assert shown(granted=True, unattended=True) == shown(granted=True)


def test_a_grant_is_shown_without_the_queue() -> None:
    granted = shown(seconds=3, granted=True, queue=(1, 2), held_by=("x",))
    assert granted["text/plain"] == f"Got 1 GPU – starting the kernel · 3 s · as of {SINCE}"


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def _shown_text(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    parser.close()
    return parser.text


@given(st.text(max_size=30), st.booleans())
def test_names_of_others_are_text_in_html(name: str, granted: bool) -> None:
    parser = _Text()
    other = f"<img src=x>&amp;{name}"
    request = GpuRequest(filters=(("name", "<script>"),))
    data = shown(request=request, granted=granted, queue=(1, 2), held_by=(other,), before=(other,), why=other)
    parser.feed(data["text/html"])
    parser.close()
    assert parser.tags <= {"div", "b"}
    assert granted or "<img src=x>&amp;" in parser.text
