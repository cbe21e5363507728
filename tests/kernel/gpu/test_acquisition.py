"""One attempt to get GPUs, told by the lines of the client and the supervisor's events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition, Device, devices_from_environment
from bitfusion_kernel.processes.messages import LaunchedEvent

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


def test_place_and_lease_are_read_from_the_clients_lines() -> None:
    acquisition = _asked()
    for line in (
        f"{STAMP} Waiting for GPUs: place 2 of 3, ahead: ada; bob",
        f"{STAMP} Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...",
        f"{STAMP} Locked 2 GPUs with partial memory 0.5, configuration saved to '/tmp/bitfusion1'",
        f"{STAMP} 10.0.0.1 55001 5c6 56001 4.0.0",
        "an unknown line",
    ):
        assert acquisition.on_line(line)
    assert (acquisition.queue_position, acquisition.queue_length, acquisition.ahead) == (2, 3, ("ada", "bob"))
    assert (acquisition.gpu_ids, acquisition.memory_mib) == ((0, 1), 8080)
    assert (acquisition.lock_file, acquisition.server) == ("/tmp/bitfusion1", "10.0.0.1:56001")
    assert list(acquisition.log)[-1] == "an unknown line"
    assert not acquisition.granted


def test_after_the_start_unknown_lines_are_the_kernels_words() -> None:
    acquisition = _launched()
    assert not acquisition.on_line("Segmentation fault ")
    assert not acquisition.on_line("")
    assert acquisition.on_line(f"{STAMP} Releasing GPUs from config file '/tmp/b'...")
    assert acquisition.on_line("")
    assert list(acquisition.kernel_output) == ["Segmentation fault"]


@pytest.mark.parametrize("text", ["", "{", "3", "[3]", "null", '"x"'])
def test_devices_told_wrongly_are_no_devices(text: str) -> None:
    assert devices_from_environment({"BITFUSION_POOL_DEVICES": text}) == []


def test_a_device_tells_only_what_is_known() -> None:
    assert Device({"id": 2, "name": "A100", "memory_mib": 1024}).describe() == "GPU 2: A100 – 1024 MiB"


@pytest.mark.parametrize(
    ("kernel", "wrapper", "message"),
    [
        (
            -9,
            137,
            "The kernel has died.\n"
            "Answer: the kernel process was killed by SIGKILL; its last output: oops\n"
            "What to do: restart the kernel and run the cells again.",
        ),
        (
            None,
            -15,
            "The `bitfusion run` process under this kernel has died; its GPUs are gone.\n"
            "Asked for: 1 GPU\n"
            "Answer: `bitfusion run` was killed by SIGTERM; its last output: [INFO] 2026-11-21T00:00:00Z "
            "Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...\n"
            "What to do: restart the kernel; `%bitfusion log` shows the client's output.",
        ),
    ],
)
def test_why_a_running_kernel_ended(kernel: int | None, wrapper: int, message: str) -> None:
    acquisition = _launched()
    acquisition.on_line("oops")
    acquisition.kernel_status, acquisition.wrapper_status = kernel, wrapper
    assert acquisition.why_it_ended().user_message == message


def test_why_a_wait_ended_is_the_clients_own_word() -> None:
    acquisition = _asked()
    acquisition.on_line("Error: not enough GPUs available: 0 of 1")
    acquisition.wrapper_status = 1
    assert type(acquisition.why_it_ended()).__name__ == "NoGpusAvailable"


lines = st.one_of(
    st.text(max_size=60),
    st.builds(
        lambda head, tail: f"{STAMP} {head}{tail}",
        st.sampled_from(["Waiting for GPUs: ", "Requesting GPUs ", "Locked ", "10.0.0.1 1 ", "Releasing "]),
        st.text(max_size=30),
    ),
)


@given(st.lists(lines, max_size=8), st.booleans(), st.none() | st.integers(-64, 255))
def test_no_output_is_too_strange(said: list[str], granted: bool, status: Any) -> None:
    acquisition = _launched() if granted else _asked()
    for line in said:
        acquisition.on_line(line)
    acquisition.wrapper_status = status
    assert acquisition.why_it_ended().user_message
