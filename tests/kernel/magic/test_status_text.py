"""The text of `%bitfusion status` in each state of the kernel."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.find_client import FoundClient
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic import status_text
from bitfusion_kernel.processes.messages import LaunchedEvent
from tests.kernel.magic.kernel_view import FakeKernel

STAMP = "[INFO] 2026-11-21T00:00:00Z"


def _asked() -> Acquisition:
    return Acquisition(1, GpuRequest(), 0.0)


def _launched(**environment: str) -> Acquisition:
    acquisition = _asked()
    acquisition.on_line(
        f"{STAMP} Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0..."
    )
    acquisition.on_launched(LaunchedEvent(10, 11, environment), 1.0)
    return acquisition


def test_without_a_gpu_the_request_and_the_client_are_told() -> None:
    assert status_text.render(FakeKernel(), 0.0).splitlines() == [
        "Kernel    no GPU; the next cell asks for one",
        "Request   1 GPU",
        "Client    /opt/bitfusion/bin/bitfusion",
    ]


def test_the_embedded_client_is_told_as_such() -> None:
    kernel = FakeKernel()
    kernel.client = FoundClient("/x/bitfusion", "embedded", True)
    assert "Client    /x/bitfusion (embedded pool on this machine)" in status_text.render(kernel, 0.0)


def test_a_missing_client_is_told_in_one_line() -> None:
    kernel = FakeKernel()
    kernel.client = None
    last = status_text.render(kernel, 0.0).splitlines()[-1]
    assert last == "Client    There is no `bitfusion` command on this machine."


def test_a_wait_is_told_with_position_who_is_ahead_and_time() -> None:
    kernel = FakeKernel()
    kernel.acquisition = _asked()
    assert "waiting for a GPU" in status_text.render(kernel, 0.0)
    kernel.acquisition.on_line(f"{STAMP} Waiting for GPUs: place 2 of 3, ahead: ada; bob")
    assert status_text.render(kernel, 65.0).splitlines()[:-1] == [
        "Kernel     waiting for a GPU",
        "Request    1 GPU",
        "Position   2 of 3 in the queue",
        "Ahead      ada",
        "Ahead      bob",
        "Waiting    1 min 05 s",
    ]


def test_between_lease_and_first_reply_the_kernel_starts() -> None:
    kernel = FakeKernel()
    kernel.acquisition = _launched()
    assert status_text.render(kernel, 2.0).startswith("Kernel    starting\n")


def test_a_running_kernel_tells_its_lease() -> None:
    kernel = FakeKernel()
    kernel.acquisition = _launched()
    kernel.running = True
    lines = status_text.render(kernel, 4.0).splitlines()
    assert lines[0] == "Kernel     running on its GPU"
    assert "Held for   3 s" in lines


def test_a_lease_is_told_row_by_row() -> None:
    device = {"id": 0, "name": "Tesla", "memory_mib": 8080, "total_mib": 16160, "simulated": True}
    acquisition = _launched(BITFUSION_POOL_DEVICES=json.dumps([device, {"id": 1}]))
    assert status_text.render_lease(acquisition, 1.0).splitlines() == [
        "Request    1 GPU",
        "GPU        GPU 0: Tesla – 8080 of 16160 MiB (simulated)",
        "           GPU 1: GPU",
        "Held for   0 s",
    ]


def test_without_devices_the_clients_numbers_are_told() -> None:
    assert ("GPU", "0, 1 – 8080 MiB each") in status_text.lease_rows(_launched(), 1.0)


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
    kernel.acquisition = _launched() if granted else _asked()
    kernel.running = running
    for line in said:
        kernel.acquisition.on_line(line)
    assert status_text.render(kernel, 9.0)
    assert status_text.render_lease(kernel.acquisition, 9.0)
