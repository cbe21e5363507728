"""Running the `%bitfusion` lines of one cell in the proxy.

What each line means stands in `magic.commands`; here an answer that is known is printed, the wait for a GPU
is shown like that of any cell, and the bitfusion client runs with its output shown as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.magic import commands
from bitfusion_kernel.magic.commands import (
    AskClient,
    AwaitGpu,
    GiveBack,
    Resize,
    RunClient,
    Text,
    what_was_got,
)
from bitfusion_kernel.magic.kernel_view import KernelView
from bitfusion_kernel.proxy.cells.client_command import ASK_LIMIT, TIME_LIMIT, ClientCommand, RunClientCommand
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

_UNSEEN = {"text/plain": "", "text/html": ""}
"""For clients that don't know the type of what is shown for programs: they would say so in the notebook."""


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


class GivesBack(Protocol):
    """What ends the kernel and gives its GPUs back."""

    def begin(self, on_done: Callable[[], None], *, others_came: bool = False) -> None:
        """Do it; `on_done` is called when the pool has them. `others_came`: in place of them."""


class Resizes(Protocol):
    """What asks for another size while the kernel keeps what it has."""

    def start(
        self,
        request: GpuRequest,
        kept: str,
        cell: QueuedRequest,
        on_end: Callable[[BitfusionError | None], None],
    ) -> None:
        """Do it; `on_end` gets None when it has come. Raises BitfusionError."""

    def cancel(self, how: str) -> bool:
        """End it; whether there was one."""


class AsksPerson(Protocol):
    """What asks the person at a cell."""

    def ask(self, cell: QueuedRequest, prompt: str, on_answer: Callable[[str], None]) -> None:
        """Show a prompt; `on_answer` gets what is typed."""

    def forget(self, cell: QueuedRequest) -> None:
        """The answer is not wanted any more."""


class CommandCell:
    """One cell made of commands, from its start to its reply. `RunningCommands` has those that run.

    Args:
        cell: The request.
        scheduler: Ends the cell, and waits for a GPU on its behalf.
        kernel: The kernel as commands see it.
        publisher: Prints.
        run_client: Starts the bitfusion client.
        give_back: Gives the GPUs back.
        resize: Asks for others beside them.
        person: Is asked whether that is meant.
    """

    def __init__(
        self,
        cell: QueuedRequest,
        scheduler: CommandScheduler,
        kernel: KernelView,
        publisher: Publisher,
        run_client: RunClientCommand,
        give_back: GivesBack,
        resize: Resizes,
        person: AsksPerson,
    ) -> None:
        self.cell = cell
        self._scheduler = scheduler
        self._kernel = kernel
        self._publisher = publisher
        self._run_client = run_client
        self._give_back = give_back
        self._resize = resize
        self._person = person
        self._asks = False
        self._resizes = False
        self._left = list(cell.commands or ())
        self._client: ClientCommand | None = None
        self._awaited: AwaitGpu | None = None

    @property
    def waits_for_gpu(self) -> bool:
        """Whether it does nothing but wait for a GPU."""
        return self._awaited is not None or self._resizes

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
                if not self._conclude(answer):
                    return
            except BitfusionError as error:
                self.fail(error)
                return
        self._scheduler.finish_commands(self.cell)

    def _conclude(self, answer: Text | AwaitGpu | GiveBack | Resize) -> bool:
        """Whether the line is done; else `proceed` is called when it is. Raises BitfusionError."""
        if isinstance(answer, Text):
            self._print(answer.text)
            if answer.data is not None:
                self._publisher.show({**_UNSEEN, **answer.data}, self.cell.message.header)
            return True
        if isinstance(answer, AwaitGpu):
            self._awaited = answer
            self._scheduler.wait_for_gpu(self.cell)
        elif isinstance(answer, Resize):
            self._confirm(answer.question, partial(self._begin_resize, answer))
        else:
            self._confirm(answer.question, partial(self._begin_to_give_back, answer))
        return False

    # -- giving back -------------------------------------------------------------------------------

    def _confirm(self, question: str, begin: Callable[[], None]) -> None:
        if not question:
            begin()
            return
        if self.cell.is_unattended:
            raise commands.NobodyToAsk
        self._asks = True
        self._person.ask(self.cell, question, partial(self._on_answer, begin))

    def _on_answer(self, begin: Callable[[], None], typed: str) -> None:
        self._asks = False
        if typed.strip().lower() not in ("y", "yes"):
            self._print("Nothing was given back.")
            self.proceed()
            self._scheduler.advance()
            return
        try:
            begin()
        except BitfusionError as error:
            self.fail(error)

    def _begin_resize(self, answer: Resize) -> None:
        def on_end(error: BitfusionError | None) -> None:
            self._resizes = False
            if error is not None:
                self.fail(error)
            else:
                self._begin_to_give_back(answer.give_back, others_came=True)

        self._resize.start(answer.request, answer.kept, self.cell, on_end)
        self._resizes = True

    def _begin_to_give_back(self, answer: GiveBack, *, others_came: bool = False) -> None:
        if trouble := answer.note():
            self._print(trouble)

        def on_done() -> None:
            self._print(answer.done)
            if answer.acquires:
                try:
                    self._conclude(AwaitGpu("", lambda: what_was_got(self._kernel)))
                except BitfusionError as error:
                    self.fail(error)
                return
            self.proceed()

        self._give_back.begin(on_done, others_came=others_came)

    def _print(self, text: str) -> None:
        self._publisher.stream(text + "\n", self.cell.message.header)

    def fail(self, error: BitfusionError) -> None:
        """End with an error; what is left of the cell is not run."""
        if self._client is not None:
            self._client.end()
            self._client = None
        if self._asks:
            self._person.forget(self.cell)
            self._asks = False
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
        """The user's interrupt; whether it was for a client that runs here, or a wait for another size."""
        if self._resizes:
            return self._resize.cancel("interrupted")
        if self._client is None and not self._asks:
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
            if self._hear(answer, client.output if status == 0 else None):
                self.proceed()
                self._scheduler.advance()

        try:
            limit = answer.limit or ASK_LIMIT
            self._client = self._run_client(answer.subcommand, lambda _: None, on_end, limit)
        except BitfusionError:
            if self._hear(answer, None):
                self.proceed()

    def _hear(self, answer: AskClient, output: str | None) -> bool:
        """Whether the line is done; an error ends the cell."""
        try:
            return self._conclude(answer.conclude(output))
        except BitfusionError as error:
            self.fail(error)
            return False
