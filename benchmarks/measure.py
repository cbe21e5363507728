"""Samples, goals and rows: the pure part of the benchmarks.

All times are seconds and all memory is bytes until a row is printed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

V = TypeVar("V")

MILLISECOND = 1e-3
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured values of one variant; ``value`` is their median."""

    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, object]:
        return {
            "median": self.value,
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
        }


class Goal(Protocol):
    """What a row is judged by. ``plain`` is absent where there is nothing to compare with."""

    def describe(self) -> str:
        """The goal as the table prints it."""
        ...

    def compare(self, plain: float | None, ours: float) -> str:
        """The measured quantity that the goal is about, as the table prints it."""
        ...

    def met(self, plain: float | None, ours: float) -> bool:
        """Whether the goal is met."""
        ...


def _needed(plain: float | None) -> float:
    if plain is None:
        raise ValueError("this goal compares with plain ipykernel, which was not measured")
    return plain


@dataclass(frozen=True, slots=True)
class AtMostTimes:
    """Ours is at most ``factor`` times plain (times, memory)."""

    factor: float

    def describe(self) -> str:
        return f"<= {self.factor:g} x"

    def compare(self, plain: float | None, ours: float) -> str:
        return f"{ours / _needed(plain):.2f} x"

    def met(self, plain: float | None, ours: float) -> bool:
        return ours <= self.factor * _needed(plain)


@dataclass(frozen=True, slots=True)
class SpeedAtLeast:
    """Both values are durations; the speed of ours is at least ``factor`` times that of plain."""

    factor: float

    def describe(self) -> str:
        return f">= {self.factor:g} x speed"

    def compare(self, plain: float | None, ours: float) -> str:
        return f"{_needed(plain) / ours:.2f} x"

    def met(self, plain: float | None, ours: float) -> bool:
        return _needed(plain) / ours >= self.factor


@dataclass(frozen=True, slots=True)
class AtMostMore:
    """Ours is at most ``seconds`` later than plain."""

    seconds: float

    def describe(self) -> str:
        return f"<= + {_trim(self.seconds / MILLISECOND)} ms"

    def compare(self, plain: float | None, ours: float) -> str:
        more = (ours - _needed(plain)) / MILLISECOND
        return f"{'-' if more < 0 else '+'} {_trim(abs(more))} ms"

    def met(self, plain: float | None, ours: float) -> bool:
        return ours - _needed(plain) <= self.seconds


@dataclass(frozen=True, slots=True)
class AtMost:
    """Ours is at most ``limit``, whatever plain is."""

    limit: float
    unit: str

    def describe(self) -> str:
        return f"<= {format_value(self.limit, self.unit)}"

    def compare(self, plain: float | None, ours: float) -> str:
        return f"{ours / plain:.2f} x" if plain else ""

    def met(self, plain: float | None, ours: float) -> bool:
        return ours <= self.limit


@dataclass(frozen=True, slots=True)
class Shown:
    """No goal: the row is there to be read beside another one."""

    def describe(self) -> str:
        return ""

    def compare(self, plain: float | None, ours: float) -> str:
        return f"{ours / plain:.2f} x" if plain else ""

    def met(self, plain: float | None, ours: float) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``unit`` is ``ms``, ``s``, ``MB`` or ``n``; ``ours`` is absent if it failed."""

    topic: str
    what: str
    unit: str
    ours: Samples | None
    plain: Samples | None = None
    goal: Goal = field(default_factory=Shown)
    note: str = ""
    whole: bool = True
    """False when ours did not do all of the work; then no speed meets the goal."""

    @property
    def verdict(self) -> str:
        """``met``, ``not met``, ``failed`` (nothing was measured) or nothing where there is no goal."""
        if self.ours is None:
            return "failed"
        if isinstance(self.goal, Shown):
            return ""
        plain = self.plain.value if self.plain else None
        return "met" if self.whole and self.goal.met(plain, self.ours.value) else "not met"

    @property
    def comparison(self) -> str:
        """The measured ratio or difference, as the goal states it."""
        if self.ours is None:
            return ""
        return self.goal.compare(self.plain.value if self.plain else None, self.ours.value)

    def to_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "what": self.what,
            "unit": self.unit,
            "plain": self.plain.to_json() if self.plain else None,
            "ours": self.ours.to_json() if self.ours else None,
            "comparison": self.comparison,
            "goal": self.goal.describe(),
            "verdict": self.verdict,
            "note": self.note,
        }


def failed(topic: str, error: BaseException) -> Row:
    """The row of a topic that could not be measured."""
    text = " ".join(str(error).split()) or type(error).__name__
    return Row(topic, topic.replace("_", " "), "ms", ours=None, note=text[:160])


def interleave(
    variants: Mapping[str, V], repetitions: int, measure: Callable[[V], float]
) -> dict[str, Samples]:
    """Measure every variant once per repetition, each repetition starting with another variant.

    A machine drifts (other load, caches, clock): only values taken in turns may be compared.
    """
    names = list(variants)
    values: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            values[name].append(measure(variants[name]))
    return {name: Samples(tuple(measured)) for name, measured in values.items()}


def format_value(value: float, unit: str) -> str:
    """A value in seconds or bytes as a person reads it in ``unit``: ``ms``, ``s``, ``MB``; ``n`` counts."""
    if unit == "ms":
        return f"{_trim(value / MILLISECOND)} ms"
    if unit == "s":
        return f"{value:.2f} s"
    if unit == "MB":
        return f"{_trim(value / MEGABYTE)} MB"
    if unit == "n":
        return f"{value:g}"
    raise ValueError(f"unit {unit!r}: one of ms, s, MB, n")


def _trim(number: float) -> str:
    """Three significant digits are more than a benchmark knows."""
    return f"{number:.2f}" if abs(number) < 10 else f"{number:.0f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie; the nearest one measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
