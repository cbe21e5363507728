"""Running the `%bitfusion` lines of one cell in the proxy.

What each line means stands in `magic.commands`; here an answer that is known is printed, the wait for a GPU
is shown like that of any cell, and the bitfusion client runs with its output shown as it comes.
"""

from __future__ import annotations

from typing import Protocol

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_kernel.magic import commands
from bitfusion_kernel.magic.commands import AskClient, AwaitGpu, RunClient
from bitfusion_kernel.magic.kernel_view import KernelView
from bitfusion_kernel.proxy.cells.client_command import ASK_LIMIT, TIME_LIMIT, ClientCommand, RunClientCommand
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.jupyter.publisher import Publisher


class CommandScheduler(Protocol):
    """What a command cell needs of the scheduler that runs it."""

    def wait_for_gpu(self, cell: QueuedRequest) -> None:
        """Ask for a GPU and show the wait in the cell. Raises BitfusionError."""

    def finish_commands(self, cell: QueuedRequest) -> None:
        """All lines have run."""

    def fail_commands(self, cell: QueuedRequest, error: BitfusionError) -> None:
        """A line has failed."""

    def advance(self) -> None:
        """Run what comes next."""


class CommandCell:
    """One cell made of commands, from its start to its reply. `RunningCommands` has those that run.

    Args:
        cell: The request.
        scheduler: Ends the cell, and waits for a GPU on its behalf.
        kernel: The kernel as commands see it.
        publisher: Prints.
        run_client: Starts the bitfusion client.
    """

    def __init__(
        self,
        cell: QueuedRequest,
        scheduler: CommandScheduler,
        kernel: KernelView,
        publisher: Publisher,
        run_client: RunClientCommand,
    ) -> None:
        self.cell = cell
        self._scheduler = scheduler
        self._kernel = kernel
        self._publisher = publisher
        self._run_client = run_client
        self._left = list(cell.commands or ())
        self._client: ClientCommand | None = None
        self._awaited: AwaitGpu | None = None

    @property
    def waits_for_gpu(self) -> bool:
        """Whether it does nothing but wait for a GPU."""
        return self._awaited is not None

    def proceed(self) -> None:
        """Run the next lines until one has to wait, or all are done."""
        while self._left:
            try:
                answer = commands.answer(self._left.pop(0), self._kernel)
                if isinstance(answer, RunClient):
                    self._start_client(answer)
                    return
                if isinstance(answer, AskClient):
                    self._ask_client(answer)
                    return
                if isinstance(answer, AwaitGpu):
                    self._awaited = answer
                    self._scheduler.wait_for_gpu(self.cell)
                    return
            except BitfusionError as error:
                self.fail(error)
                return
            self._print(answer.text)
        self._scheduler.finish_commands(self.cell)

    def _print(self, text: str) -> None:
        self._publisher.stream(text + "\n", self.cell.message.header)

    def fail(self, error: BitfusionError) -> None:
        """End with an error; what is left of the cell is not run."""
        if self._client is not None:
            self._client.end()
            self._client = None
        self._left.clear()
        self._awaited = None
        self._scheduler.fail_commands(self.cell, error)

    def on_wait_over(self) -> None:
        """A wait that was cancelled before this cell came has ended; the one for this cell begins now."""
        if self._awaited is not None:
            try:
                self._scheduler.wait_for_gpu(self.cell)
            except BitfusionError as error:
                self.fail(error)

    def on_kernel_connected(self) -> None:
        """The kernel is there: what waited for it is answered."""
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            self._print(awaited.when_running())
            self.proceed()

    def interrupt(self) -> bool:
        """The user's interrupt; whether it was for a client that runs here."""
        if self._client is None:
            return False
        self.fail(ClientFailed("", "interrupted", "run the cell again."))
        return True

    # -- the client ------------------------------------------------------------------------------

    def _start_client(self, answer: RunClient) -> None:
        def on_output(text: str) -> None:
            if answer.render is None:
                self._publisher.stream(text, self.cell.message.header)

        def on_end(client: ClientCommand, status: int | None) -> None:
            self._client = None
            if status is None:
                command = " ".join(client.argv)
                self.fail(ClientFailed(command, f"no answer within {TIME_LIMIT:.0f} s", exit_status=None))
                return
            if status != 0:
                self.fail(error_from_output(client.output.splitlines(), status, None))
                return
            if answer.render is not None:
                self._publisher.show(answer.render(client.output), self.cell.message.header)
            self.proceed()
            self._scheduler.advance()

        self._client = self._run_client(answer.subcommand, on_output, on_end, TIME_LIMIT)

    def _ask_client(self, answer: AskClient) -> None:
        def on_end(client: ClientCommand, status: int | None) -> None:
            self._client = None
            if self._conclude(answer, client.output if status == 0 else None):
                self.proceed()
                self._scheduler.advance()

        try:
            self._client = self._run_client(answer.subcommand, lambda _: None, on_end, ASK_LIMIT)
        except BitfusionError:
            if self._conclude(answer, None):
                self.proceed()

    def _conclude(self, answer: AskClient, output: str | None) -> bool:
        """Print the answer; False if it is an error, which ends the cell."""
        try:
            text = answer.conclude(output)
        except BitfusionError as error:
            self.fail(error)
            return False
        self._print(text)
        return True
