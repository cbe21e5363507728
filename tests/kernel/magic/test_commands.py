"""`%bitfusion` lines: what each subcommand answers, and what is said of a mistake."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.client_output import format_out_of_reach
from bitfusion_client.errors import InvalidRequest, NeverSatisfiable, UsageError, WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic import pool_table
from bitfusion_kernel.magic.commands import (
    RESTARTS,
    STATUS_LIMIT,
    SUBCOMMANDS,
    Answer,
    AskClient,
    AwaitGpu,
    GiveBack,
    KernelEnds,
    KernelRestarts,
    Resize,
    RunClient,
    Text,
    answer,
    parse,
)
from tests.kernel.magic.kernel_view import FakeKernel


def text_of(line: str, kernel: FakeKernel, pool: str | None = None) -> str:
    """The answer; `pool` is what `bitfusion list_gpus` says to whoever asks, None if it fails."""
    found = answer(line, kernel)
    if isinstance(found, AskClient):
        assert found.subcommand == "list_gpus"
        found = found.conclude(pool)
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
            "Unknown command 'realease'. Commands: " + ", ".join(SUBCOMMANDS),
        ),
        ("pool now", "%bitfusion pool takes no arguments, but was given: now"),
        ("request 'x", "can't read \"request 'x\": No closing quotation"),
    ],
)
def test_a_mistake_is_told_in_words(line: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(line)
    assert error.value.headline == problem
    assert error.value.next_step == "run %bitfusion help to list the commands."


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
        "%bitfusion request    show or change the size: request 0.5, or as `bitfusion run` has it, "
        "request -n 2 -p 0.5; --now: at once, --reset: as set",
        "  -n N, --num_gpus N              GPUs, all from one server, e.g. 2",
        "  -p F, --partial F               share of each GPU's memory, e.g. 0.5",
        "  -m MEMORY, --gpu_memory MEMORY  memory of each GPU, instead of a share, e.g. 8Gi",
        "  --filter KEY=VALUE              only servers and devices with this property, "
        "e.g. device.name=Tesla",
        "  --server_list HOST:PORT;...     only these servers, e.g. 10.0.0.1:56001;10.0.0.2:56001",
        "  --timeout DURATION              how long a cell waits for GPUs, e.g. 30m",
        "  --reset                         what the settings say",
        "  --now                           exchange the GPU for that at once; the variables are lost",
        "  -y, --yes                       with --now: without a question",
    ]
    assert kernel.request == GpuRequest()


def test_a_cell_magic_is_told_that_it_is_none() -> None:
    with pytest.raises(UsageError) as error:
        answer("%%bitfusion", FakeKernel())
    assert error.value.user_message == (
        "%%bitfusion is not a cell magic: every cell of this kernel runs on its GPU\n"
        "What to do: leave that line out; %bitfusion help lists the commands."
    )


def test_request_shows_and_changes_what_the_next_start_asks_for() -> None:
    kernel = FakeKernel()
    assert text_of("request", kernel) == "The next start asks for 1 GPU."
    assert text_of("request -n 2 -p 0.5", kernel) == f"The next cell asks for 2 GPUs × 50 %.\n{RESTARTS}"
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
    assert text_of(f"request {then}", kernel) == f"The next cell asks for {said}\n{RESTARTS}"


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ("0.5", GpuRequest(1, 0.5)),
        (".5", GpuRequest(1, 0.5)),
        ("1.0", GpuRequest(1, 1.0)),
        ("2", GpuRequest(2)),
        ("2 0.5", GpuRequest(2, 0.5)),
        ("-n 2 0.5", GpuRequest(2, 0.5)),
        ("0.5 --timeout 2h", GpuRequest(1, 0.5, timeout=7200.0)),
        ("8Gi", GpuRequest(1, None, 8192)),
        ("2 8GB", GpuRequest(2, None, 7629)),
    ],
)
def test_a_size_may_be_a_number_alone(words: str, request_: GpuRequest) -> None:
    kernel = FakeKernel()
    text_of(f"request {words}", kernel)
    assert kernel.request == request_


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("-p 2", InvalidRequest, "; for 2 GPUs write -n 2"),
        ("1.5", InvalidRequest, 'Invalid value "1.5" for -p: must be greater than 0.0 and at most 1.0'),
        ("50%", InvalidRequest, "; write -p 0.5"),
        ("1/2", InvalidRequest, "; write -p 0.5"),
        ("0,5", InvalidRequest, "; write -p 0.5"),
        ("0", InvalidRequest, 'Invalid value "0" for -n: must be a whole number from 1 to 1024'),
        ("8Mi", InvalidRequest, "must be at least 256 MiB"),
        ("half", UsageError, "can't read 'half' in %bitfusion request"),
        ("2 GPUs", UsageError, "can't read 'GPUs' in %bitfusion request"),
    ],
)
def test_a_number_that_is_no_size_is_told_as_with_its_option(
    words: str, error: type[Exception], said: str
) -> None:
    kernel = FakeKernel()
    with pytest.raises(error) as caught:
        text_of(f"request {words}", kernel)
    assert said in getattr(caught.value, "user_message", "")
    assert kernel.request == GpuRequest()


def test_a_number_of_gpus_alone_keeps_the_share_and_says_so() -> None:
    kernel = FakeKernel()
    text_of("request 2 0.5", kernel)
    kept = "Of each GPU 50 %, as before; -p 1 takes whole GPUs."
    assert text_of("request 1", kernel) == f"The next cell asks for 1 GPU × 50 %. {kept}\n{RESTARTS}"


@pytest.mark.parametrize(
    ("words", "asked"),
    [("-n 1 -p 0.5", "1 GPU × 50 %"), ("0.5", "1 GPU × 50 %"), ("--reset", "1 GPU, as its settings say")],
)
@pytest.mark.parametrize("now", ["", " --now", " --now -y"])
def test_a_request_while_one_waits_is_asked_for_at_once(words: str, asked: str, now: str) -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    said = f"This kernel asks for {asked}. It is a new request, at the end of the queue."
    assert text_of(f"request {words}{now}", kernel) == said
    assert kernel.asked_anew == 1


@pytest.mark.parametrize(
    ("running", "waiting", "line", "said"),
    [
        (False, False, "cancel", "This kernel waits for nothing."),
        (False, True, "cancel", "This kernel no longer waits for 2 GPUs."),
        (True, False, "cancel", "This kernel has its GPU; %bitfusion release gives it back."),
        (False, False, "release", "This kernel holds no GPU."),
        (False, True, "release -y", "This kernel waits for 2 GPUs; %bitfusion cancel ends that."),
    ],
)
def test_cancel_and_release_where_there_is_nothing_to_end(
    running: bool, waiting: bool, line: str, said: str
) -> None:
    kernel = FakeKernel()
    kernel.running = running
    if running or waiting:
        kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    assert text_of(line, kernel) == said
    assert kernel.cancelled == waiting * (line == "cancel")


RELEASED = "2 GPUs given back. The next cell takes a GPU again, and begins with no variables."


@pytest.mark.parametrize(
    ("line", "question", "done", "acquires"),
    [
        ("release", True, RELEASED, False),
        ("release -y", False, RELEASED, False),
    ],
)
def test_what_ends_the_kernel_is_asked_first_with_what_is_lost(
    line: str, question: bool, done: str, acquires: bool
) -> None:
    kernel = FakeKernel()
    kernel.running = True
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    found = answer(line, kernel)
    asked = "Give 2 GPUs back? The variables of this notebook are lost. [y/N] " if question else ""
    assert isinstance(found, GiveBack)
    assert (found.question, found.done, found.acquires) == (asked, done, acquires)
    assert found.meanwhile == f"Giving 2 GPUs back now. {done.partition('. ')[2]}"


@pytest.mark.parametrize("line", ["release -y", "acquire", "cancel", "request -p 0.5 --now -y"])
@pytest.mark.parametrize(
    ("state", "said"), [("releasing", "This kernel is shutting down."), ("parked", "This kernel is restart")]
)
def test_a_kernel_that_shuts_down_or_restarts_says_so(line: str, state: str, said: str) -> None:
    kernel = FakeKernel()
    kernel.running, kernel.acquisition = True, Acquisition(1, GpuRequest(2), 0.0)
    kernel.state["state"] = state
    with pytest.raises((KernelEnds, KernelRestarts)) as raised:
        answer(line, kernel)
    assert raised.value.user_message.startswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("release -y", "This kernel is already giving 2 GPUs back."),
        ("cancel", "This kernel is already giving 2 GPUs back."),
        ("acquire", "The previous request ends first; then the GPU is requested."),
        ("request -p 0.5", f"The next cell asks for 1 GPU × 50 %.\n{RESTARTS}"),
        ("request -p 0.5 --now -y", "This kernel asks for 1 GPU × 50 %."),
    ],
)
def test_what_is_being_given_back_is_neither_waited_for_nor_kept(line: str, said: str) -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    kernel.acquisition.granted = True
    kernel.state |= {"state": "releasing", "lease": {}}
    kernel.ends_what_waits = False
    kernel.cancel_wait = lambda: False  # type: ignore[method-assign]  # a fake
    found = answer(line, kernel)
    found = found.conclude(None) if isinstance(found, AskClient) else found
    assert (found.meanwhile if isinstance(found, AwaitGpu) else text_of(line, kernel)) == said


def test_after_a_cancel_there_is_nothing_to_cancel_or_release() -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    kernel.state["state"] = "releasing"
    kernel.cancel_wait = lambda: False  # type: ignore[method-assign]  # a fake
    assert text_of("cancel", kernel) == "This kernel waits for nothing."
    assert text_of("release -y", kernel) == "This kernel holds no GPU."


@pytest.mark.parametrize(
    ("granted", "acquire", "release"),
    [
        (False, "is already waiting for 2 GPUs: position 2 of 3.", "waits for 2 GPUs; "),
        (True, "already has 2 GPUs and is starting.", "starts on 2 GPUs; "),
    ],
)
def test_a_kernel_that_waits_or_starts_says_so_to_who_cannot_wait(
    granted: bool, acquire: str, release: str
) -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    kernel.acquisition.on_line("[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 2 of 3; held by a", 0)
    kernel.acquisition.granted = granted
    found = answer("acquire", kernel)
    assert isinstance(found, AwaitGpu)
    assert found.meanwhile == f"This kernel {acquire}"
    assert text_of("release", kernel) == f"This kernel {release}%bitfusion cancel ends that."


def test_the_status_of_a_holder_says_who_waits_where_the_pool_tells_it_in_time() -> None:
    kernel = FakeKernel()
    kernel.running, kernel.acquisition = True, Acquisition(1, GpuRequest(2), 0.0)
    kernel.state["state"] = "idle"
    found = answer("status", kernel)
    assert isinstance(found, AskClient)
    assert (found.subcommand, found.limit) == ("list_gpus", STATUS_LIMIT)
    told = found.conclude(FULL + WAITING + "- waiting, position 2: bob: b.ipynb\n")
    assert isinstance(told, Text)
    assert "Others wait   position 1: ada: a.ipynb\n              position 2: bob: b.ipynb\n" in told.text
    for without in (None, "no pool", FULL):
        told = found.conclude(without)
        assert isinstance(told, Text)
        assert told.text.startswith("Kernel    running on its GPU\n")
        assert "wait" not in told.text


def test_a_pool_that_is_lost_is_not_asked_who_waits() -> None:
    kernel = FakeKernel()
    kernel.running, kernel.acquisition = True, Acquisition(1, GpuRequest(2), 0.0)
    kernel.state["state"] = "idle"
    kernel.acquisition.on_line(f"[INFO] 2026-11-21T00:00:00Z {format_out_of_reach('a:1', 'no answer')}", 1e9)
    assert isinstance(answer("status", kernel), Text)


def resized(line: str, kernel: FakeKernel, list_gpus_output: str | None = None) -> Answer:
    """The answer to a line that wants another size now, for a kernel that runs on one whole GPU."""
    if kernel.acquisition is None:
        kernel.running = True
        kernel.acquisition = Acquisition(1, GpuRequest(1), 0.0)
        kernel.acquisition.server, kernel.acquisition.gpu_ids = "10.0.0.1:56001", (0,)
        kernel.acquisition.memory_mib = 16160
    found = answer(line, kernel)
    return found.conclude(list_gpus_output) if isinstance(found, AskClient) else found


FULL = """\
- server 0 [10.0.0.1:56001]: running 2 tasks
   |- GPU 0: free memory 0 MiB / 16160 MiB
   |- GPU 1: free memory 16160 MiB / 16160 MiB
"""
WAITING = "- waiting, position 1: ada: a.ipynb\n"
LOST = "The variables of this notebook are lost. [y/N] "
BACK_FIRST = "Give 1 GPU back and ask for 2 GPUs?"


@pytest.mark.parametrize(
    ("words", "output", "question", "done"),
    [
        ("-p 0.5 --now", FULL, f"Exchange 1 GPU for 1 GPU × 50 %? {LOST}", "1 GPU given back."),
        ("--now -p 0.5 -y", FULL, "", "1 GPU given back."),
        ("-p 0.5 --now", None, f"Exchange 1 GPU for 1 GPU × 50 %? {LOST}", "1 GPU given back."),
        ("-n 2 --now", FULL, f"{BACK_FIRST} {LOST}", None),
        ("-n 2 --now", FULL + WAITING, f"{BACK_FIRST} Somebody else waits already. {LOST}", None),
        ("-n 2 --now", FULL + WAITING * 2, f"{BACK_FIRST} 2 others wait already. {LOST}", None),
        ("-n 2 --now --yes", FULL + WAITING, "", None),
    ],
)  # fmt: skip
def test_another_size_comes_first_where_there_may_be_room_for_both(
    words: str, output: str | None, question: str, done: str | None
) -> None:
    kernel = FakeKernel()
    found = resized(f"request {words}", kernel, output)
    if isinstance(found, Resize):
        assert (found.kept, found.question) == ("1 GPU", question)
        found = found.give_back
    else:
        done = done or "1 GPU given back. Asking for 2 GPUs."
    assert isinstance(found, GiveBack)
    assert (found.question, found.done, found.acquires) == (question, done, True)
    assert kernel.request == GpuRequest(), "nothing is noted before it is meant"
    assert found.note() == ""
    assert kernel.request != GpuRequest()


def test_a_size_that_was_noted_before_is_taken_by_now_alone() -> None:
    kernel = FakeKernel()
    resized("help", kernel)
    kernel.request = GpuRequest(2)
    found = resized("request --now", kernel, "")
    assert isinstance(found, Resize)
    assert (found.request, found.question) == (GpuRequest(2), f"Exchange 1 GPU for 2 GPUs? {LOST}")


@pytest.mark.parametrize("words", ["-n 1 --now", "-p 1 --now -y", "--now", "1 --now"])
def test_the_size_that_it_has_already_is_said(words: str) -> None:
    assert resized(f"request {words}", FakeKernel(), FULL) == Text("This kernel already has 1 GPU.")


def test_a_kernel_that_has_given_back_while_the_client_was_asked_asks_for_it() -> None:
    kernel = FakeKernel()
    resized("help", kernel)
    found = answer("request 2 --now", kernel)
    kernel.acquisition, kernel.running = None, False
    assert isinstance(found, AskClient)
    assert isinstance(found.conclude(FULL), AwaitGpu)
    kernel = FakeKernel()
    resized("help", kernel)
    kernel.request = GpuRequest(2)
    found = answer("request --now", kernel)
    kernel.acquisition, kernel.running = None, False
    assert isinstance(found, AskClient)
    assert isinstance(found.conclude(FULL), AwaitGpu)


def test_now_for_what_is_left_of_a_pods_budget_gives_back_first() -> None:
    kernel = FakeKernel()
    kernel.takes_what_is_left = True
    found = resized("request --now", kernel)
    assert isinstance(found, GiveBack)
    assert found.acquires


def test_now_while_a_kernel_starts_asks_anew() -> None:
    kernel = FakeKernel()
    kernel.acquisition = Acquisition(1, GpuRequest(2), 0.0)
    kernel.acquisition.granted = True
    assert text_of("request 0.5 --now", kernel).startswith("This kernel asks for 1 GPU × 50 %.")
    assert kernel.asked_anew == 1


def test_cancel_ends_the_wait_for_another_size() -> None:
    kernel = FakeKernel()
    resized("help", kernel)
    kernel.resizes = True
    assert text_of("cancel", kernel) == "This kernel no longer waits for another size."
    assert text_of("cancel", kernel).startswith("This kernel has its GPU;")


@pytest.mark.parametrize("line", ["release now", "release -p 0.5", "release --now"])
def test_release_takes_nothing_but_yes(line: str) -> None:
    with pytest.raises(UsageError, match="in %bitfusion release"):
        answer(line, FakeKernel())


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
        "No server in the pool can ever satisfy this request.",
        f"Asked for: {asked}",
        f"Answer: the servers have: {largest}",
        "What to do: request fewer GPUs or less memory (`%bitfusion request -n 1`); "
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
    kernel.running = True
    assert text_of("request -n 2", kernel) == (
        "The new size is 2 GPUs. This kernel keeps its GPUs until it restarts; use --now to change at once.\n"
        "Restarts of this kernel keep the new size. One that is shut down and started anew, as VS Code does "
        "to restart, does not know it: for that set BITFUSION_GPUS and BITFUSION_PARTIAL or BITFUSION_MEMORY."
    )


def test_reset_goes_back_to_the_settings() -> None:
    kernel = FakeKernel()
    text_of("request -n 2", kernel)
    assert text_of("request --reset", kernel) == "The next cell asks for 1 GPU, as its settings say."
    assert kernel.request == GpuRequest()
    kernel.acquisition = Acquisition(1, kernel.request, 0.0)
    kernel.running = True
    assert text_of("request --reset", kernel) == (
        "The new size is 1 GPU, as its settings say. This kernel keeps its GPUs until it restarts; "
        "use --now to change at once."
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
    kernel.running = True
    assert text_of("request -n 3", kernel) == (
        "The new size is 3 GPUs. This kernel keeps its GPUs.\n"
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
    assert waits.meanwhile == "Requesting the GPU."
    kernel.acquisition = Acquisition(1, GpuRequest(gpus=2), 0.0)
    kernel.running = True
    assert waits.when_running() == "Request   2 GPUs"
    assert text_of("acquire", kernel) == "This kernel already has its GPU."


def test_log_is_of_this_run_or_else_of_the_one_before() -> None:
    kernel = FakeKernel()
    assert text_of("log", kernel) == "No `bitfusion run` has been started yet."
    kernel.last_acquisition = Acquisition(1, GpuRequest(), 0.0)
    kernel.last_acquisition.log.extend(["a", "b"])
    assert text_of("log", kernel) == "a\nb"
    kernel.acquisition = Acquisition(2, GpuRequest(), 0.0)
    kernel.acquisition.log.append("c")
    assert text_of("log", kernel) == "c"
    kernel.acquisition.kernel_output.extend(["d", "e"])
    assert text_of("log", kernel) == "c\nThe kernel's own last lines:\nd\ne"


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
