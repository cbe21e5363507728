"""Look-ups of the Notebook that owns a StatefulSet: live request, time limit, and the cache in its place."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.errors import Forbidden, NoAnswer, ServerError
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics
from bitfusion_cluster.notebooks import owners
from bitfusion_cluster.notebooks.owners import UNKNOWN, Owner, Owners
from tests.bitfusion_cluster.log_fields import fields
from tests.notebook_controller_patch.admission.live_server import Record
from tests.notebook_controller_patch.admission.reviews import DEFAULTS, OWNER_UID, REQUEST
from tests.support.machine import scaled

OLD, NEW = {**DEFAULTS, REQUEST: "-n 1"}, {**DEFAULTS, REQUEST: "-n 2"}
IGNORE = {"bitfusion.io/admission": "ignore"}


class Cache:
    """Knows the one Notebook ann/nb, or none."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = record

    def get(self, namespace: str, name: str) -> Record | None:
        return self.record if (namespace, name) == ("ann", "nb") else None


class Setting:
    """Owners over a cache and a function that plays the apiserver; keeps what it is asked and tells."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.asked: list[tuple[str, str]] = []
        self.unsure: list[tuple[str, str]] = []
        self.owners: Owners | None = None

    def make(self, cache: Cache, answer: Callable[[], Any]) -> Owners:
        def fetch(namespace: str, name: str, within: float) -> Any:
            assert within == owners.LONGEST_LOOKUP
            self.asked.append((namespace, name))
            return answer()

        self.owners = Owners(
            cache,
            fetch,
            AdmissionMetrics(self.registry),
            lambda namespace, name: self.unsure.append((namespace, name)),
        )
        return self.owners

    def counts(self) -> dict[str, float]:
        values = {
            result: self.registry.get_sample_value("bitfusion_admission_lookups_total", {"result": result})
            for result in ("cached", "live", "gone", "failed")
        }
        return {result: value for result, value in values.items() if value}

    def failures(self) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["reason"], sample.labels["decided_by"]): sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "bitfusion_admission_lookup_failures_total"
        }


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """However busy the machine is, an answer that is given comes in time."""
    monkeypatch.setattr(owners, "LONGEST_LOOKUP", scaled(10))
    monkeypatch.setattr(owners, "LONGEST_QUEUE", scaled(20))
    made = Setting()
    yield made
    if made.owners is not None:
        made.owners.close()


def current(found: Owners) -> Owner:
    return asyncio.run(found.current("ann", "nb", OWNER_UID))


def test_where_no_pod_starts_the_cache_answers_without_a_question(setting: Setting) -> None:
    found = setting.make(Cache(Record(OWNER_UID, OLD)), lambda: Record(OWNER_UID, NEW))
    assert found.cached("ann", "nb", OWNER_UID) == Owner(OLD)
    assert found.cached("ann", "nb", "of another") is None
    assert found.cached("ann", "other", OWNER_UID) is None
    assert setting.asked == []
    assert setting.counts() == {"cached": 1}


def test_where_a_pod_starts_the_notebook_is_what_it_is_now(setting: Setting) -> None:
    found = setting.make(Cache(Record(OWNER_UID, OLD)), lambda: Record(OWNER_UID, NEW))
    assert current(found) == Owner(NEW)
    assert setting.asked == [("ann", "nb")]
    assert setting.counts() == {"live": 1}
    assert setting.registry.get_sample_value("bitfusion_admission_live_lookup_duration_seconds_count") == 1
    assert setting.unsure == []


@pytest.mark.parametrize(
    "answer", [None, Record("of one made anew", NEW)], ids=["no such notebook", "another one"]
)
def test_that_it_is_gone_is_an_answer_and_the_cache_says_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    assert current(setting.make(Cache(Record(OWNER_UID, OLD)), lambda: answer)) == UNKNOWN
    assert setting.counts() == {"gone": 1}
    assert setting.unsure == []
    assert not caplog.records


def test_no_annotations_are_an_answer(setting: Setting) -> None:
    assert current(setting.make(Cache(), lambda: Record(OWNER_UID, {}))) == Owner({})


def test_a_notebook_that_is_to_be_left_alone(setting: Setting) -> None:
    ignored = Record(OWNER_UID, DEFAULTS, IGNORE)
    found = setting.make(Cache(ignored), lambda: ignored)
    assert found.cached("ann", "nb", OWNER_UID) == Owner(DEFAULTS, left_alone=True)
    assert current(found) == Owner(DEFAULTS, left_alone=True)


def raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("cached", "expected", "decided_by"),
    [
        (Record(OWNER_UID, OLD), Owner(OLD, certain=False), "cache"),
        (Record(OWNER_UID, OLD, IGNORE), Owner(OLD, left_alone=True, certain=False), "cache"),
        (Record("of the one before", OLD), UNKNOWN, "nothing"),
        (None, UNKNOWN, "nothing"),
    ],
)
@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (NoAnswer(answered="refused"), "no_answer", "The Kubernetes API did not answer. refused"),
        (ConnectionError("reset"), "no_answer", "ConnectionError: reset"),
        (Forbidden(403, "Forbidden", "no right"), "forbidden", "403 Forbidden: no right"),
        (ServerError(500, "InternalError", "etcd"), "refused", "500 InternalError: etcd"),
    ],
)
def test_what_cannot_be_learnt_is_what_the_cache_knows_counted_and_told(
    setting: Setting,
    caplog: pytest.LogCaptureFixture,
    cached: Any,
    expected: Owner,
    decided_by: str,
    error: Exception,
    reason: str,
    words: str,
) -> None:
    found = setting.make(Cache(cached), raising(error))
    with caplog.at_level(logging.WARNING):
        assert current(found) == expected
    (record,) = caplog.records
    assert record.message == "notebook could not be looked up"
    assert fields(record, "namespace", "notebook", "decided_by") == ("ann", "nb", decided_by)
    assert words.rpartition(". ")[2] in str(fields(record, "reason")[0])
    assert setting.counts() == {"failed": 1}
    assert setting.failures() == {(reason, decided_by): 1}
    assert setting.unsure == [("ann", "nb")]


def test_an_apiserver_that_does_not_answer_is_not_waited_for(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "LONGEST_LOOKUP", 0.5)
    monkeypatch.setattr(owners, "LONGEST_QUEUE", 2.0)
    let_go = threading.Event()
    found = setting.make(Cache(Record(OWNER_UID, OLD)), lambda: let_go.wait(scaled(20)))

    async def asked_by_many() -> Sequence[Owner]:
        try:
            lookups = (found.current("ann", "nb", OWNER_UID) for _ in range(100))
            return await asyncio.wait_for(asyncio.gather(*lookups), scaled(5))
        finally:
            let_go.set()

    assert asyncio.run(asked_by_many()) == [Owner(OLD, certain=False)] * 100
    assert {fields(record, "reason") for record in caplog.records} == {
        ("no answer within 0.5 s",),
        ("other look-ups went on for 2 s",),
    }
    assert setting.failures() == {("timeout", "cache"): 100}
    assert len(setting.asked) == 8  # no more threads than that; the others were never asked
    assert setting.unsure == [("ann", "nb")] * 100


def test_a_request_that_ends_at_the_limit_is_a_timeout_whoever_sees_it_first(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has the same limit; where the loop was busy, its error lies there already."""
    monkeypatch.setattr(owners, "LONGEST_LOOKUP", 0.1)
    ended = threading.Event()

    def answer() -> Any:
        time.sleep(owners.LONGEST_LOOKUP)
        ended.set()
        raise NoAnswer(answered="timed out")

    found = setting.make(Cache(Record(OWNER_UID, OLD)), answer)

    async def while_the_loop_is_busy() -> Owner:
        lookup = asyncio.ensure_future(found.current("ann", "nb", OWNER_UID))
        while not setting.asked:
            await asyncio.sleep(0)
        assert ended.wait(scaled(5))
        time.sleep(0.05)  # the thread hands its error over
        return await lookup

    assert asyncio.run(while_the_loop_is_busy()) == Owner(OLD, certain=False)
    assert setting.failures() == {("timeout", "cache"): 1}


def test_many_starts_at_once_are_all_looked_up(setting: Setting) -> None:
    def slow() -> Record:
        time.sleep(0.2)
        return Record(OWNER_UID, NEW)

    found = setting.make(Cache(Record(OWNER_UID, OLD)), slow)

    async def asked_by_many() -> Sequence[Owner]:
        return await asyncio.gather(*(found.current("ann", "nb", OWNER_UID) for _ in range(40)))

    assert asyncio.run(asked_by_many()) == [Owner(NEW)] * 40
    assert setting.counts() == {"live": 40}
