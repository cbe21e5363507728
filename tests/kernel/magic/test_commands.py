"""`%bitfusion` lines: what each subcommand answers, and what is said of a mistake."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest, NeverSatisfiable, UsageError, WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic import pool_table
from bitfusion_kernel.magic.commands import SUBCOMMANDS, AskClient, AwaitGpu, RunClient, Text, answer, parse
from tests.kernel.magic.kernel_view import FakeKernel


def text_of(line: str, kernel: FakeKernel, pool: str | None = None) -> str:
    """The answer; `pool` is what `bitfusion list_gpus` says to whoever asks, None if it fails."""
    found = answer(line, kernel)
    if isinstance(found, AskClient):
        assert found.subcommand == "list_gpus"
        return found.conclude(pool)
    assert isinstance(found, Text)
    return found.text


POOL = """
- server 0 [10.0.0.1:56001]: running 1 tasks
   |- GPU 0: free memory 0 MiB / 16160 MiB
   |- GPU 1: free memory 16160 MiB / 16160 MiB
- server 1 [10.0.0.2:56001]: running 0 tasks
   |- GPU 0: free memory 8080 MiB / 32510 MiB
"""


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


@pytest.mark.parametrize("line", ["-h", "--help", "help", "status --help", "-h log"])
def test_help_is_asked_for_in_many_ways(line: str) -> None:
    found = text_of(line, FakeKernel())
    if "status" in line:
        assert found == "%bitfusion status     what this kernel asks for, holds, and waits for (the default)"
    else:
        assert found == text_of("help", FakeKernel())


@pytest.mark.parametrize("line", ["request -h", "request --help", "request -n 2 --help", "help request"])
def test_the_help_of_request_lists_its_options(line: str) -> None:
    kernel = FakeKernel()
    assert text_of(line, kernel).splitlines() == [
        "%bitfusion request    show or change the size, in the options of `bitfusion run`: "
        "request -n 2 -p 0.5; --reset: as set",
        "  -n N, --num_gpus N              GPUs, all from one server, e.g. 2",
        "  -p F, --partial F               share of each GPU's memory, e.g. 0.5",
        "  -m MEMORY, --gpu_memory MEMORY  memory of each GPU, instead of a share, e.g. 8Gi",
        "  --filter KEY=VALUE              only servers and devices with this property, "
        "e.g. device.name=Tesla",
        "  --server_list HOST:PORT;...     only these servers, e.g. 10.0.0.1:56001;10.0.0.2:56001",
        "  --timeout DURATION              how long a cell waits for GPUs, e.g. 30m",
        "  --reset                         what the settings say",
    ]
    assert kernel.request == GpuRequest()


def test_a_cell_magic_is_told_that_it_is_none() -> None:
    with pytest.raises(UsageError) as error:
        answer("%%bitfusion", FakeKernel())
    assert error.value.user_message == (
        "%%bitfusion is no cell magic: every cell of this kernel runs on its GPU\n"
        "What to do: leave that line out; %bitfusion help lists the commands."
    )


def test_request_shows_and_changes_what_the_next_start_asks_for() -> None:
    kernel = FakeKernel()
    assert text_of("request", kernel) == "The next start asks for 1 GPU."
    assert text_of("request -n 2 -p 0.5", kernel) == "The next cell asks for 2 GPUs × 50 %."
    assert kernel.request == GpuRequest(gpus=2, partial=0.5)
    assert text_of("request", kernel) == "The next start asks for 2 GPUs × 50 %."


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("-m 8Gi", "-n 5", "5 GPUs × 8192 MiB. Of each GPU 8192 MiB, as before; -p 1 takes whole GPUs."),
        ("-p 0.5", "-n 2", "2 GPUs × 50 %. Of each GPU 50 %, as before; -p 1 takes whole GPUs."),
        ("-p 0.5", "-n 2 -p 0.25", "2 GPUs × 25 %."),
        ("-p 0.5", "--timeout 2h", "1 GPU × 50 %, waiting at most 2h."),
        ("-m 8Gi", "-n 1", "1 GPU × 8192 MiB."),
        ("-n 3", "-n 2", "2 GPUs."),
        ("-p 1", "-n 2", "2 GPUs × 100 %."),
    ],
)
def test_more_gpus_keep_the_size_of_each_and_say_so(first: str, then: str, said: str) -> None:
    kernel = FakeKernel()
    text_of(f"request {first}", kernel)
    assert text_of(f"request {then}", kernel) == f"The next cell asks for {said}"


@pytest.mark.parametrize(
    ("words", "pool"),
    [
        ("-n 2", POOL),
        ("-n 2 -p 0.5", POOL),
        ("-m 30Gi", POOL),
        ("-n 2 --server_list 10.0.0.1:56001", POOL),
        ("-n 2 --server_list bf-server:56001", POOL),  # under another name than the list's
        ("--filter server.hostname=none", POOL),  # filters are the pool's to judge
        ("-n 9", None),
        ("-n 9", "an unknown form"),
        ("-n 9", "- server 0 [10.0.0.1:56001]: running 0 tasks\n"),
    ],
)
def test_what_some_server_may_give_is_noted(words: str, pool: str | None) -> None:
    kernel = FakeKernel()
    assert text_of(f"request {words}", kernel, pool).startswith("The next cell asks for ")
    assert kernel.request != GpuRequest()


@pytest.mark.parametrize(
    ("words", "asked", "largest"),
    [
        ("-n 3", "3 GPUs", "2 GPUs of 16160 MiB, 1 GPU of 32510 MiB"),
        ("-n 2 -m 30Gi", "2 GPUs × 30720 MiB", "2 GPUs of 16160 MiB, 1 GPU of 32510 MiB"),
        ("-m 40Gi", "1 GPU × 40960 MiB", "2 GPUs of 16160 MiB, 1 GPU of 32510 MiB"),
        (
            "-n 2 --server_list 10.0.0.2:56001",
            "2 GPUs, on 10.0.0.2:56001",
            "1 GPU of 32510 MiB",
        ),
    ],
)
def test_what_no_server_can_give_is_refused_when_it_is_asked_for(
    words: str, asked: str, largest: str
) -> None:
    kernel = FakeKernel()
    with pytest.raises(NeverSatisfiable) as error:
        text_of(f"request {words}", kernel, POOL)
    assert error.value.user_message.splitlines() == [
        "No server of the pool can ever give this.",
        f"Asked for: {asked}",
        f"Answer: the servers have: {largest}",
        "What to do: ask for fewer GPUs or less memory (`%bitfusion request -n 1`); "
        "`%bitfusion list_gpus` shows the servers.",
    ]
    assert kernel.request == GpuRequest()


def test_servers_that_are_alike_are_told_once() -> None:
    many = "".join(
        f"- server {n} [10.0.0.{n}:1]: running 0 tasks\n"
        f"   |- GPU 0: free memory 1 MiB / {16000 + n % 7} MiB\n"
        for n in range(200)
    )
    with pytest.raises(NeverSatisfiable) as error:
        text_of("request -n 2", FakeKernel(), many)
    assert error.value.answered == (
        "the servers have: 1 GPU of 16006 MiB, 1 GPU of 16005 MiB, 1 GPU of 16004 MiB, and 4 smaller sizes"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-m 8", 'Invalid value "8" for -m: must be at least 256 MiB; did you mean 8Gi?'),
        ("-p 50%", 'Invalid value "50%" for -p: must be greater than 0.0 and at most 1.0; write -p 0.5'),
    ],
)
def test_a_size_that_was_meant_otherwise_is_told_as_it_is_meant(words: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        answer(f"request {words}", FakeKernel())
    assert error.value.user_message == message


def test_request_while_a_lease_is_held_takes_effect_at_the_next_start() -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, kernel.request, 0.0)
    assert text_of("request -n 2", kernel) == (
        "Noted: 2 GPUs. This kernel keeps what it has; restart it to get the new size.\n"
        "Restarts of this kernel keep the new size. One that is shut down and started anew does not know it."
    )


def test_reset_goes_back_to_the_settings() -> None:
    kernel = FakeKernel()
    text_of("request -n 2", kernel)
    assert text_of("request --reset", kernel) == "The next cell asks for 1 GPU, as its settings say."
    assert kernel.request == GpuRequest()
    kernel.acquisition = Acquisition(1, kernel.request, 0.0)
    assert text_of("request --reset", kernel) == (
        "Noted: 1 GPU, as its settings say. This kernel keeps what it has; restart it to get the new size."
    )


def test_a_size_that_could_not_be_kept_for_the_restart_holds_until_then_and_says_so() -> None:
    kernel = FakeKernel()
    kernel.not_kept = OSError(28, "No space left on device", "/home/ada/.local/state/x")
    assert text_of("request -n 2", kernel) == (
        "The next cell asks for 2 GPUs.\n"
        "It could not be kept for a restart (No space left on device: /home/ada/.local/state/x)."
    )
    assert kernel.request == GpuRequest(2)
    kernel.acquisition = Acquisition(1, kernel.request, 0.0)
    assert text_of("request -n 3", kernel) == (
        "Noted: 3 GPUs. This kernel keeps what it has.\n"
        "It could not be kept for a restart (No space left on device: /home/ada/.local/state/x). "
        "Set BITFUSION_GPUS and BITFUSION_PARTIAL or BITFUSION_MEMORY instead, before it starts."
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [("request two", UsageError), ("request -n 0", InvalidRequest), ("request -n 3", WrongSetting)],
)
def test_a_request_that_is_wrong_or_locked_changes_nothing(line: str, error: type[Exception]) -> None:
    kernel = FakeKernel()
    kernel.locked = True
    with pytest.raises(error):
        text_of(line, kernel)
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
