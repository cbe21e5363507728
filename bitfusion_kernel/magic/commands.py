"""The `%bitfusion` subcommands: name, help text, arguments and answer of each.

A new subcommand is one function here. The proxy calls `answer` for each line of a cell that holds only
`%bitfusion` lines, and for each line that the IPython extension sends from any other cell; it knows the kinds
of answers, never a subcommand's name.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bitfusion_client.command.client_reports import parse_waiting
from bitfusion_client.command.command_line import parse_options
from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_client.kernel_state import states
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.magic import pod_budget, pool_table, resize_order, status_text
from bitfusion_kernel.magic.bare_sizes import with_flags
from bitfusion_kernel.magic.cell import CELL_MAGIC
from bitfusion_kernel.magic.kernel_view import KernelView
from bitfusion_kernel.settings.table import REQUEST_SETTINGS

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition


class NobodyToAsk(UsageError):
    """The client of the cell answers no questions."""

    def __init__(self) -> None:
        super().__init__(
            "this would end the kernel and lose its variables, and nobody can be asked here",
            "say that it is meant: add -y to the line.",
        )


class KernelEnds(BitfusionError):
    """A shutdown has come, so that nothing more can be changed."""

    headline = "This kernel is shutting down."
    next_step = "start it again."


class KernelRestarts(BitfusionError):
    """A restart has come: what there is goes to the next kernel."""

    headline = "This kernel is restarting; what it holds, or its position in the queue, is kept."
    next_step = "try again when it has restarted."


class Text(NamedTuple):
    """The answer is known.

    Attributes:
        text: To print.
        data: The same for programs, by MIME type; only a cell of its own leaves it in the notebook.
    """

    text: str
    data: dict[str, Any] | None = None


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
        limit: Seconds that the client may take; None: as long as for any answer.
    """

    subcommand: str
    conclude: Callable[[str | None], Text | AwaitGpu | GiveBack | Resize]
    limit: float | None = None


class GiveBack(NamedTuple):
    """The answer comes when the GPUs are back in the pool, which must be meant.

    Attributes:
        question: What is asked before, with what will be lost; empty where that has been confirmed.
        done: The answer.
        acquires: Whether GPUs are asked for at once again.
        note: Called when it is meant, before; returns what is to be said of that, or nothing.
        meanwhile: The answer for somebody who cannot wait.
    """

    question: str
    done: str
    acquires: bool = False
    note: Callable[[], str] = str
    meanwhile: str = ""


class Resize(NamedTuple):
    """The answer comes when the kernel has other GPUs in place of those that it has, or keeps these.

    Attributes:
        request: The other size.
        kept: What it has, as text.
        question: What is asked before, as above.
        give_back: What follows when they have come; and all that is done in the middle of a cell.
        meanwhile: The answer for somebody who cannot wait.
    """

    request: GpuRequest
    kept: str
    question: str
    give_back: GiveBack
    meanwhile: str = ""


Answer = Text | AwaitGpu | RunClient | AskClient | GiveBack | Resize


class Subcommand(NamedTuple):
    """One row of the table. `answer` gets the words after the name, none unless `takes_words`."""

    help: str
    takes_words: bool
    answer: Callable[[KernelView, list[str]], Answer]


HELP_OPTIONS = ("-h", "--help")
RESET, NOW = "--reset", "--now"
"""What `request` takes beside the options of `bitfusion run`."""
SURE = ("-y", "--yes")
"""What `release` and `request --now` take where nobody can be asked."""

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
    next_step = "run %bitfusion help to list the commands."
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"can't read {line.strip()!r}: {error}", next_step) from None
    name, *others = words or [DEFAULT]
    if name in HELP_OPTIONS:
        return SUBCOMMANDS["help"], []
    if name == CELL_MAGIC:
        raise UsageError(
            f"{CELL_MAGIC} is not a cell magic: every cell of this kernel runs on its GPU",
            "leave that line out; %bitfusion help lists the commands.",
        )
    if name not in SUBCOMMANDS:
        known = ", ".join(SUBCOMMANDS)
        raise UsageError(f"Unknown command {name!r}. Commands: {known}", next_step)
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
    if kernel.state["state"] in (states.RUNNING, states.IDLE) and not _pool_is_lost(kernel):
        return AskClient("list_gpus", partial(_status_with, kernel), STATUS_LIMIT)
    return _status_with(kernel, None)


STATUS_LIMIT = 2.0
"""Seconds for the pool to tell who waits; without that the status comes without it."""


def _pool_is_lost(kernel: KernelView) -> bool:
    outage = None if kernel.acquisition is None else kernel.acquisition.outage
    return outage is not None and outage.lasts


def _status_with(kernel: KernelView, list_gpus_output: str | None) -> Text:
    """The status, for a holder with those who wait in the pool, as far as its client tells them."""
    waiting = pool_table.first_of(parse_waiting(list_gpus_output or ""))
    text = status_text.render(kernel, time.monotonic(), time.time(), waiting)
    return Text(text, {states.MIME_TYPE: kernel.state})


@_subcommand("acquire", "take the GPU now instead of with the first cell")
def _acquire(kernel: KernelView, words: list[str]) -> Answer:
    _check_stays(kernel)
    if kernel.running:
        return Text("This kernel already has its GPU.")
    return AwaitGpu(_asked_already(kernel), partial(what_was_got, kernel))


def _check_stays(kernel: KernelView) -> None:
    """Raises KernelEnds, KernelRestarts."""
    state = kernel.state["state"]
    if state == states.PARKED:
        raise KernelRestarts
    if state == states.RELEASING and kernel.running:
        raise KernelEnds


def _is_given_back(kernel: KernelView) -> bool:
    """Whether what it has, or its position in the queue, is on its way back."""
    return kernel.state["state"] == states.RELEASING and not kernel.running


def _gives_gpus_back(kernel: KernelView) -> bool:
    """Whether what is on its way back is GPUs, and no position."""
    return _is_given_back(kernel) and kernel.state["lease"] is not None


def _asked_already(kernel: KernelView) -> str:
    """What happens to somebody's wish for a GPU, where the kernel does not run."""
    acquisition = kernel.acquisition
    if acquisition is None:
        return "Requesting the GPU."
    if _is_given_back(kernel):
        return "The previous request ends first; then the GPU is requested."
    asked = acquisition.asked_for
    if acquisition.granted:
        return f"This kernel already has {asked} and is starting."
    standing = "" if acquisition.queue is None else acquisition.queue.standing
    return f"This kernel is already waiting for {asked}{standing and f': {standing}'}."


def what_was_got(kernel: KernelView) -> str:
    """What is said of a lease that has come."""
    acquisition = kernel.acquisition
    return status_text.render_lease(acquisition, time.monotonic()) if acquisition else ""


@_subcommand("cancel", "stop waiting for a GPU")
def _cancel(kernel: KernelView, words: list[str]) -> Answer:
    _check_stays(kernel)
    acquisition = kernel.acquisition
    if kernel.cancel_resize():
        return Text("This kernel no longer waits for another size.")
    if acquisition is not None and not kernel.running and kernel.cancel_wait():
        return Text(f"This kernel no longer waits for {acquisition.asked_for}.")
    has = "has its GPU; %bitfusion release gives it back" if kernel.running else "waits for nothing"
    if acquisition is not None and _gives_gpus_back(kernel):
        has = f"is already giving {acquisition.asked_for} back"
    return Text(f"This kernel {has}.")


@_subcommand(
    "release",
    "give the GPU back and keep the notebook; -y: without a question",
    takes_words=True,
)
def _release(kernel: KernelView, words: list[str]) -> Answer:
    if not_known := [word for word in words if word not in SURE]:
        raise UsageError(
            f"can't read {' '.join(not_known)!r} in %bitfusion release",
            "it takes nothing but -y, which gives the GPU back without a question.",
        )
    acquisition = kernel.acquisition
    if acquisition is None or (_is_given_back(kernel) and not _gives_gpus_back(kernel)):
        return Text("This kernel holds no GPU.")
    if _gives_gpus_back(kernel):
        return Text(f"This kernel is already giving {acquisition.asked_for} back.")
    _check_stays(kernel)
    if not kernel.running:
        does = "starts on" if acquisition.granted else "waits for"
        return Text(f"This kernel {does} {acquisition.asked_for}; %bitfusion cancel ends that.")
    done = "The next cell takes a GPU again, and begins with no variables."
    return GiveBack(
        _what_is_lost(acquisition, words),
        f"{_given_back(acquisition)} {done}",
        meanwhile=f"Giving {acquisition.request.describe()} back now. {done}",
    )


def _what_is_lost(acquisition: Acquisition, words: list[str]) -> str:
    if any(word in SURE for word in words):
        return ""
    return f"Give {acquisition.request.describe()} back? {_LOST}"


def _given_back(acquisition: Acquisition) -> str:
    return f"{acquisition.request.describe()} given back."


@_subcommand(
    "request",
    "show or change the size: request 0.5, or as `bitfusion run` has it, request -n 2 -p 0.5; "
    "--now: at once, --reset: as set",
    takes_words=True,
)
def _request(kernel: KernelView, words: list[str]) -> Answer:
    now, words = NOW in words, [word for word in words if word != NOW]
    if now:
        _check_stays(kernel)
    sure = [word for word in words if word in SURE]
    words = [word for word in words if word not in SURE] if now else words
    if not words and not now:
        return Text(f"The next start asks for {_next_request(kernel)}.")
    if reset := words == [RESET]:
        kernel.forget_request()
        words = []
    if not words and now and kernel.running and not kernel.takes_what_is_left:
        return AskClient("list_gpus", partial(_resize, kernel, kernel.request, str, sure))
    if not words:
        said = ", as its settings say" if reset else ""
        return _after_choice(kernel, f"{_next_request(kernel)}{said}.", now=now, sure=sure)
    before = kernel.request
    options = with_flags(words)
    request, rest = parse_options(options, base=before, units=True)
    if rest:
        raise UsageError(
            f"can't read {' '.join(rest)!r} in %bitfusion request",
            "spell the size as the client does: %bitfusion request -n 1 -p 0.5",
        )
    kernel.check_request(request)

    def conclude(list_gpus_output: str | None) -> Text | AwaitGpu | GiveBack | Resize:
        pool_table.check_satisfiable(request, list_gpus_output or "")
        if now and kernel.running:
            return _resize(kernel, request, partial(_choose, kernel, request), sure, list_gpus_output)
        trouble = _choose(kernel, request)
        asked = f"{request.describe()}.{_kept_size(before, request, is_bare=options != words)}"
        return _after_choice(kernel, asked, now=now, sure=sure, trouble=trouble)

    return AskClient("list_gpus", conclude)


def _resize(
    kernel: KernelView,
    request: GpuRequest,
    note: Callable[[], str],
    sure: list[str],
    list_gpus_output: str | None,
) -> Text | AwaitGpu | GiveBack | Resize:
    """Other GPUs in place of those that the kernel has, which it keeps meanwhile if there may be room.

    `note` has restarts ask for them; it returns what is to be said of that, or nothing.
    """
    _check_stays(kernel)
    held, wants, output = kernel.acquisition, request.describe(), list_gpus_output or ""
    if held is None or not kernel.running:  # given back while the client was asked
        told = "\n".join(filter(None, (f"This kernel asks for {wants}.", note())))
        return AwaitGpu(told, partial(what_was_got, kernel))
    has = held.request.describe()
    if request.same_as(held.request):
        return Text("\n".join(filter(None, (f"This kernel already has {has}.", note()))))
    first = resize_order.gives_back_first(request, held, output, kernel.pod_budget)
    if first:
        question = f"Give {has} back and ask for {wants}? {_others_wait(len(parse_waiting(output)))}"
    else:
        question = f"Exchange {has} for {wants}? "
    done = f"{has} given back. Asking for {wants}." if first else f"{has} given back."
    meanwhile = f"Giving {has} back now, and asking for {wants}: {_ANEW}."
    give_back = GiveBack("" if sure else f"{question}{_LOST}", done, True, note, meanwhile)
    if first:
        return give_back
    from bitfusion_kernel.gpu.acquisition import BESIDE_LIMIT

    keeps = f"It keeps {has} until that has come, for {BESIDE_LIMIT:.0f} s at most; then {_ANEW}."
    meanwhile = f"This kernel asks for {wants}. {keeps}"
    return Resize(request, has, give_back.question, give_back, meanwhile)


_ANEW = "the notebook begins anew, with no variables"


_LOST = "The variables of this notebook are lost. [y/N] "


def _others_wait(count: int) -> str:
    if not count:
        return ""
    return "Somebody else waits already. " if count == 1 else f"{count} others wait already. "


def _choose(kernel: KernelView, request: GpuRequest) -> str:
    """Choose the request; returns what is wrong with keeping it for a restart, or nothing."""
    try:
        kernel.choose_request(request)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return f"It could not be kept for a restart ({error.strerror}{where})."
    return ""


_SETTINGS = "BITFUSION_GPUS and BITFUSION_PARTIAL or BITFUSION_MEMORY"
_BY_SETTINGS = f"Set {_SETTINGS} instead, before it starts."
RESTARTS = (
    "Restarts of this kernel keep the new size. One that is shut down and started anew, as VS Code does to "
    f"restart, does not know it: for that set {_SETTINGS}."
)


def _after_choice(
    kernel: KernelView, asked: str, *, now: bool, sure: list[str], trouble: str | None = None
) -> Text | AwaitGpu | GiveBack:
    """What follows from another size: for the next cell, for one that waits, or at once.

    Args:
        kernel: The one that is meant.
        asked: What is asked for from now on, as a sentence's end.
        now: Whether the GPU that is held is given up for it.
        sure: What confirms that.
        trouble: Why a restart will not know the size; empty if it will, None where settings tell it.
    """
    acquisition = kernel.acquisition
    restarts = RESTARTS if trouble == "" else trouble
    waits = acquisition is not None and not kernel.running and (now or not acquisition.granted)
    if waits and kernel.ask_anew():
        told = f"This kernel asks for {asked} It is a new request, at the end of the queue."
        return Text("\n".join(filter(None, (told, trouble))))
    if acquisition is None or _is_given_back(kernel):
        if now:
            return AwaitGpu(f"This kernel asks for {asked}", partial(what_was_got, kernel))
        return Text("\n".join(filter(None, (f"The next cell asks for {asked}", restarts))))
    if now and kernel.running:
        has = acquisition.request.describe()
        return GiveBack(
            _what_is_lost(acquisition, sure),
            f"{_given_back(acquisition)} Asking for {asked}",
            True,
            meanwhile=f"Giving {has} back now, and asking for {asked} {_ANEW.capitalize()}.",
        )
    keeps = "This kernel keeps its GPUs"
    if trouble:
        return Text(f"The new size is {asked} {keeps}.\n{trouble} {_BY_SETTINGS}")
    noted = f"The new size is {asked} {keeps} until it restarts; use --now to change at once."
    return Text("\n".join(filter(None, (noted, restarts))))


def _next_request(kernel: KernelView) -> str:
    standing = kernel.pod_budget
    if standing is None or not kernel.takes_what_is_left:
        return kernel.request.describe()
    return (
        f"what is left of this pod's budget (of {kernel.request.describe()} now {standing.describe_left()})"
    )


def _kept_size(before: GpuRequest, now: GpuRequest, *, is_bare: bool) -> str:
    """Tells who asks for GPUs only that he gets as much of each as before, not whole ones.

    Who has fewer of them in the client's own options knows.
    """
    size, size_now = (GpuRequest(1, each.partial, each.memory_mib) for each in (before, now))
    if now.gpus <= before.gpus and not is_bare:
        return ""
    if size != size_now or (size.partial in (None, 1) and size.memory_mib is None):
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


@_subcommand(
    "log", "the lines that the `bitfusion run` of this kernel has printed, and the kernel's last ones"
)
def _log(kernel: KernelView, words: list[str]) -> Answer:
    acquisition = kernel.acquisition or kernel.last_acquisition
    if acquisition is None:
        return Text("No `bitfusion run` has been started yet.")
    kernels = (
        ["The kernel's own last lines:", *acquisition.kernel_output] if acquisition.kernel_output else []
    )
    return Text("\n".join([*acquisition.log, *kernels]))


@_subcommand("help", "this list; with a command's name, what it takes", takes_words=True)
def _help(kernel: KernelView, words: list[str]) -> Answer:
    name = words[0] if words else ""
    if not name:
        return Text("\n".join(map(_help_line, SUBCOMMANDS)))
    if name not in SUBCOMMANDS:
        raise UsageError(f"Unknown command {name!r}", "run %bitfusion help to list the commands.")
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
    rows += [
        (RESET, "what the settings say"),
        (NOW, "exchange the GPU for that at once; the variables are lost"),
        (", ".join(SURE), "with --now: without a question"),
    ]
    return [f"  {flags:<31} {text}" for flags, text in rows]
