"""Counters, gauges and histograms, and the text in which Prometheus reads them.

For one event loop, without locks. prometheus_client, which the other processes have, imports an HTTP server
and an HTTP client with it: 3 MB of the plugin's 45 (docs/decisions/0097-a-device-plugin-in-asyncio.md). The
format:
https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Value:
    """One number of a metric.

    Attributes:
        now: What it is.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def set(self, value: float) -> None:
        """Of a gauge."""
        self.now = float(value)

    def inc(self, amount: float = 1) -> None:
        """Of a counter."""
        self.now += amount


class Metric:
    """A counter or a gauge: one value, or one for each value of its label.

    Attributes:
        name: As it is exposed; a counter's ends with ``_total``.
        label: The name of its label; empty if it has none.
    """

    def __init__(self, name: str, kind: str, text: str, label: str = "") -> None:
        """`kind`: ``counter`` or ``gauge``."""
        self.name, self.label = name, label
        self._kind, self._text = kind, text
        self._values: dict[str, Value] = {} if label else {"": Value()}

    def labels(self, value: str) -> Value:
        """The one with this value of the label, from now on exposed."""
        return self._values.setdefault(value, Value())

    def set(self, value: float) -> None:
        """Of a gauge without a label."""
        self._values[""].set(value)

    def inc(self, amount: float = 1) -> None:
        """Of a counter without a label."""
        self._values[""].inc(amount)

    def lines(self) -> Iterator[str]:
        """As Prometheus reads them."""
        yield from _head(self.name, self._kind, self._text)
        for value, number in self._values.items():
            yield _sample(self.name, number.now, *([(self.label, value)] if self.label else []))


class Histogram:
    """How often something took at most so long."""

    def __init__(self, name: str, text: str, buckets: Sequence[float]) -> None:
        """`buckets` are upper bounds, the smallest first; one without a bound is added."""
        self.name, self.label = name, ""
        self._text = text
        self._bounds = (*buckets, float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self._sum += value
        for place, bound in enumerate(self._bounds):
            if value <= bound:
                self._counts[place] += 1

    def lines(self) -> Iterator[str]:
        """As Prometheus reads them."""
        yield from _head(self.name, "histogram", self._text)
        for bound, count in zip(self._bounds, self._counts, strict=True):
            yield _sample(f"{self.name}_bucket", count, ("le", _number(bound)))
        yield _sample(f"{self.name}_count", self._counts[-1])
        yield _sample(f"{self.name}_sum", self._sum)


def exposed(metrics: Sequence[Metric | Histogram]) -> bytes:
    """The body of ``/metrics``."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines()).encode()


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _sample(name: str, value: float, *labels: tuple[str, str]) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))
