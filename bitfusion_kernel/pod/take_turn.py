"""Waits until the pod's budget has room for a kernel, and then becomes its `bitfusion run`.

    python -I -S take_turn.py ENTRY WANTED -- CLIENT PROGRAM...

ENTRY is the kernel's file in the account, made and locked by its supervisor. WANTED is the JSON of `wanted`.
The supervisor takes this process for the wrapper from its start: it reads its output, ends it as it ends a
`bitfusion run` that waits, and frees the entry when it has ended. So whatever holds for the wait in the
pool's queue holds here, too.

Standard library and ours only, because the environment may be anything.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TAKE_TURN = os.path.abspath(__file__)

LOOK_EVERY = 0.2
"""Seconds between two looks at the account: some files that nobody else reads."""

LOCKED_PAUSE = 0.02
"""Seconds until the next look where somebody else was just deciding."""

DEFAULT_TIMEOUT = 1800.0
"""Seconds to wait where no `timeout` is set: as long as the client waits for the pool."""

# The part of the module above this line is all that is needed before sys.path is right.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod.budget import Budget


def command(python: str, entry: str, wanted_json: str, client: str, program: list[str]) -> list[str]:
    """The command line, for the supervisor to run in place of `bitfusion run`. Made by the proxy."""
    return [python, "-I", "-S", TAKE_TURN, entry, wanted_json, "--", client, *program]


def wanted(budget: Budget, request: GpuRequest, notebook: str, *, takes_what_is_left: bool) -> str:
    """What the program has to know, as JSON."""
    import json

    return json.dumps(
        {
            "budget": budget.request.to_json(),
            "units": budget.units,
            "request": request.to_json(),
            "notebook": notebook,
            "takes_what_is_left": takes_what_is_left,
        }
    )


def main(argv: list[str]) -> int:
    """Wait, then execute the client; returns only if that fails."""
    if len(argv) < 5 or argv[2] != "--":
        raise SystemExit("usage: take_turn.py ENTRY WANTED -- CLIENT PROGRAM...")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    entry, text, (client, *program) = argv[0], argv[1], argv[3:]
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(TAKE_TURN))))
    from bitfusion_client.command.command_line import run_command

    request = await_turn(entry, text)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and the client would inherit that
    try:
        os.execv(client, run_command(client, request, program))
    except OSError as error:
        _say(f"Error: cannot start {client}: {error.strerror}")
        return 127


def await_turn(path: str, text: str) -> GpuRequest:
    """Wait for the turn of the entry at `path`, whose file is held; what to ask the pool for.

    Prints what it waits for. Exits if the time limit or the supervisor ends.
    """
    import json

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod import account, turn_lines
    from bitfusion_kernel.pod.budget import Budget
    from bitfusion_kernel.pod.turns import Entry, Turn, turn_of

    values = json.loads(text)
    budget = Budget(GpuRequest.from_json(values["budget"]), values["units"])
    request = GpuRequest.from_json(values["request"])
    files = account.Account(os.path.dirname(path))
    parent = os.getppid()
    patience = request.timeout or DEFAULT_TIMEOUT
    deadline = time.monotonic() + patience
    mine: Entry | None = None
    told: Turn | None = None
    while True:
        try:
            lock = files.lock()
            if lock is None:
                time.sleep(LOCKED_PAUSE)
                continue
            try:
                others = files.entries(but=path, remove_dead=True)
                if mine is None:
                    number = 1 + max((entry.number for entry in others), default=0)
                    mine = Entry(
                        number, values["notebook"], request, values["takes_what_is_left"], False, time.time()
                    )
                    account.write_entry(path, mine)
                turn = turn_of(budget, mine, others)
                if turn.request is not None:
                    holding = Entry(
                        mine.number, mine.notebook, turn.request, mine.takes_what_is_left, True, time.time()
                    )
                    account.write_entry(path, holding)
            finally:
                os.close(lock)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _say(turn_lines.format_not_counted(f"{where}{error.strerror}", time.time()))
            return request
        if turn.request is not None:
            _say(turn_lines.format_taken(turn.request, time.time()))
            return turn.request
        if turn != told:
            _say(turn_lines.format_turn(turn, time.time()))
            told = turn
        if time.monotonic() > deadline:
            _say(turn_lines.format_timed_out(patience))
            raise SystemExit(1)
        if os.getppid() != parent:
            raise SystemExit(1)  # the supervisor is gone, and with it the lock
        time.sleep(LOOK_EVERY)


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
