"""The text of `/metrics` is what the official client library writes, and reads."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bitfusion_device_plugin.plugin import metric_text
from bitfusion_device_plugin.plugin.metrics import PREFIX, PluginMetrics
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices

STRANGE = 'a "b"\\c\nd'
Samples = dict[tuple[str, str, str, str], float]


def _read(text: str) -> Samples:
    """Value by family, its type, sample and labels; without the library's times of creation."""
    return {
        (family.name, family.type, sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_it_reads_as_what_the_library_writes_of_the_same() -> None:
    registry = CollectorRegistry()
    theirs = (
        Counter("c", "Counts.", ["result"], registry=registry),
        Gauge("g", "Shows.", registry=registry),
        Histogram("h_seconds", "Takes.", buckets=(0.1, 0.5), registry=registry),
    )
    ours = (
        metric_text.Metric("c_total", "counter", "Counts.", "result"),
        metric_text.Metric("g", "gauge", "Shows."),
        metric_text.Histogram("h_seconds", "Takes.", (0.1, 0.5)),
    )
    for counter, gauge, histogram in (theirs, ours):
        counter.labels("good").inc()
        counter.labels(STRANGE).inc(2.5)
        gauge.set(1e12)
        for value in (0.1, 0.2, 0.6):
            histogram.observe(value)
    written = metric_text.exposed(ours).decode()
    assert _read(written) == _read(generate_latest(registry).decode())
    assert [line for line in written.splitlines() if line.startswith("# HELP")] == [
        "# HELP c_total Counts.",
        "# HELP g Shows.",
        "# HELP h_seconds Takes.",
    ]


def test_every_series_is_there_before_anything_has_happened() -> None:
    found = _read(PluginMetrics().text().decode())
    own = {(name.removeprefix(PREFIX), labels): value for (_, _, name, labels), value in found.items()}
    assert {value for (name, _), value in own.items() if name != "info" and "process" not in name} == {0.0}
    for name, label, values in (
        ("units", "health", ("healthy", "unhealthy")),
        ("registrations_total", "result", ("registered", "refused")),
        ("probes_total", "result", ("answered", "failed")),
    ):
        for value in values:
            assert (name, f"[('{label}', '{value}')]") in own
    assert {("allocated_units_total", "[]"), ("last_answer_timestamp_seconds", "[]")} <= own.keys()


def test_units_are_shown_by_health_and_the_process_by_the_usual_names() -> None:
    metrics = PluginMetrics()
    metrics.offered(UnitDevices(200, True))
    found = _read(metrics.text().decode())
    units = {labels: value for (_, _, name, labels), value in found.items() if name == f"{PREFIX}units"}
    assert units == {"[('health', 'healthy')]": 200.0, "[('health', 'unhealthy')]": 0.0}
    process = {name: value for (_, _, name, _), value in found.items() if name.startswith("process_")}
    assert process.keys() == {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
    }
    assert process["process_resident_memory_bytes"] > 1 << 20
    assert process["process_open_fds"] > 2
