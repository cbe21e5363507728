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

from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import UsageError
from bitfusion_kernel.magic import pool_table, status_text
from bitfusion_kernel.magic.kernel_view import KernelView


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


Answer = Text | AwaitGpu | RunClient


class Subcommand(NamedTuple):
    """One row of the table. `answer` gets the words after the name, none unless `takes_words`."""

    help: str
    takes_words: bool
    answer: Callable[[KernelView, list[str]], Answer]


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
    if name not in SUBCOMMANDS:
        known = ", ".join(SUBCOMMANDS)
        raise UsageError(f"{name!r} is no %bitfusion command; there are: {known}", next_step)
    subcommand = SUBCOMMANDS[name]
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
    return Text(status_text.render(kernel, time.monotonic()))


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
    "show or change the size, in the options of `bitfusion run`: request -n 2 -p 0.5",
    takes_words=True,
)
def _request(kernel: KernelView, words: list[str]) -> Answer:
    if not words:
        return Text(f"The next start asks for {kernel.request.describe()}.")
    request, rest = parse_options(words, base=kernel.request)
    if rest:
        raise UsageError(
            f"can't read {' '.join(rest)!r} in %bitfusion request",
            "spell the size as the client does: %bitfusion request -n 1 -p 0.5",
        )
    kernel.choose_request(request)
    if kernel.acquisition is None:
        return Text(f"The next cell asks for {request.describe()}.")
    return Text(
        f"Noted: {request.describe()}. This kernel keeps what it has; restart it to get the new size."
    )


@_subcommand("pool", "the servers and GPUs of the pool as a table")
def _pool(kernel: KernelView, words: list[str]) -> Answer:
    return RunClient("list_gpus", pool_table.render)


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


@_subcommand("help", "this list")
def _help(kernel: KernelView, words: list[str]) -> Answer:
    return Text("\n".join(f"%bitfusion {name:<10} {row.help}" for name, row in SUBCOMMANDS.items()))
