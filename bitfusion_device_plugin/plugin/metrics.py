"""What `bitfusion-device-plugin` counts and shows at ``/metrics``."""

from __future__ import annotations

import os
import time

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
from bitfusion_client.version import VERSION
from bitfusion_device_plugin.plugin.metric_text import Histogram, Metric, exposed
from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices

PREFIX = "bitfusion_device_plugin_"
ALLOCATION_BUCKETS = (0.0005, 0.001, 0.005, 0.05, 0.5)
HEALTHY, UNHEALTHY = "healthy", "unhealthy"


class PluginMetrics:
    """The metrics of one process; made by it, filled by its parts.

    Attributes:
        all: Every metric that is the plugin's own, in the order in which they are shown.
    """

    def __init__(self) -> None:
        self.all: list[Metric | Histogram] = []

        def counter(name: str, text: str, label: str = "") -> Metric:
            return self._kept(Metric(f"{PREFIX}{name}_total", "counter", text, label))

        def gauge(name: str, text: str, label: str = "") -> Metric:
            return self._kept(Metric(PREFIX + name, "gauge", text, label))

        gauge("info", "Always 1.", "version").labels(VERSION).set(1)
        self.units = gauge("units", "Units reported to the kubelet, by health.", "health")
        self.streams = gauge("streams", "Streams that the kubelet has open; normally 1.")
        self.registrations = counter("registrations", "Answers from the kubelet to the plugin.", "result")
        self.allocations = Histogram(
            f"{PREFIX}allocation_seconds", "Time to answer an Allocate call.", ALLOCATION_BUCKETS
        )
        self.all.append(self.allocations)
        self.allocated_units = counter("allocated_units", "Units handed out to containers.")
        self.refused_allocations = counter("refused_allocations", "Calls for units that do not exist.")
        self.probes = counter("probes", "Queries of the pool's size, by result.", "result")
        self.probe_seconds = gauge("last_probe_seconds", "How long the last query of the pool took.")
        self.probe_time = gauge(
            "last_answer_timestamp_seconds", "When the pool last answered, as Unix time; 0: never."
        )
        self.connections_closed = counter(
            "connections_closed", "Connections to this port that were rejected, by reason.", "reason"
        )
        # Each is there from the start: what appears later is missed by a query that looks for a change.
        self.offered(UnitDevices())
        for metric, results in (
            (self.registrations, ("registered", "refused")),
            (self.probes, ("answered", "failed")),
            (self.connections_closed, (TOO_MANY, TOO_SLOW)),
        ):
            for result in results:
                metric.labels(result)

    def _kept(self, metric: Metric) -> Metric:
        self.all.append(metric)
        return metric

    def offered(self, devices: UnitDevices) -> None:
        """The units that the kubelet is shown from now on."""
        self.units.labels(HEALTHY).set(devices.offered)
        self.units.labels(UNHEALTHY).set(devices.count - devices.offered)

    def probed(self, answer: PoolAnswer, now: float) -> None:
        """One probe of the pool; `now` is wall-clock time."""
        self.probes.labels("answered" if answer.units is not None else "failed").inc()
        self.probe_seconds.set(answer.seconds)
        if answer.units is not None:
            self.probe_time.set(now)

    def allocated(self, units: int, seconds: float) -> None:
        """One Allocate call that was answered."""
        self.allocations.observe(seconds)
        self.allocated_units.inc(units)

    def text(self) -> bytes:
        """The body of ``/metrics``, with those of the process."""
        return exposed([*self.all, *_of_the_process()])


def _of_the_process() -> list[Metric]:
    """By the names that every Prometheus client library gives them."""
    cpu = Metric(
        "process_cpu_seconds_total",
        "counter",
        "CPU seconds spent, without those of child processes that have ended.",
    )
    cpu.inc(time.process_time())
    memory = Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
    with open("/proc/self/statm", encoding="ascii") as file:
        memory.set(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    descriptors = Metric("process_open_fds", "gauge", "Number of open file descriptors.")
    descriptors.set(len(os.listdir("/proc/self/fd")))
    return [cpu, memory, descriptors]
