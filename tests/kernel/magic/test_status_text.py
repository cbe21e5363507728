"""The text of `%bitfusion status` in each state of the kernel."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.clock_time import clock_time
from bitfusion_client.command.client_output import format_back_in_reach, format_out_of_reach
from bitfusion_client.command.find_client import FoundClient
from bitfusion_kernel.gpu.simulated import pool_note
from bitfusion_kernel.magic import status_text
from tests.kernel.gpu.acquisitions import STAMP, asked, launched
from tests.kernel.magic.kernel_view import FakeKernel

LATER = time.mktime((2026, 11, 21, 14, 3, 7, 0, 0, -1))


def test_without_a_gpu_the_request_and_the_client_are_told() -> None:
    assert status_text.render(FakeKernel(), 0.0, LATER).splitlines() == [
        "Kernel    no GPU; the next cell asks for one",
        "Request   1 GPU",
        "Client    /opt/bitfusion/bin/bitfusion",
    ]


def test_what_is_odd_in_the_settings_is_told_last() -> None:
    kernel = FakeKernel()
    kernel.hints = ["BITFUSION_GPU has no effect. Did you mean BITFUSION_GPUS?"]
    last = status_text.render(kernel, 0.0, LATER).splitlines()[-1]
    assert last == "Note      BITFUSION_GPU has no effect. Did you mean BITFUSION_GPUS?"


def test_the_embedded_client_is_told_as_such() -> None:
    kernel = FakeKernel()
    kernel.client = FoundClient("/x/bitfusion", "embedded", True)
    assert "Client    /x/bitfusion (embedded pool on this machine)" in status_text.render(kernel, 0.0, LATER)


def test_before_there_is_a_gpu_of_the_embedded_pool_the_note_says_what_simulated_ones_do() -> None:
    kernel = FakeKernel()
    note = f"Note      {pool_note()}."
    assert note not in status_text.render(kernel, 0.0, LATER).splitlines()
    kernel.client = FoundClient("/x/bitfusion", "configured", True)
    assert note in status_text.render(kernel, 0.0, LATER).splitlines()
    kernel.acquisition, kernel.running = launched(), True
    assert "imulated GPUs" not in status_text.render(kernel, 4.0, LATER)


def test_a_missing_client_is_told_in_one_line() -> None:
    kernel = FakeKernel()
    kernel.client = None
    last = status_text.render(kernel, 0.0, LATER).splitlines()[-1]
    assert last == "Client    There is no `bitfusion` command on this machine."


def test_a_wait_is_told_with_position_who_is_ahead_and_time() -> None:
    kernel = FakeKernel()
    kernel.acquisition = asked()
    assert "waiting for a GPU" in status_text.render(kernel, 0.0, LATER)
    kernel.acquisition.on_line(f"{STAMP} Waiting for GPUs: position 2 of 3; held by ada; before you bob", 0.0)
    assert status_text.render(kernel, 65.0, LATER).splitlines()[:-1] == [
        f"Kernel       waiting for a GPU at {clock_time(LATER, LATER)}",
        "Request      1 GPU",
        "Position     2 of 3 in the queue",
        "Held by      ada",
        "Before you   bob",
        f"Waited       1 min 05 s, since {clock_time(LATER - 65, LATER)}",
    ]


def test_what_is_idle_for_a_while_says_since_when() -> None:
    kernel = FakeKernel()
    kernel.acquisition, kernel.running = launched(), True
    for since, row in [
        (None, []),
        (LATER - 9, []),
        (LATER - 65, [f"Idle for 1 min 05 s, since {clock_time(LATER - 65, LATER)}"]),
    ]:
        kernel.state["idle_since"] = since
        rows = status_text.render(kernel, 70.0, LATER).splitlines()
        assert [" ".join(each.split()) for each in rows if each.startswith("Idle")] == row


@pytest.mark.parametrize(("lease", "what"), [(None, "its position in the queue"), ({}, "its GPU")])
def test_what_is_given_back_is_told(lease: object, what: str) -> None:
    kernel = FakeKernel()
    kernel.acquisition = asked()
    kernel.state |= {"state": "releasing", "lease": lease}
    assert status_text.render(kernel, 2.0, LATER).splitlines()[:2] == [
        f"Kernel    gives back {what}",
        "Request   1 GPU",
    ]


def test_between_lease_and_first_reply_the_kernel_starts() -> None:
    kernel = FakeKernel()
    kernel.acquisition = launched()
    assert status_text.render(kernel, 2.0, LATER).startswith("Kernel    starting\n")


def test_a_running_kernel_tells_its_lease() -> None:
    kernel = FakeKernel()
    kernel.acquisition = launched()
    kernel.running = True
    lines = status_text.render(kernel, 4.0, LATER).splitlines()
    assert lines[0] == "Kernel     running on its GPU"
    assert "Held for   3 s" in lines


def test_a_pool_out_of_reach_is_told_with_the_time_of_the_end_and_that_it_is_back() -> None:
    kernel = FakeKernel()
    kernel.acquisition, kernel.running = launched(), True
    kernel.acquisition.on_line(f"{STAMP} {format_out_of_reach('a:1', 'no answer', 85)}", LATER)
    assert status_text.render(kernel, 4.0, LATER + 1).splitlines()[1:3] == [
        f"Pool       The GPU pool a:1 is out of reach since {_second(LATER)}: no answer",
        f"           This kernel is ended at {_second(LATER + 85)} unless the pool is back",
    ]
    kernel.acquisition.on_line(f"{STAMP} {format_back_in_reach('a:1', 42)}", LATER + 42)
    times = f"from {_second(LATER)} to {_second(LATER + 42)}"
    assert status_text.render(kernel, 4.0, LATER + 50).splitlines()[1] == (
        f"Pool       The GPU pool a:1 was out of reach {times}: nothing was lost"
    )


def test_a_wait_tells_a_pool_out_of_reach_too() -> None:
    kernel = FakeKernel()
    kernel.acquisition = asked()
    kernel.acquisition.on_line(f"{STAMP} {format_out_of_reach('a:1', 'no answer')}", LATER)
    row = f"Pool      The GPU pool a:1 is out of reach since {_second(LATER)}: no answer"
    assert row in status_text.render(kernel, 4.0, LATER + 1).splitlines()


def _second(clock: float) -> str:
    return clock_time(clock, LATER, seconds=True)


@pytest.mark.parametrize(
    ("simulated", "said"),
    [
        ([True], "running; its GPU is simulated, so the CPU computes"),
        ([True, True], "running; its GPUs are simulated, so the CPU computes"),
        ([True, False], "running on its GPU"),
        ([False], "running on its GPU"),
        ([], "running on its GPU"),
    ],
)
def test_a_kernel_on_simulated_gpus_runs_on_the_cpu(simulated: list[bool], said: str) -> None:
    kernel = FakeKernel()
    devices = [{"id": number, "simulated": each} for number, each in enumerate(simulated)]
    kernel.acquisition, kernel.running = launched(BITFUSION_POOL_DEVICES=json.dumps(devices)), True
    assert status_text.render(kernel, 4.0, LATER).splitlines()[0].split(maxsplit=1) == ["Kernel", said]


def test_a_lease_is_told_row_by_row() -> None:
    device = {"id": 0, "name": "Tesla", "memory_mib": 8080, "total_mib": 16160, "simulated": True}
    acquisition = launched(BITFUSION_POOL_DEVICES=json.dumps([device, {"id": 1}]))
    assert status_text.render_lease(acquisition, 1.0).splitlines() == [
        "Request    1 GPU",
        "GPU        GPU 0: Tesla – 8080 of 16160 MiB (simulated)",
        "           GPU 1: GPU",
        "Held for   0 s",
    ]


def test_without_devices_the_clients_numbers_are_told() -> None:
    assert ("GPU", "0, 1 – 8080 MiB each") in status_text.lease_rows(launched(), 1.0)


LINES = st.one_of(
    st.text(max_size=60),
    st.builds(
        lambda head, tail: f"{STAMP} {head}{tail}",
        st.sampled_from(["Waiting for GPUs: ", "Requesting GPUs ", "Locked ", "10.0.0.1 1 ", "Releasing "]),
        st.text(max_size=30),
    ),
)


@given(st.lists(LINES, max_size=8), st.booleans(), st.booleans())
def test_no_output_of_the_client_is_too_strange(said: list[str], granted: bool, running: bool) -> None:
    kernel = FakeKernel()
    kernel.acquisition = launched() if granted else asked()
    kernel.running = running
    for line in said:
        kernel.acquisition.on_line(line, 0.0)
    assert status_text.render(kernel, 9.0, LATER)
    assert status_text.render_lease(kernel.acquisition, 9.0)
