"""Look-ups of the Notebook that owns a StatefulSet: cache, live request, time limit."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from notebook_controller_patch.admission.owners import LEFT_ALONE, Owners
from notebook_controller_patch.metrics import AdmissionMetrics
from tests.notebook_controller_patch.admission.live_server import Record
from tests.notebook_controller_patch.admission.reviews import DEFAULTS, OWNER_UID, notebook
from tests.notebook_controller_patch.log_fields import fields
from tests.support.machine import scaled

ANNOTATIONS = notebook(annotations=DEFAULTS)["metadata"]["annotations"]


class Cache:
    """Knows the one Notebook ann/nb, or none."""

    def __init__(self, record: Record | None = None) -> None:
        self.record = record

    def get(self, namespace: str, name: str) -> Record | None:
        return self.record if (namespace, name) == ("ann", "nb") else None


class Setting:
    """Owners over a cache and a function that plays the apiserver; counts what it is asked."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.asked: list[tuple[str, str]] = []
        self.owners: Owners | None = None

    def make(self, cache: Cache, answer: Callable[[], Any]) -> Owners:
        def fetch(namespace: str, name: str) -> Any:
            self.asked.append((namespace, name))
            return answer()

        self.owners = Owners(cache, fetch, AdmissionMetrics(self.registry))
        return self.owners

    def counts(self) -> dict[str, float]:
        return {
            result: self.registry.get_sample_value("bitfusion_admission_lookups_total", {"result": result})
            or 0
            for result in ("hit", "miss", "failed")
        }


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    if made.owners is not None:
        made.owners.close()


async def look_up(owners: Owners) -> Mapping[str, str] | None:
    """As the server does: the cache, then one live look-up."""
    cached = owners.cached("ann", "nb", OWNER_UID)
    return cached if cached is not None else await owners.look_up("ann", "nb", OWNER_UID)


def find(owners: Owners) -> Mapping[str, str] | None:
    return asyncio.run(look_up(owners))


def test_the_cache_knows_without_a_question(setting: Setting) -> None:
    owners = setting.make(Cache(Record(OWNER_UID, DEFAULTS)), dict)
    assert find(owners) == DEFAULTS
    assert setting.asked == []
    assert setting.counts() == {"hit": 1, "miss": 0, "failed": 0}


def test_a_miss_is_one_live_look_up(setting: Setting) -> None:
    owners = setting.make(Cache(), lambda: notebook(annotations=DEFAULTS))
    assert find(owners) == ANNOTATIONS
    assert setting.asked == [("ann", "nb")]
    assert setting.counts() == {"hit": 0, "miss": 1, "failed": 0}
    assert setting.registry.get_sample_value("bitfusion_admission_live_lookup_duration_seconds_count") == 1


def test_a_notebook_made_anew_is_not_taken_for_its_predecessor(setting: Setting) -> None:
    owners = setting.make(Cache(Record("of the one before", {"a": "b"})), lambda: notebook())
    assert find(owners) == notebook()["metadata"]["annotations"]
    assert setting.asked == [("ann", "nb")]


@pytest.mark.parametrize("cache", [Cache(), Cache(Record(OWNER_UID, {}))])
def test_no_annotations_are_an_answer(setting: Setting, cache: Any) -> None:
    bare = notebook()
    del bare["metadata"]["annotations"]
    assert find(setting.make(cache, lambda: bare)) == {}


IGNORE = {"bitfusion.io/admission": "ignore"}


@pytest.mark.parametrize("cache", [Cache(), Cache(Record(OWNER_UID, DEFAULTS, IGNORE))])
def test_a_notebook_that_is_to_be_left_alone(setting: Setting, cache: Any) -> None:
    assert find(setting.make(cache, lambda: notebook(annotations=DEFAULTS, labels=IGNORE))) is LEFT_ALONE
    assert setting.counts()["failed"] == 0


def failing() -> Any:
    raise ConnectionError("connection refused")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (failing, "ConnectionError: connection refused"),
        (lambda: notebook() | {"metadata": {"uid": "other"}}, "the Notebook of that name is another one"),
        (dict, "the Notebook of that name is another one"),
        (lambda: None, "the Notebook of that name is another one"),
        (lambda: [], "the Notebook of that name is another one"),
    ],
)
def test_what_cannot_be_learnt_is_unknown_and_logged_once(
    setting: Setting, caplog: pytest.LogCaptureFixture, answer: Any, reason: str
) -> None:
    owners = setting.make(Cache(), answer)
    with caplog.at_level(logging.WARNING):
        assert find(owners) is None
    (record,) = caplog.records
    assert record.message == "notebook could not be looked up"
    assert fields(record, "namespace", "notebook", "reason") == ("ann", "nb", reason)
    assert setting.counts() == {"hit": 0, "miss": 1, "failed": 1}


def test_an_apiserver_that_does_not_answer_is_not_waited_for(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()
    owners = setting.make(Cache(), lambda: let_go.wait(scaled(20)))

    async def asked_by_many() -> list[Mapping[str, str] | None]:
        try:
            return await asyncio.gather(*(look_up(owners) for _ in range(20)))
        finally:
            let_go.set()

    assert asyncio.run(asked_by_many()) == [None] * 20
    assert {fields(record, "reason") for record in caplog.records} == {("no answer within 0.5 s",)}
    assert len(setting.asked) == 8  # no more threads than that; the others were never asked
