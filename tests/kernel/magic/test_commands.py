"""`%bitfusion` lines: what each subcommand answers, and what is said of a mistake."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest, UsageError, WrongSetting
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic import pool_table
from bitfusion_kernel.magic.commands import SUBCOMMANDS, AwaitGpu, RunClient, Text, answer, parse
from tests.kernel.magic.kernel_view import FakeKernel


def text_of(line: str, kernel: FakeKernel) -> str:
    found = answer(line, kernel)
    assert isinstance(found, Text)
    return found.text


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("", "status", []),
        ("status  # look", "status", []),
        ("request -n 2 -p 0.5", "request", ["-n", "2", "-p", "0.5"]),
        ("request --filter 'a=b c'", "request", ["--filter", "a=b c"]),
    ],
)
def test_a_line_is_a_subcommand_and_its_words(line: str, name: str, words: list[str]) -> None:
    assert parse(line) == (SUBCOMMANDS[name], words)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "realease",
            "'realease' is no %bitfusion command; there are: " + ", ".join(SUBCOMMANDS),
        ),
        ("pool now", "%bitfusion pool takes no arguments, but was given: now"),
        ("request 'x", "can't read \"request 'x\": No closing quotation"),
    ],
)
def test_a_mistake_is_told_in_words(line: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(line)
    assert error.value.headline == problem
    assert error.value.next_step == "run %bitfusion help to see what there is."


@given(st.text())
def test_no_text_is_too_strange_to_read(line: str) -> None:
    with contextlib.suppress(UsageError):
        parse(line)


def test_help_lists_every_command_with_its_meaning() -> None:
    lines = text_of("help", FakeKernel()).splitlines()
    assert [line.split()[1] for line in lines] == list(SUBCOMMANDS)
    assert "%bitfusion acquire    take the GPU now instead of with the first cell" in lines


def test_request_shows_and_changes_what_the_next_start_asks_for() -> None:
    kernel = FakeKernel()
    assert text_of("request", kernel) == "The next start asks for 1 GPU."
    assert text_of("request -n 2 -p 0.5", kernel) == "The next cell asks for 2 GPUs × 50 %."
    assert kernel.request == GpuRequest(gpus=2, partial=0.5)
    assert text_of("request", kernel) == "The next start asks for 2 GPUs × 50 %."


def test_request_while_a_lease_is_held_takes_effect_at_the_next_start() -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, kernel.request, 0.0)
    assert text_of("request -n 2", kernel) == (
        "Noted: 2 GPUs. This kernel keeps what it has; restart it to get the new size."
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [("request two", UsageError), ("request -n 0", InvalidRequest), ("request -n 3", WrongSetting)],
)
def test_a_request_that_is_wrong_or_locked_changes_nothing(line: str, error: type[Exception]) -> None:
    kernel = FakeKernel()
    kernel.locked = True
    with pytest.raises(error):
        answer(line, kernel)
    assert kernel.request == GpuRequest()


def test_acquire_waits_for_the_gpu_and_then_tells_what_was_got() -> None:
    kernel = FakeKernel()
    waits = answer("acquire", kernel)
    assert isinstance(waits, AwaitGpu)
    assert waits.meanwhile == "The GPU is being asked for."
    kernel.acquisition = Acquisition(1, GpuRequest(gpus=2), 0.0)
    kernel.running = True
    assert waits.when_running() == "Request   2 GPUs"
    assert text_of("acquire", kernel) == "This kernel has its GPU already."


def test_log_is_of_this_run_or_else_of_the_one_before() -> None:
    kernel = FakeKernel()
    assert text_of("log", kernel) == "No `bitfusion run` has been started yet."
    kernel.last_acquisition = Acquisition(1, GpuRequest(), 0.0)
    kernel.last_acquisition.log.extend(["a", "b"])
    assert text_of("log", kernel) == "a\nb"
    kernel.acquisition = Acquisition(2, GpuRequest(), 0.0)
    kernel.acquisition.log.append("c")
    assert text_of("log", kernel) == "c"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pool", RunClient("list_gpus", pool_table.render)),
        ("pool  # now", RunClient("list_gpus", pool_table.render)),
        ("list_gpus", RunClient("list_gpus")),
        ("health", RunClient("health")),
    ],
)
def test_the_clients_own_commands_are_run(line: str, found: RunClient) -> None:
    assert answer(line, FakeKernel()) == found
