"""What Prometheus reads of a service: who holds what, what is free, and how a label is escaped."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, REMOTE, Holder
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.service.monitoring.holder_usage import EVERYBODY, NOBODY, TOKENS
from bitfusion_pool.service.monitoring.metrics import Metrics, ServerCapacity
from bitfusion_pool.service.monitoring.pool_census import capacity, states_of_pool

OF_MNIST = {"holder": "cluster/team-a", "namespace": "team-a", "notebook": "mnist"}


def of_a_pod(notebook: str = "mnist") -> Holder:
    return Holder("x", "cluster/team-a", 7, f"team-a/{notebook}", FIRST_TOKEN_NAME)


def counted(ledger: Ledger, which: str = TOKENS) -> CollectorRegistry:
    registry = CollectorRegistry()
    states_of_pool(ledger, Metrics(registry, which))
    return registry


def test_who_holds_waits_and_what_is_free(ledger: Ledger) -> None:
    ledger.submit(GpuRequest(1, 0.5), of_a_pod(), kind=REMOTE)
    ledger.submit(GpuRequest(1), of_a_pod(), kind=REMOTE)
    ledger.submit(GpuRequest(2), of_a_pod(), kind=REMOTE)
    registry = counted(ledger)
    value = registry.get_sample_value
    assert value("bitfusion_pool_holder_gpus", OF_MNIST) == 1.5
    assert value("bitfusion_pool_holder_waiting", OF_MNIST) == 1
    assert value("bitfusion_pool_holder_grants_total", OF_MNIST) == 0
    assert value("bitfusion_pool_holder_wait_seconds_total", OF_MNIST) == 0
    gpu_seconds = value("bitfusion_pool_holder_gpu_seconds_total", OF_MNIST)
    assert gpu_seconds is not None
    assert gpu_seconds > 0
    assert value("bitfusion_pool_leases") == 2
    assert value("bitfusion_pool_waiting") == 1
    server = {"server": "127.0.0.1:56001"}
    assert value("bitfusion_pool_gpus", server) == 2
    assert value("bitfusion_pool_free_gpus", server) == 0.5
    assert value("bitfusion_pool_memory_bytes", server) == 2 * 16160 * 1048576
    assert value("bitfusion_pool_free_memory_bytes", server) == 8080 * 1048576


def test_since_when_somebody_holds_and_is_idle(ledger: Ledger) -> None:
    """The name of the document is nobody's business who reads metrics."""
    held, _ = ledger.submit(GpuRequest(1, 0.5), of_a_pod(), kind=REMOTE)
    ledger.submit(GpuRequest(1), of_a_pod(), kind=REMOTE)
    ledger.note_activity(held.entry_id, KernelActivity("idle", 500.0, 400.0, 'my"secret.ipynb'))
    registry = CollectorRegistry()
    metrics = Metrics(registry, TOKENS)
    states_of_pool(ledger, metrics)
    value = registry.get_sample_value
    assert value("bitfusion_pool_holder_idle_gpus", OF_MNIST) == 0.5
    assert value("bitfusion_pool_holder_idle_since_timestamp_seconds", OF_MNIST) == 400.0
    assert value("bitfusion_pool_holder_since_timestamp_seconds", OF_MNIST) == held.granted_at
    idle_s = value("bitfusion_pool_holder_idle_gpu_seconds_total", OF_MNIST)
    assert idle_s is not None
    assert idle_s > 0
    assert "secret" not in generate_latest(registry).decode()
    metrics.activity(held.entry_id, None)
    assert value("bitfusion_pool_holder_idle_gpus", OF_MNIST) == 0
    assert value("bitfusion_pool_holder_idle_since_timestamp_seconds", OF_MNIST) is None
    Metrics().activity(held.entry_id, 5.0)  # nobody reads it


@pytest.mark.parametrize(
    ("which", "holders"), [(NOBODY, set()), (TOKENS, {"(users)"}), (EVERYBODY, {"tester"})]
)
def test_a_user_of_the_machine_is_named_only_if_that_is_wanted(
    ledger: Ledger, which: str, holders: set[str]
) -> None:
    _, lock = ledger.submit(GpuRequest(1), Holder("digits.ipynb", "tester", 1, "box", 1000))
    text = generate_latest(counted(ledger, which)).decode()
    lock.close()
    found = {
        sample.labels["holder"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "holder" in sample.labels
    }
    assert found == holders
    assert "digits.ipynb" not in text
    assert "bitfusion_pool_gpu_seconds_total" in text


def test_no_name_of_a_notebook_breaks_the_text(ledger: Ledger) -> None:
    odd = 'a"} 1\\ bitfusion_pool_holder_gpus{x="ü'
    ledger.submit(GpuRequest(1), of_a_pod(odd), kind=REMOTE)
    text = generate_latest(counted(ledger)).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (sample,) = families["bitfusion_pool_holder_gpus"].samples
    assert sample.labels["notebook"] == odd


def test_every_name_is_there_before_anything_happens_for_the_registry_to_refuse_a_second_one() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Metrics(registry)


def test_without_a_port_the_ledger_is_only_asked_for_states(ledger: Ledger) -> None:
    entry, lock = ledger.submit(GpuRequest(1), Holder("x", "tester"))
    ledger.usage_columns = None  # type: ignore[assignment, method-assign] # must not be called
    assert states_of_pool(ledger, Metrics()) == {entry.entry_id: "held"}
    lock.close()


def test_a_device_that_shrank_has_nothing_free() -> None:
    servers = (Server("s", "a", 1, (Device(0, "V100", 100), Device(1, "V100", 200))),)
    free = {("a:1", 0): -50, ("a:1", 1): 100}
    assert capacity(servers, free) == (ServerCapacity("a:1", 2, 0.5, 300, 100),)
