"""The `bitfusion` command that pip installs: another client where there is one, else the stand-in.

So the stand-in can be on everybody's PATH and never hides a real client. It starts what `find_client` finds
for a kernel, and says so in one line on stderr. `find_client` knows the script that pip makes of it by the
name of this module, which the script imports.
"""

from __future__ import annotations

import os
import sys
from binascii import crc32

from bitfusion_client.command.find_client import COMMAND, ENVIRONMENT_NAME, FoundClient, clients, find_client
from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence
    from typing import NoReturn

STARTED = "BITFUSION_POOL_STARTED"
"""The variable by which a start of another client is known if that starts this command again."""
_DEEPEST = 16
"""So many programs may be started within each other, each by this command and another client."""
_STAND_IN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", COMMAND)
_INTERPRETER = "BITFUSION_PYTHON"


@dataclass(frozen=True, slots=True)
class Start:
    """What is noted of a start.

    Attributes:
        pid: The process that became the other client.
        arguments: Its arguments, in a form that tells others apart.
        depth: How many such starts it is within, this one included.
        tried: The clients that were started for it, one of which has started this command again.
    """

    pid: int
    arguments: str
    depth: int
    tried: tuple[str, ...]

    @classmethod
    def noted(cls, environ: Mapping[str, str]) -> Start | None:
        """What the environment says of the start that this command is within; None if there was none."""
        words = environ.get(STARTED, "").split(" ", 3)
        if len(words) != 4 or not (words[0].isdigit() and words[2].isdigit()):
            return None
        return cls(int(words[0]), words[1], int(words[2]), tuple(words[3].split(os.pathsep)))

    def text(self) -> str:
        """The value of the variable."""
        return f"{self.pid} {self.arguments} {self.depth} {os.pathsep.join(self.tried)}"

    def has_come_back(self, pid: int, parent: int, arguments: str) -> bool:
        """Whether this very process, or its parent with the same arguments, became the other client.

        Then that is a script which starts this command, and no client. A program that runs under a client is
        another process, with arguments of its own.
        """
        return self.pid == pid or (self.pid == parent and self.arguments == arguments)


def main() -> NoReturn:
    """Become the client. Called by the script that pip installs; never returns."""
    environ, arguments = dict(os.environ), sys.argv[1:]
    try:
        client = _choose(environ, arguments)
        if client.kind in ("path", "injected"):
            told = f"bitfusion: this is kubeflow-bitfusion's stand-in; it starts the client {client.path}\n"
            os.write(2, told.encode(errors="surrogateescape"))
        program = [client.path]
        if os.path.realpath(client.path) == os.path.realpath(_STAND_IN):
            program = [environ.get(_INTERPRETER) or sys.executable, "-I", "-S", client.path]
        try:
            os.execve(program[0], [*program, *arguments], environ)
        except OSError as error:
            why = f"{program[0]} cannot be started: {error.strerror}"
            raise ClientFailed("", why, f"set {ENVIRONMENT_NAME} to the path of another client") from None
    except BitfusionError as error:
        os.write(2, f"Error: {error.user_message}\n".encode(errors="surrogateescape"))
    sys.exit(1)


def _choose(environ: MutableMapping[str, str], arguments: Sequence[str]) -> FoundClient:
    """The client to become; unless it is the stand-in, the start is noted in `environ`.

    Raises:
        ClientNotFound: A setting names one that is not there.
        ClientFailed: A client and this command start each other on and on.
    """
    shown = f"{crc32(chr(0).join(arguments).encode(errors='surrogateescape')):x}"
    before = Start.noted(environ)
    depth = before.depth if before else 0
    tried: tuple[str, ...] = ()
    if before and before.has_come_back(os.getpid(), os.getppid(), shown):
        tried = before.tried
    elif before and depth >= _DEEPEST:
        why = f"{before.tried[-1]} has started this command {depth} times, so it is no client"
        raise ClientFailed("", why, f"take it off PATH, or set {ENVIRONMENT_NAME} to the path of a client")
    client = next(client for client in _candidates(environ) if client.path not in tried)
    if client.kind == "embedded":
        environ.pop(STARTED, None)
    else:
        environ[STARTED] = Start(os.getpid(), shown, depth + 1, (*tried, client.path)).text()
    return client


def _candidates(environ: Mapping[str, str]) -> Iterator[FoundClient]:
    if environ.get(ENVIRONMENT_NAME):
        yield find_client(None, environ)
    yield from clients(environ)
    yield FoundClient(_STAND_IN, "embedded", True)
