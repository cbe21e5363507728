"""Whose turn it is: what the kernels of a container hold and wait for, and what the next one gets. Pure."""

from __future__ import annotations

import json

from bitfusion_client.clock_time import clock_time
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line
from bitfusion_client.request.gpu_request import GpuRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_kernel.pod.budget import Budget

LONGEST_NAME = 80  # characters of a notebook's name that are shown
NAMELESS = "a kernel without a notebook"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one kernel says in the account.

    Attributes:
        number: Its place in the order of arrival.
        notebook: As Jupyter names it.
        request: What it holds or waits for.
        takes_what_is_left: Whether it was given no size: while it waits nobody knows what it will get.
        holds: Whether its turn has come: then `bitfusion run` has been asked, or has the GPUs.
        since: When it came, or when its turn came; in seconds since the epoch.
    """

    number: int
    notebook: str
    request: GpuRequest
    takes_what_is_left: bool
    holds: bool
    since: float

    def describe(self, now: float) -> str:
        """``digits.ipynb (1 GPU × 50 %, since 14:03)``."""
        return f"{self.notebook} ({self.size()}, since {clock_time(self.since, now)})"

    def size(self) -> str:
        """What it holds or waits for."""
        return WHAT_IS_LEFT if self.takes_what_is_left and not self.holds else self.request.describe()

    def to_json(self) -> str:
        """One line that `entry_from_json` reads; of the request only the size, whatever its length."""
        values = {name: getattr(self, name) for name in self.__match_args__}
        size = GpuRequest(self.request.gpus, self.request.partial, self.request.memory_mib)
        return json.dumps({**values, "request": size.to_json()})


WHAT_IS_LEFT = "what is left"


def entry_from_json(text: str | bytes) -> Entry | None:
    """The entry, or None for anything else."""
    try:
        values = json.loads(text)
        number, since = values["number"], values["since"]
        if type(number) is not int or isinstance(since, bool) or not 0 <= since < 1e11:
            return None
        notebook = one_line(values["notebook"], LONGEST_NAME) or NAMELESS
        request = GpuRequest.from_json(values["request"])
        left, holds = bool(values["takes_what_is_left"]), bool(values["holds"])
        return Entry(number, notebook, request, left, holds, float(since))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidRequest):
        return None


@dataclass(frozen=True, slots=True)
class Turn:
    """How it stands for one kernel.

    Attributes:
        request: What it gets now; None if it has to wait.
        position: Its place among those that wait, from 1.
        length: How many wait.
        holders: Who holds what of the budget.
        before: Who came earlier and waits, too.
        left: What a kernel without a size would get, though this one wants more; None if nothing is left.
    """

    request: GpuRequest | None
    position: int
    length: int
    holders: tuple[Entry, ...]
    before: tuple[Entry, ...]
    left: GpuRequest | None = None


def held(budget: Budget, entries: Sequence[Entry]) -> int:
    """What of the budget is held."""
    return sum(budget.cost(entry.request) for entry in entries if entry.holds)


def turn_of(budget: Budget, mine: Entry, others: Sequence[Entry]) -> Turn:
    """Whether `mine`, which waits, may have what it wants. Strictly in the order of arrival.

    A kernel that wants less than is left waits behind one that wants more: otherwise that one might wait for
    ever. A kernel that was given no size takes what is left in the moment of its turn.
    """
    holders = tuple(sorted((entry for entry in others if entry.holds), key=_number))
    waiting = sorted((entry for entry in others if not entry.holds), key=_number)
    before = tuple(entry for entry in waiting if entry.number < mine.number)
    request, part = None, None
    if not before:
        left = budget.total - held(budget, holders)
        part = budget.part(left, mine.request)
        if mine.takes_what_is_left:
            request = part
        elif budget.cost(mine.request) <= left:
            request = mine.request
    return Turn(request, len(before) + 1, len(waiting) + 1, holders, before, part)


def _number(entry: Entry) -> int:
    return entry.number
