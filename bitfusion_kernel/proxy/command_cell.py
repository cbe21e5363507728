"""Running the `%bitfusion` lines of one cell in the proxy.

What each line means stands in `magic.commands`; here an answer that is known is printed, the wait for a GPU
is shown like that of any cell, and the bitfusion client runs with its output shown as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_kernel.magic import commands
from bitfusion_kernel.magic.commands import AwaitGpu, RunClient
from bitfusion_kernel.proxy.client_command import TIME_LIMIT, ClientCall
from bitfusion_kernel.proxy.request_queue import QueuedRequest

if TYPE_CHECKING:
    from bitfusion_kernel.proxy.proxy import Proxy


class CommandCell:
    """One cell made of commands, from its start to its reply. The proxy holds at most one."""

    def __init__(self, proxy: Proxy, entry: QueuedRequest) -> None:
        assert entry.commands is not None
        self._proxy = proxy
        self.entry = entry
        self._left = list(entry.commands)
        self._call: ClientCall | None = None
        self._awaited: AwaitGpu | None = None

    @property
    def _parent(self) -> dict[str, object]:
        return self.entry.message.header

    def proceed(self) -> None:
        """Run the next commands until one has to wait, or all are done."""
        while self._left:
            try:
                answer = commands.answer(self._left.pop(0), self._proxy.kernel_view)
                if isinstance(answer, RunClient):
                    self._start_client(answer)
                    return
                if isinstance(answer, AwaitGpu):
                    self._awaited = answer
                    self._proxy.wait.begin()
                    self._proxy.wait.show_in(self.entry)
                    return
            except BitfusionError as error:
                self.fail(error)
                return
            self._print(answer.text)
        self._proxy.line.finish_commands(self.entry, None)

    def _print(self, text: str) -> None:
        self._proxy.publisher.stream(text + "\n", self._parent)

    def fail(self, error: BitfusionError) -> None:
        """End with an error; what is left of the cell is not run."""
        if self._call is not None:
            self._call.end()
            self._call = None
        self._left.clear()
        self._awaited = None
        self._proxy.line.refuse_soon(lambda: self._finish(error))

    def _finish(self, error: BitfusionError | None) -> None:
        self._proxy.line.finish_commands(self.entry, error)
        self._proxy.line.advance()

    def on_wait_over(self) -> None:
        """A wait has ended without a kernel; if it was the one before ours, ours begins now."""
        if self._awaited is not None and self._proxy.wait.cell is self.entry:
            try:
                self._proxy.wait.begin()
            except BitfusionError as error:
                self.fail(error)

    def on_running(self) -> None:
        """The kernel is there: `acquire` is done."""
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            self._print(awaited.when_running())
            self.proceed()

    def interrupt(self) -> bool:
        """The user's interrupt; True if it was for a client that runs here."""
        if self._call is None:
            return False
        self.fail(ClientFailed("", "interrupted", "run the cell again."))
        return True

    # -- the client ------------------------------------------------------------------------------

    def _start_client(self, answer: RunClient) -> None:
        starter = self._proxy.starter
        argv = [starter.find_client().path, answer.subcommand]

        def on_output(text: str) -> None:
            if answer.render is None:
                self._proxy.publisher.stream(text, self._parent)

        def on_end(output: str, status: int | None) -> None:
            self._call = None
            if status is None:
                self.fail(
                    ClientFailed(" ".join(argv), f"no answer within {TIME_LIMIT:.0f} s", exit_status=None)
                )
                return
            if status != 0:
                self.fail(error_from_output(output.splitlines(), status, None))
                return
            if answer.render is not None:
                self._proxy.publisher.show(answer.render(output), self._parent)
            self.proceed()
            self._proxy.line.advance()

        self._call = ClientCall(self._proxy.loop, argv, starter.client_environment(), on_output, on_end)
