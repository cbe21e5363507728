"""What `bitfusion-device-plugin` counts and shows at ``/metrics``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices

PREFIX = "bitfusion_device_plugin_"
ALLOCATION_BUCKETS = (0.0005, 0.001, 0.005, 0.05, 0.5)


class PluginMetrics:
    """The metrics of one process; made by it, filled by its parts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, labels, registry=registry)

        self.units = gauge("units", "Units shown to the kubelet, by health.", "health")
        self.streams = gauge("streams", "Streams that the kubelet has open: 1 where all is well.")
        self.registrations = counter("registrations", "Answers of the kubelet to the plugin.", "result")
        self.allocations = Histogram(
            f"{PREFIX}allocation_seconds",
            "Time to answer an Allocate call.",
            buckets=ALLOCATION_BUCKETS,
            registry=registry,
        )
        self.allocated_units = counter("allocated_units", "Units handed out to containers.")
        self.refused_allocations = counter("refused_allocations", "Calls for units that there are not.")
        self.probes = counter("probes", "Times the pool was asked for its size, by result.", "result")
        self.probe_seconds = gauge("last_probe_seconds", "How long the last look at the pool took.")
        self.probe_time = gauge("last_answer_timestamp_seconds", "When the pool last answered, 0: never.")

    def offered(self, devices: UnitDevices) -> None:
        """The units that the kubelet is shown from now on."""
        self.units.labels("healthy").set(devices.offered)
        self.units.labels("unhealthy").set(devices.count - devices.offered)

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
