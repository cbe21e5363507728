"""The cache: what counts as a change, and who is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bitfusion_cluster.watching.cache import Cache, Key


@dataclass(frozen=True)
class Thing:
    name: str
    value: int = 0
    version: str = field(default="", compare=False)

    @property
    def key(self) -> Key:
        return "ann", self.name


class Told(list[tuple[Thing | None, Thing | None]]):
    """The calls of `changed`, since it was asked last."""

    def __call__(self, old: Thing | None, new: Thing | None) -> None:
        self.append((old, new))

    def since(self) -> list[tuple[Thing | None, Thing | None]]:
        calls = list(self)
        self.clear()
        return calls


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def cache(told: Told) -> Cache[Thing]:
    return Cache(told)


A, B = Thing("a"), Thing("b")


def test_it_is_synced_after_the_first_list(cache: Cache[Thing]) -> None:
    cache.put(A)
    assert not cache.synced()
    assert not cache.wait_synced(0)
    cache.replace({})
    assert cache.synced()
    assert cache.wait_synced(0)


def test_added_changed_and_removed_records_are_reported(cache: Cache[Thing], told: Told) -> None:
    cache.put(A)
    cache.put(Thing("a", 1))
    cache.remove(A.key)
    assert told.since() == [(None, A), (A, Thing("a", 1)), (Thing("a", 1), None)]
    assert cache.get("ann", "a") is None


def test_a_new_version_of_an_equal_record_is_kept_and_not_reported(cache: Cache[Thing], told: Told) -> None:
    cache.put(A)
    told.since()
    cache.put(Thing("a", version="2"))
    assert told.since() == []
    kept = cache.get("ann", "a")
    assert kept is not None
    assert kept.version == "2"


def test_what_was_never_there_is_removed_without_a_word(cache: Cache[Thing], told: Told) -> None:
    cache.remove(A.key)
    assert told.since() == []


def test_a_list_reports_what_has_changed_since(cache: Cache[Thing], told: Told) -> None:
    cache.replace({A.key: A, B.key: B})
    assert told.since() == [(None, A), (None, B)]
    cache.replace({B.key: Thing("b", 1), ("ann", "c"): Thing("c")})
    assert told.since() == [(A, None), (B, Thing("b", 1)), (None, Thing("c"))]
    assert sorted(cache.known_keys()) == [("ann", "b"), ("ann", "c")]
    assert len(cache) == 2


def test_nobody_has_to_be_told() -> None:
    cache: Cache[Thing] = Cache()
    cache.put(A)
    cache.remove(A.key)
    assert len(cache) == 0
