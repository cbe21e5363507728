"""The lines of a `%bitfusion` cell, one after the other: printed, awaited, or run by the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bitfusion_client.errors import BitfusionError, ClientNotFound
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic.commands import RESTARTS
from bitfusion_kernel.proxy.cells.client_command import ASK_LIMIT, ClientCommand, OnEnd, OnOutput
from bitfusion_kernel.proxy.cells.command_cell import CommandCell
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from tests.kernel.magic.kernel_view import FakeKernel
from tests.kernel.proxy.parts import WIRE, RecordingSocket, cell


class FakeClient:
    """A client that ends when the test says so."""

    def __init__(self, subcommand: str, on_output: OnOutput, on_end: OnEnd) -> None:
        self.argv = ["bitfusion", subcommand]
        self.on_output = on_output
        self._on_end = on_end
        self.output = ""
        self.ended = False

    def end(self) -> int:
        """Killed."""
        self.ended = True
        return -9

    def finish(self, status: int | None, output: str = "") -> None:
        """The client has ended."""
        self.output = output
        self._on_end(self, status)  # type: ignore[arg-type]  # a fake


class Made:
    """A command cell, and what it did."""

    def __init__(
        self, *lines: str, client_error: BitfusionError | None = None, allow_stdin: bool = True
    ) -> None:
        self.iopub = RecordingSocket()
        self.kernel = FakeKernel()
        self.clients: list[FakeClient] = []
        self.limits: list[float] = []
        self.client_error = client_error
        self.wait_error: BitfusionError | None = None
        self.did: list[Any] = []
        self.cell = CommandCell(
            cell(commands=list(lines), allow_stdin=allow_stdin),
            self,
            self.kernel,
            Publisher(WIRE, self.iopub),
            self._run_client,
            self,
            self,
            self,
        )

    def begin(self, on_done: Callable[[], None], *, others_came: bool = False) -> None:
        """As what gives back."""
        self.did.append("give back, as others came" if others_came else "give back")
        self.on_given_back = on_done

    def start(
        self,
        request: GpuRequest,
        kept: str,
        request_of: QueuedRequest,
        on_end: Callable[[BitfusionError | None], None],
    ) -> None:
        """As what changes the size."""
        self.did.append(f"{request.describe()} beside {kept}")
        self.on_resized = on_end

    def cancel(self, how: str) -> bool:
        """As what changes the size."""
        self.did.append(f"size {how}")
        return True

    def ask(self, request: QueuedRequest, prompt: str, on_answer: Callable[[str], None]) -> None:
        """As what asks the person."""
        self.did.append(prompt)
        self.answer = on_answer

    def forget(self, request: QueuedRequest) -> None:
        """As what asks the person."""
        self.did.append("forget")

    def _run_client(self, subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        if self.client_error is not None:
            raise self.client_error
        self.clients.append(FakeClient(subcommand, on_output, on_end))
        self.limits.append(limit)
        return self.clients[-1]  # type: ignore[return-value]  # a fake

    def wait_for_gpu(self, request: QueuedRequest) -> None:
        """As the scheduler."""
        self.did.append("wait")
        if self.wait_error is not None:
            raise self.wait_error

    def finish_commands(self, request: QueuedRequest) -> None:
        """As the scheduler."""
        self.did.append("finish")

    def fail_commands(self, request: QueuedRequest, error: BitfusionError) -> None:
        """As the scheduler."""
        self.did.append(type(error).__name__)

    def advance(self) -> None:
        """As the scheduler."""
        self.did.append("advance")

    def printed(self) -> str:
        """All text output."""
        return "".join(m.content["text"] for m in self.iopub.messages() if m.type == "stream")


POOL = "- server 0 [10.0.0.1:56001]: running 1 tasks\n   |- GPU 0: free memory 0 MiB / 16160 MiB\n"


@pytest.mark.parametrize(("status", "output"), [(0, "of an unknown form"), (1, "Error: no"), (None, "")])
def test_a_size_is_noted_when_the_client_has_been_asked_whatever_it_says(
    status: int | None, output: str
) -> None:
    made = Made("request -n 2", "request")
    made.cell.proceed()
    assert [client.argv[1] for client in made.clients] == ["list_gpus"]
    assert made.limits == [ASK_LIMIT]
    made.clients[0].on_output("- server 0")
    assert made.printed() == ""
    made.clients[0].finish(status, output)
    assert made.printed().splitlines() == [
        "The next cell asks for 2 GPUs.",
        RESTARTS,
        "The next start asks for 2 GPUs.",
    ]
    assert made.did == ["finish", "advance"]


def test_a_size_is_noted_where_there_is_no_client() -> None:
    made = Made("request -n 2", client_error=ClientNotFound(("/no/such",)))
    made.cell.proceed()
    assert made.printed() == f"The next cell asks for 2 GPUs.\n{RESTARTS}\n"
    assert made.did == ["finish"]


def test_a_size_that_no_server_has_ends_the_cell() -> None:
    made = Made("request -n 2", "request")
    made.cell.proceed()
    made.clients[0].finish(0, POOL)
    assert made.did == ["NeverSatisfiable"]
    assert made.kernel.request.gpus == 1


def test_an_interrupt_leaves_the_size_as_it_was() -> None:
    made = Made("request -n 2")
    made.cell.proceed()
    assert made.cell.interrupt()
    assert made.did == ["ClientFailed"]
    assert made.kernel.request.gpus == 1


def test_answers_that_are_known_are_printed_in_order() -> None:
    made = Made("request", "request --reset", "request")
    made.cell.proceed()
    assert made.printed().splitlines() == [
        "The next start asks for 1 GPU.",
        "The next cell asks for 1 GPU, as its settings say.",
        "The next start asks for 1 GPU.",
    ]
    assert made.did == ["finish"]


def test_a_mistake_ends_the_cell_and_the_lines_behind_do_not_run() -> None:
    made = Made("request", "relase", "request -n 2")
    made.cell.proceed()
    assert made.did == ["UsageError"]
    assert made.kernel.request.gpus == 1


def test_acquire_waits_for_the_kernel_and_the_lines_behind_wait_with_it() -> None:
    made = Made("acquire", "request")
    made.cell.proceed()
    assert made.did == ["wait"]
    made.cell.on_kernel_connected()
    assert made.did == ["wait", "finish"]
    assert made.printed().endswith("The next start asks for 1 GPU.\n")
    made.cell.on_kernel_connected()
    assert made.did == ["wait", "finish"]


def test_a_wait_that_was_another_ones_is_followed_by_its_own() -> None:
    made = Made("acquire")
    made.cell.on_wait_over()
    assert made.did == []
    made.cell.proceed()
    made.cell.on_wait_over()
    assert made.did == ["wait", "wait"]
    made.wait_error = ClientNotFound(("/no/such",))
    made.cell.on_wait_over()
    assert made.did[2:] == ["wait", "ClientNotFound"]
    made.cell.on_wait_over()
    assert len(made.did) == 4


def test_the_clients_output_is_shown_as_it_comes() -> None:
    made = Made("list_gpus", "health")
    made.cell.proceed()
    made.clients[0].on_output("GPU 0\n")
    assert made.printed() == "GPU 0\n"
    made.clients[0].finish(0, "GPU 0\n")
    assert [client.argv[1] for client in made.clients] == ["list_gpus", "health"]
    made.clients[1].finish(0)
    assert made.did == ["advance", "finish", "advance"]


def test_the_pool_is_shown_as_a_table_when_the_client_is_done() -> None:
    made = Made("pool")
    made.cell.proceed()
    made.clients[0].on_output("an unknown form")
    assert not made.iopub.sent
    made.clients[0].finish(0, "an unknown form")
    (shown,) = made.iopub.messages()
    assert (shown.type, shown.content["data"]["text/plain"]) == ("display_data", "an unknown form")


@pytest.mark.parametrize(
    ("status", "output", "error"),
    [
        (None, "", "ClientFailed"),
        (3, "odd", "ClientFailed"),
        (1, "Error: not enough GPUs available: 0 of 1", "NoGpusAvailable"),
    ],
)
def test_a_client_that_fails_ends_the_cell(status: int | None, output: str, error: str) -> None:
    made = Made("health", "request -n 2")
    made.cell.proceed()
    made.clients[0].finish(status, output)
    assert made.did == [error]
    assert made.kernel.request.gpus == 1


def test_a_client_that_cannot_be_started_ends_the_cell() -> None:
    made = Made("health", client_error=ClientNotFound(("/no/such",)))
    made.cell.proceed()
    assert made.did == ["ClientNotFound"]


def test_an_interrupt_ends_the_client_that_runs() -> None:
    made = Made("health")
    assert not made.cell.interrupt()
    made.cell.proceed()
    assert made.cell.interrupt()
    assert made.clients[0].ended
    assert made.did == ["ClientFailed"]
    assert not made.cell.interrupt()


def resizing(*lines: str) -> Made:
    """Lines for a kernel that runs on one GPU, of whose pool the client tells nothing."""
    made = Made(*lines)
    made.kernel.running = True
    made.kernel.acquisition = Acquisition(1, GpuRequest(1), 0.0)
    made.cell.proceed()
    made.clients[0].finish(1)
    return made


def test_another_size_comes_and_what_the_kernel_had_goes_back_after_it() -> None:
    made = resizing("request -n 2 --now -y", "request")
    assert made.did == ["2 GPUs beside 1 GPU"]
    assert made.cell.waits_for_gpu
    made.on_resized(None)
    assert made.did[1:] == ["give back, as others came"]
    assert made.kernel.request == GpuRequest(2)
    made.on_given_back()
    assert made.printed() == "1 GPU given back.\n"
    assert made.did[2:] == ["wait"]
    made.cell.on_kernel_connected()
    assert made.did[3:] == ["finish"]


def test_another_size_that_does_not_come_ends_the_cell_and_is_not_noted() -> None:
    made = resizing("request -n 2 --now -y", "request")
    made.on_resized(ClientNotFound(("/no/such",)))
    assert made.did[1:] == ["ClientNotFound"]
    assert made.kernel.request == GpuRequest(1)
    assert not made.cell.waits_for_gpu


def test_an_interrupt_ends_the_wait_for_another_size_and_the_cell_with_it() -> None:
    made = resizing("request -n 2 --now -y")
    assert made.cell.interrupt()
    assert made.did[1:] == ["size interrupted"]
    made.on_resized(ClientNotFound(("/no/such",)))
    assert made.did[2:] == ["ClientNotFound"]
    assert not made.cell.interrupt()


@pytest.mark.parametrize("typed", ["y", "n"])
def test_another_size_is_asked_for_when_a_person_says_so(typed: str) -> None:
    made = resizing("request -n 2 --now")
    assert made.did == ["Exchange 1 GPU for 2 GPUs? The variables of this notebook are lost. [y/N] "]
    made.answer(typed)
    assert made.did[1:] == (["2 GPUs beside 1 GPU"] if typed == "y" else ["finish", "advance"])
    assert made.kernel.request == GpuRequest(1)


def test_a_size_that_could_not_be_kept_for_a_restart_is_told() -> None:
    made = resizing("request -n 2 --now -y")
    made.kernel.not_kept = OSError(28, "No space left on device", "/run/user/0")
    made.on_resized(None)
    assert "It could not be kept for a restart (No space left on device" in made.printed()
