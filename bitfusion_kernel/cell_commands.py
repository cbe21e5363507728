"""Running the `%bitfusion` lines of one cell in the front.

Some answer from what the front knows, `acquire` waits for the GPU like any cell, and `pool`, `list_gpus`
and `health` run the client, whose output is shown as it comes.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import BitfusionError, ClientFailed, UsageError, WrongSetting
from bitfusion_kernel import commands, pool_table, status_report
from bitfusion_kernel.cells import Entry
from bitfusion_kernel.commands import Command

if TYPE_CHECKING:
    from bitfusion_kernel.front import Front

CLIENT_TIME_LIMIT = 60.0
"""Seconds `list_gpus` or `health` may take: the real client asks servers one by one."""

CLIENT_COMMANDS = {"pool": "list_gpus", "list_gpus": "list_gpus", "health": "health"}

SETTING_ATTRIBUTES = {
    "gpus": "gpus",
    "partial": "partial",
    "memory": "memory_mib",
    "filter": "filters",
    "server_list": "servers",
    "timeout": "timeout",
}
"""Settings that an administrator may lock, with the field of a request that each decides."""


def answer_now(front: Front, command: Command) -> str:
    """The text of a command that needs no waiting. Raises BitfusionError for a user's mistake."""
    if command.problem is not None:
        raise UsageError(command.problem, "run %bitfusion help to see what there is.")
    if command.name == "status":
        return status_report.text(front.starter, front.running)
    if command.name == "help":
        return commands.help_text()
    if command.name == "log":
        acquisition = front.starter.acquisition or front.starter.last_acquisition
        return "\n".join(acquisition.log) if acquisition else "No `bitfusion run` has been started yet."
    if command.name == "request":
        return _request(front, list(command.words))
    if command.name == "acquire":
        return "This kernel has its GPU already." if front.running else "The GPU is being asked for."
    return ""


def _request(front: Front, words: list[str]) -> str:
    """`request` shows, `request -n 2 -p 0.5` changes what the next start asks for."""
    starter = front.starter
    if not words:
        return f"The next start asks for {starter.request.describe()}."
    request, rest = parse_options(words)
    if rest:
        raise UsageError(
            f"can't read {' '.join(rest)!r} in %bitfusion request",
            "spell the size as the client does: %bitfusion request -n 1 -p 0.5",
        )
    before = starter.settings.request
    for name, attribute in SETTING_ATTRIBUTES.items():
        value = getattr(request, attribute)
        if name in starter.settings.locked and value != getattr(before, attribute):
            allowed = f"locked by your administrator; this kernel asks for {before.describe()}"
            raise WrongSetting(name, value, allowed, "%bitfusion request")
    starter.chosen = request
    if starter.acquisition is not None:
        return f"Noted: {request.describe()}. This kernel keeps what it has; restart it to get the new size."
    return f"The next cell asks for {request.describe()}."


class CommandCell:
    """One cell made of commands, from its start to its reply. The front holds at most one."""

    def __init__(self, front: Front, entry: Entry) -> None:
        assert entry.commands is not None
        self._front = front
        self.entry = entry
        self._left = list(entry.commands)
        self._client: subprocess.Popen[bytes] | None = None
        self._client_command: Command | None = None
        self._client_output = b""
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
                if command.problem is None and command.name == "acquire" and not self._front.running:
                    self._waiting = True
                    self._left.insert(0, command)
                    self._front.wait.begin()
                    self._front.wait.show_in(self.entry)
                    return
                self._front.publisher.stream(answer_now(self._front, command) + "\n", self._parent)
            except BitfusionError as error:
                self.fail(error)
                return
        self._front.line.finish_commands(self.entry, None)

    def fail(self, error: BitfusionError) -> None:
        """End with an error; what is left of the cell is not run."""
        self._end_client()
        self._front.line.finish_commands(self.entry, error)
        self._front.line.advance()

    def on_running(self) -> None:
        """The kernel is there: `acquire` is done."""
        if self._waiting:
            self._waiting = False
            self._left.pop(0)
            acquisition = self._front.starter.acquisition
            text = status_report.lease_text(acquisition) if acquisition else ""
            self._front.publisher.stream(text + "\n", self._parent)
            self.proceed()

    def interrupt(self) -> bool:
        """The user's interrupt; True if it was for a client that runs here."""
        if self._client is None:
            return False
        assert self._client_command is not None
        name = CLIENT_COMMANDS[self._client_command.name]
        self.fail(ClientFailed(f"bitfusion {name}", "interrupted", "run the cell again."))
        return True

    def _on_time_limit(self) -> None:
        self.fail(ClientFailed("", f"no answer within {CLIENT_TIME_LIMIT:.0f} s"))

    # -- the client ------------------------------------------------------------------------------

    def _start_client(self, command: Command) -> None:
        starter = self._front.starter
        client = starter.find_client()
        try:
            self._client = subprocess.Popen(
                [client.path, CLIENT_COMMANDS[command.name]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=starter.client_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise ClientFailed(client.path, error.strerror or "can't be started") from None
        assert self._client.stdout is not None
        os.set_blocking(self._client.stdout.fileno(), False)
        self._client_command = command
        self._client_output = b""
        self._front.loop.set_timer("client", time.monotonic() + CLIENT_TIME_LIMIT, self._on_time_limit)
        self._front.loop.on(self._client.stdout.fileno(), self._on_client_output)

    def _on_client_output(self) -> None:
        assert self._client is not None and self._client.stdout is not None and self._client_command is not None
        try:
            chunk = os.read(self._client.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        self._client_output += chunk
        if chunk:
            if self._client_command.name != "pool":
                self._front.publisher.stream(chunk.decode("utf-8", "replace"), self._parent)
            return
        name = self._client_command.name
        output = self._client_output.decode("utf-8", "replace")
        status = self._end_client()
        if status != 0:
            from bitfusion_client.client_output import error_from_output

            self.fail(error_from_output(output.splitlines(), status, None))
            return
        if name == "pool":
            self._front.publisher.show(pool_table.render(output), self._parent)
        self.proceed()
        self._front.line.advance()

    def _end_client(self) -> int:
        """Reap the client, killing it if it still runs; its exit code."""
        client, self._client = self._client, None
        self._front.loop.cancel_timer("client")
        if client is None:
            return 0
        assert client.stdout is not None
        self._front.loop.off(client.stdout.fileno())
        client.stdout.close()
        try:
            return client.wait(0.2)
        except subprocess.TimeoutExpired:
            client.kill()
            return client.wait()
