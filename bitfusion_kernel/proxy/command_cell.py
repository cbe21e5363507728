"""Running the `%bitfusion` lines of one cell in the proxy.

Some answer from what the proxy knows, `acquire` waits for the GPU like any cell, and `pool`, `list_gpus`
and `health` run the client, whose output is shown as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.client_output import error_from_output
from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import BitfusionError, ClientFailed, UsageError
from bitfusion_kernel.magic import grammar as commands
from bitfusion_kernel.magic import pool_table
from bitfusion_kernel.magic import status_text as status_report
from bitfusion_kernel.magic.grammar import Command
from bitfusion_kernel.proxy.client_command import TIME_LIMIT, ClientCall
from bitfusion_kernel.proxy.request_queue import QueuedRequest

if TYPE_CHECKING:
    from bitfusion_kernel.proxy.proxy import Proxy

CLIENT_COMMANDS = {"pool": "list_gpus", "list_gpus": "list_gpus", "health": "health"}


def answer_now(proxy: Proxy, command: Command) -> str:
    """The text of a command that needs no waiting. Raises BitfusionError for a user's mistake."""
    if command.problem is not None:
        raise UsageError(command.problem, "run %bitfusion help to see what there is.")
    if command.name == "status":
        return status_report.text(proxy.starter, proxy.running)
    if command.name == "help":
        return commands.help_text()
    if command.name == "log":
        acquisition = proxy.starter.acquisition or proxy.starter.last_acquisition
        return "\n".join(acquisition.log) if acquisition else "No `bitfusion run` has been started yet."
    if command.name == "request":
        return _request(proxy, list(command.words))
    if command.name == "acquire":
        return "This kernel has its GPU already." if proxy.running else "The GPU is being asked for."
    return ""


def _request(proxy: Proxy, words: list[str]) -> str:
    """`request` shows, `request -n 2 -p 0.5` changes what the next start asks for."""
    starter = proxy.starter
    if not words:
        return f"The next start asks for {starter.request.describe()}."
    request, rest = parse_options(words, base=starter.request)
    if rest:
        raise UsageError(
            f"can't read {' '.join(rest)!r} in %bitfusion request",
            "spell the size as the client does: %bitfusion request -n 1 -p 0.5",
        )
    starter.settings.check_unlocked(request)
    starter.chosen = request
    if starter.acquisition is not None:
        return f"Noted: {request.describe()}. This kernel keeps what it has; restart it to get the new size."
    return f"The next cell asks for {request.describe()}."


class CommandCell:
    """One cell made of commands, from its start to its reply. The proxy holds at most one."""

    def __init__(self, proxy: Proxy, entry: QueuedRequest) -> None:
        assert entry.commands is not None
        self._proxy = proxy
        self.entry = entry
        self._left = list(entry.commands)
        self._call: ClientCall | None = None
        self._waiting = False

    @property
    def _parent(self) -> dict[str, object]:
        return self.entry.message.header

    def proceed(self) -> None:
        """Run the next commands until one has to wait, or all are done."""
        while self._left:
            command = self._left.pop(0)
            try:
                if command.problem is None and command.name in CLIENT_COMMANDS:
                    self._start_client(command)
                    return
                if command.problem is None and command.name == "acquire" and not self._proxy.running:
                    self._waiting = True
                    self._left.insert(0, command)
                    self._proxy.wait.begin()
                    self._proxy.wait.show_in(self.entry)
                    return
                self._proxy.publisher.stream(answer_now(self._proxy, command) + "\n", self._parent)
            except BitfusionError as error:
                self.fail(error)
                return
        self._proxy.line.finish_commands(self.entry, None)

    def fail(self, error: BitfusionError) -> None:
        """End with an error; what is left of the cell is not run."""
        if self._call is not None:
            self._call.end()
            self._call = None
        self._left.clear()
        self._waiting = False
        self._proxy.line.refuse_soon(lambda: self._finish(error))

    def _finish(self, error: BitfusionError | None) -> None:
        self._proxy.line.finish_commands(self.entry, error)
        self._proxy.line.advance()

    def on_wait_over(self) -> None:
        """A wait has ended without a kernel; if it was the one before ours, ours begins now."""
        if self._waiting and self._proxy.wait.cell is self.entry:
            try:
                self._proxy.wait.begin()
            except BitfusionError as error:
                self.fail(error)

    def on_running(self) -> None:
        """The kernel is there: `acquire` is done."""
        if self._waiting:
            self._waiting = False
            self._left.pop(0)
            acquisition = self._proxy.starter.acquisition
            text = status_report.lease_text(acquisition) if acquisition else ""
            self._proxy.publisher.stream(text + "\n", self._parent)
            self.proceed()

    def interrupt(self) -> bool:
        """The user's interrupt; True if it was for a client that runs here."""
        if self._call is None:
            return False
        self.fail(ClientFailed("", "interrupted", "run the cell again."))
        return True

    # -- the client ------------------------------------------------------------------------------

    def _start_client(self, command: Command) -> None:
        starter = self._proxy.starter
        argv = [starter.find_client().path, CLIENT_COMMANDS[command.name]]

        def on_output(text: str) -> None:
            if command.name != "pool":
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
            if command.name == "pool":
                self._proxy.publisher.show(pool_table.render(output), self._parent)
            self.proceed()
            self._proxy.line.advance()

        self._call = ClientCall(self._proxy.loop, argv, starter.client_environment(), on_output, on_end)
