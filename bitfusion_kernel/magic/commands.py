"""The `%bitfusion` subcommands: name, help text, arguments and answer of each.

A new subcommand is one function here. The proxy calls `answer` for each line of a cell that holds only
`%bitfusion` lines, and for each line that the IPython extension sends from any other cell; it knows the three
kinds of answers, never a subcommand's name.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import NamedTuple

from bitfusion_client.command.command_line import parse_options
from bitfusion_client.errors import UsageError
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.magic import pod_budget, pool_table, status_text
from bitfusion_kernel.magic.cell import CELL_MAGIC
from bitfusion_kernel.magic.kernel_view import KernelView
from bitfusion_kernel.settings.table import REQUEST_SETTINGS


class Text(NamedTuple):
    """The answer is known."""

    text: str


class AwaitGpu(NamedTuple):
    """The answer comes when the kernel runs on its GPU, which is asked for now.

    Attributes:
        meanwhile: The answer for somebody who cannot wait.
        when_running: Called once the kernel runs; returns the answer.
    """

    meanwhile: str
    when_running: Callable[[], str]


class RunClient(NamedTuple):
    """The answer is the output of the bitfusion client.

    Attributes:
        subcommand: The one word after `bitfusion`.
        render: Makes a MIME bundle of the whole output. None: show the output as it comes.
    """

    subcommand: str
    render: Callable[[str], dict[str, str]] | None = None


class AskClient(NamedTuple):
    """The answer depends on what the bitfusion client says, which is not shown.

    Attributes:
        subcommand: The one word after `bitfusion`.
        conclude: Makes the answer from the client's whole output, or from None if it failed; raises
            BitfusionError.
    """

    subcommand: str
    conclude: Callable[[str | None], str]


Answer = Text | AwaitGpu | RunClient | AskClient


class Subcommand(NamedTuple):
    """One row of the table. `answer` gets the words after the name, none unless `takes_words`."""

    help: str
    takes_words: bool
    answer: Callable[[KernelView, list[str]], Answer]


HELP_OPTIONS = ("-h", "--help")
RESET = "--reset"
"""What `request` takes beside the options of `bitfusion run`."""

SUBCOMMANDS: dict[str, Subcommand] = {}
DEFAULT = "status"


def answer(line: str, kernel: KernelView) -> Answer:
    """The answer to the text after `%bitfusion` on one line.

    Raises:
        BitfusionError: The line has a mistake, or the subcommand cannot be carried out.
    """
    subcommand, words = parse(line)
    return subcommand.answer(kernel, words)


def parse(line: str) -> tuple[Subcommand, list[str]]:
    """The subcommand named on a line, and the words after the name. Raises UsageError."""
    next_step = "run %bitfusion help to see what there is."
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"can't read {line.strip()!r}: {error}", next_step) from None
    name, *others = words or [DEFAULT]
    if name in HELP_OPTIONS:
        return SUBCOMMANDS["help"], []
    if name == CELL_MAGIC:
        raise UsageError(
            f"{CELL_MAGIC} is no cell magic: every cell of this kernel runs on its GPU",
            "leave that line out; %bitfusion help lists the commands.",
        )
    if name not in SUBCOMMANDS:
        known = ", ".join(SUBCOMMANDS)
        raise UsageError(f"{name!r} is no %bitfusion command; there are: {known}", next_step)
    subcommand = SUBCOMMANDS[name]
    if any(word in HELP_OPTIONS for word in others):
        return SUBCOMMANDS["help"], [name]
    if others and not subcommand.takes_words:
        given = " ".join(others)
        raise UsageError(f"%bitfusion {name} takes no arguments, but was given: {given}", next_step)
    return subcommand, others


def _subcommand(
    name: str, help_text: str, *, takes_words: bool = False
) -> Callable[[Callable[[KernelView, list[str]], Answer]], None]:
    """Decorator: puts an answer into the table."""

    def add(function: Callable[[KernelView, list[str]], Answer]) -> None:
        SUBCOMMANDS[name] = Subcommand(help_text, takes_words, function)

    return add


@_subcommand("status", "what this kernel asks for, holds, and waits for (the default)")
def _status(kernel: KernelView, words: list[str]) -> Answer:
    return Text(status_text.render(kernel, time.monotonic(), time.time()))


@_subcommand("acquire", "take the GPU now instead of with the first cell")
def _acquire(kernel: KernelView, words: list[str]) -> Answer:
    if kernel.running:
        return Text("This kernel has its GPU already.")

    def what_was_got() -> str:
        acquisition = kernel.acquisition
        return status_text.render_lease(acquisition, time.monotonic()) if acquisition else ""

    return AwaitGpu("The GPU is being asked for.", what_was_got)


@_subcommand(
    "request",
    "show or change the size, in the options of `bitfusion run`: request -n 2 -p 0.5; --reset: as set",
    takes_words=True,
)
def _request(kernel: KernelView, words: list[str]) -> Answer:
    if not words:
        return Text(f"The next start asks for {_next_request(kernel)}.")
    if words == [RESET]:
        return _reset_request(kernel)
    before = kernel.request
    request, rest = parse_options(words, base=before, units=True)
    if rest:
        raise UsageError(
            f"can't read {' '.join(rest)!r} in %bitfusion request",
            "spell the size as the client does: %bitfusion request -n 1 -p 0.5",
        )
    kernel.check_request(request)

    def conclude(list_gpus_output: str | None) -> str:
        pool_table.check_satisfiable(request, list_gpus_output or "")
        return _note(kernel, before, request)

    return AskClient("list_gpus", conclude)


def _note(kernel: KernelView, before: GpuRequest, request: GpuRequest) -> str:
    """Choose the request; returns what to say of it."""
    trouble = ""
    try:
        kernel.choose_request(request)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        trouble = f"It could not be kept for a restart ({error.strerror}{where})."
    asked = f"{request.describe()}.{_kept_size(before, request)}"
    if kernel.acquisition is None:
        return "\n".join(filter(None, (f"The next cell asks for {asked}", trouble)))
    if trouble:
        return f"Noted: {asked} This kernel keeps what it has.\n{trouble} {_BY_SETTINGS}"
    return (
        f"Noted: {asked} This kernel keeps what it has; restart it to get the new size.\n"
        "Restarts of this kernel keep the new size. One that is shut down and started anew does not know it."
    )


_BY_SETTINGS = "Set BITFUSION_GPUS and BITFUSION_PARTIAL or BITFUSION_MEMORY instead, before it starts."


def _reset_request(kernel: KernelView) -> Answer:
    kernel.forget_request()
    asked = f"{_next_request(kernel)}, as its settings say."
    if kernel.acquisition is None:
        return Text(f"The next cell asks for {asked}")
    return Text(f"Noted: {asked} This kernel keeps what it has; restart it to get the new size.")


def _next_request(kernel: KernelView) -> str:
    standing = kernel.pod_budget
    if standing is None or not kernel.takes_what_is_left:
        return kernel.request.describe()
    return (
        f"what is left of this pod's budget (of {kernel.request.describe()} now {standing.describe_left()})"
    )


def _kept_size(before: GpuRequest, now: GpuRequest) -> str:
    """Tells who asks for more GPUs only that he gets as much of each as before, not whole ones."""
    size, size_now = (GpuRequest(1, each.partial, each.memory_mib) for each in (before, now))
    if now.gpus <= before.gpus or size != size_now or (size.partial in (None, 1) and size.memory_mib is None):
        return ""
    share = size.describe().partition(" × ")[2]
    return f" Of each GPU {share}, as before; -p 1 takes whole GPUs."


@_subcommand(
    "pool", "the pool as a table: servers, GPUs, who holds them, who waits; in a pod also its budget"
)
def _pool(kernel: KernelView, words: list[str]) -> Answer:
    standing = kernel.pod_budget
    if standing is None:
        return RunClient("list_gpus", pool_table.render)
    return RunClient(
        "list_gpus", lambda output: pod_budget.below(pool_table.render(output), standing, time.time())
    )


@_subcommand("list_gpus", "what `bitfusion list_gpus` prints")
def _list_gpus(kernel: KernelView, words: list[str]) -> Answer:
    return RunClient("list_gpus")


@_subcommand("health", "what `bitfusion health` prints")
def _health(kernel: KernelView, words: list[str]) -> Answer:
    return RunClient("health")


@_subcommand("log", "the lines that the `bitfusion run` of this kernel has printed")
def _log(kernel: KernelView, words: list[str]) -> Answer:
    acquisition = kernel.acquisition or kernel.last_acquisition
    return Text("\n".join(acquisition.log) if acquisition else "No `bitfusion run` has been started yet.")


@_subcommand("help", "this list; with a command's name, what it takes", takes_words=True)
def _help(kernel: KernelView, words: list[str]) -> Answer:
    name = words[0] if words else ""
    if not name:
        return Text("\n".join(map(_help_line, SUBCOMMANDS)))
    if name not in SUBCOMMANDS:
        raise UsageError(f"there is no %bitfusion {name}", "run %bitfusion help to see what there is.")
    return Text("\n".join([_help_line(name), *(request_options_help() if name == "request" else ())]))


def _help_line(name: str) -> str:
    return f"%bitfusion {name:<10} {SUBCOMMANDS[name].help}"


def request_options_help() -> list[str]:
    """What `%bitfusion request` takes, a line for each option."""
    rows = [
        (
            ", ".join(f"{flag} {setting.metavar}" for flag in setting.install_flags),
            f"{setting.help}, e.g. {setting.example}",
        )
        for setting in REQUEST_SETTINGS
    ]
    return [f"  {flags:<31} {text}" for flags, text in [*rows, (RESET, "what the settings say")]]
