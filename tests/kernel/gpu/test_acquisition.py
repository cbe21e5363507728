"""One attempt to get GPUs, told by the lines of the client and the supervisor's events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.gpu.acquisition import Device, devices_from_environment
from bitfusion_kernel.processes.launcher import KERNEL_SPEAKS
from tests.kernel.gpu.acquisitions import STAMP, asked, launched

RESTART = (
    "What to do: restart the kernel, unless Jupyter has done that already, "
    "and run the cells again from the first one."
)
LESS_MEMORY = (
    "What to do: restart the kernel, unless Jupyter has done that already, "
    "and load less data at a time, or have the notebook started with more memory."
)


def test_place_and_lease_are_read_from_the_clients_lines() -> None:
    acquisition = asked()
    for line in (
        f"{STAMP} Waiting for GPUs: position 2 of 3; held by ada; before you bob",
        f"{STAMP} Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...",
        f"{STAMP} Locked 2 GPUs with partial memory 0.5, configuration saved to '/tmp/bitfusion1'",
        f"{STAMP} 10.0.0.1 55001 5c6 56001 4.0.0",
        "an unknown line",
    ):
        assert acquisition.on_line(line, 0.0)
    queue = acquisition.queue
    assert queue is not None
    assert (queue.queue_position, queue.queue_length) == (2, 3)
    assert (queue.held_by, queue.before) == (("ada",), ("bob",))
    assert (acquisition.gpu_ids, acquisition.memory_mib) == ((0, 1), 8080)
    assert (acquisition.lock_file, acquisition.server) == ("/tmp/bitfusion1", "10.0.0.1:56001")
    assert list(acquisition.log)[-1] == "an unknown line"
    assert not acquisition.granted


def test_after_the_start_unknown_lines_are_the_kernels_words() -> None:
    acquisition = launched()
    assert not acquisition.on_line("Segmentation fault ", 0.0)
    assert not acquisition.on_line("", 0.0)
    assert acquisition.on_line(f"{STAMP} Releasing GPUs from config file '/tmp/b'...", 0.0)
    assert acquisition.on_line("", 0.0)
    assert list(acquisition.kernel_output) == ["Segmentation fault"]


def test_before_the_launcher_has_told_of_the_kernel_a_line_tells_where_its_words_begin() -> None:
    acquisition = asked()
    assert acquisition.on_line("unknown", 0.0, "stdout")
    assert acquisition.on_line(KERNEL_SPEAKS, 0.0, "stdout")
    assert not acquisition.on_line("", 0.0, "stdout")
    assert acquisition.on_line("what the client said last on the other stream", 0.0, "stderr")
    assert not acquisition.on_line("cannot open shared object file", 0.0, "stdout")
    assert acquisition.on_line(f"unfinished{KERNEL_SPEAKS}", 0.0, "stderr")
    assert not acquisition.on_line("Fatal Python error: ", 0.0, "stderr")
    assert acquisition.on_line(f"{STAMP} Released GPUs on 1 servers", 0.0, "stderr")
    assert list(acquisition.kernel_output) == ["cannot open shared object file", "Fatal Python error:"]
    assert list(acquisition.log) == [
        "unknown",
        "what the client said last on the other stream",
        "unfinished",
        f"{STAMP} Released GPUs on 1 servers",
    ]


def test_a_fatal_error_beside_a_kernel_may_be_eithers() -> None:
    acquisition = launched()
    said = "Error: package 'methods' is not there"
    assert not acquisition.on_line(said, 0.0)
    assert list(acquisition.kernel_output) == [said] == list(acquisition.log)[-1:]


def test_a_pod_that_has_ended_says_why_in_the_cell_that_ran() -> None:
    acquisition = launched()
    assert acquisition.on_line("Error: GPU pod lost: it was evicted: memory is low. What to do: ask", 0.0)
    acquisition.wrapper_status = 1
    message = acquisition.why_it_ended(ran=True).user_message
    assert message.startswith("The pod in which this kernel ran has ended, and its GPUs are gone.")
    assert "Answer: it was evicted: memory is low\nWhat to do: ask" in message


def test_a_kernel_that_never_ran_is_quoted_at_length_from_the_end() -> None:
    acquisition = launched()
    said = [
        "x" * 200,
        "y" * 150,
        "Fatal Python error: init",
        "Python runtime state: initialized",
        "<no frame>",
    ]
    for line in said:
        acquisition.on_line(line, 0.0)
    acquisition.kernel_status = 1
    end = " | ".join(said[1:])
    assert f"ended with exit code 1; its last output: {end}\n" in acquisition.why_it_ended().user_message
    assert "; its last output: <no frame>\n" in acquisition.why_it_ended(ran=True).user_message
    acquisition.on_line("z" * 350, 0.0)
    assert f"; its last output: {'z' * 300}" in acquisition.why_it_ended().user_message


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
            "Answer: the kernel process was killed by SIGKILL, as happens when memory runs out; "
            "its last output: oops\n" + RESTART,
        ),
        (
            None,
            -15,
            "The `bitfusion run` process under this kernel has died; its GPUs are gone.\n"
            "Asked for: 1 GPU\n"
            "Answer: `bitfusion run` was killed by SIGTERM; its last output: [INFO] 2026-11-21T00:00:00Z "
            "Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...\n" + RESTART,
        ),
        (
            None,
            137,
            "The `bitfusion run` process under this kernel has died; its GPUs are gone.\n"
            "Asked for: 1 GPU\n"
            "Answer: the program under `bitfusion run` was killed by SIGKILL, as happens when memory runs "
            "out; its last output: [INFO] 2026-11-21T00:00:00Z "
            "Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...\n" + RESTART,
        ),
    ],
)
def test_why_a_running_kernel_ended(kernel: int | None, wrapper: int, message: str) -> None:
    acquisition = launched()
    acquisition.on_line("oops", 0.0)
    acquisition.kernel_status, acquisition.wrapper_status = kernel, wrapper
    assert acquisition.why_it_ended(ran=True).user_message == message


@pytest.mark.parametrize(
    ("status", "ran_out", "answer", "next_step"),
    [
        (-9, True, "was killed by SIGKILL, because memory ran out", LESS_MEMORY),
        (-9, False, "was killed by SIGKILL", RESTART),
        (-9, None, "was killed by SIGKILL, as happens when memory runs out", RESTART),
        (-11, True, "was killed by SIGSEGV", RESTART),
        (1, True, "ended with exit code 1", RESTART),
    ],
)
@pytest.mark.parametrize("who", ["kernel", "wrapper"])
def test_memory_that_ran_out_is_told_of_a_sigkill_only(
    who: str, status: int, ran_out: bool | None, answer: str, next_step: str
) -> None:
    acquisition = launched()
    acquisition.memory_ran_out = ran_out
    if who == "kernel":
        acquisition.kernel_status, acquisition.wrapper_status = status, 137
    else:
        acquisition.wrapper_status = status
    lines = acquisition.why_it_ended(ran=True).user_message.splitlines()
    subject = "the kernel process" if who == "kernel" else "`bitfusion run`"
    assert lines[-2].partition("; its last output")[0] == f"Answer: {subject} {answer}"
    assert lines[-1] == next_step


@pytest.mark.parametrize(
    ("kernel", "next_step"),
    [
        (1, "run the cell again; `bitfusion-kernel doctor` in a terminal checks this kernel."),
        (None, "run the cell again; `%bitfusion log` shows the client's output."),
    ],
)
def test_what_dies_before_a_cell_ran_needs_no_restart(kernel: int | None, next_step: str) -> None:
    acquisition = launched()
    acquisition.kernel_status, acquisition.wrapper_status = kernel, 1
    assert acquisition.why_it_ended().next_step == next_step


def test_why_a_wait_ended_is_the_clients_own_word() -> None:
    acquisition = asked()
    acquisition.on_line("Error: not enough GPUs available: 0 of 1", 0.0)
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
    acquisition = launched() if granted else asked()
    for line in said:
        acquisition.on_line(line, 0.0)
    acquisition.wrapper_status = status
    assert acquisition.why_it_ended().user_message


def test_a_kernel_that_has_died_too_often_says_that_its_gpu_is_given_back() -> None:
    acquisition = launched()
    acquisition.kernel_status = -11
    assert "given back" not in acquisition.why_it_ended(ran=True).user_message
    acquisition.died_too_often = True
    said = acquisition.why_it_ended(ran=True).user_message
    assert "it has died 3 times within a minute, so its GPU is given back" in said
