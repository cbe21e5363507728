"""StatefulSets found by the Notebook that owns them: called as it, or as the API server has made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_controller_patch.reconcile.records import StatefulSetRecord, statefulset_record
from notebook_controller_patch.reconcile.statefulset_cache import StatefulSetCache
from tests.notebook_controller_patch.reconcile.objects import admitted, statefulset


def record(name: str, owner: str = "nb", uid: str = "uid-of-nb", **fields: object) -> StatefulSetRecord:
    found = statefulset_record(statefulset(admitted()))
    assert found is not None
    changed = replace(found, name=name, uid=f"uid-of-{name}", owner_name=owner, owner_uid=uid)
    return replace(changed, **fields)  # type: ignore[arg-type]  # the fields are the test's


def found(cache: StatefulSetCache, uid: str = "uid-of-nb") -> str | None:
    own = cache.of_notebook("ann", "nb", uid)
    return None if own is None else own.name


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([record("nb")], "nb"),
        ([record("nb-x7k2p")], "nb-x7k2p"),
        ([record("nb-x7k2p", uid="another")], None),
        ([record("nb", uid="another"), record("nb-x7k2p")], "nb-x7k2p"),
        ([record("nb", owner="nb-x7k2p", uid="another")], None),
        ([record("nb-b"), record("nb-a")], "nb-a"),
        ([record("nb-b"), record("nb-a", replicas=0)], "nb-b"),
        ([record("nb-b", replicas=0), record("nb", replicas=0)], "nb"),
        ([record("nb-a", deleting=True), record("nb-b")], "nb-b"),
        ([record("nb", deleting=True)], None),
        ([record("nb-a", namespace="ben")], None),
    ],
)
def test_the_owner_finds_its_own(known: list[StatefulSetRecord], expected: str | None) -> None:
    one_by_one, listed = StatefulSetCache(), StatefulSetCache()
    for each in known:
        one_by_one.put(each)
    listed.replace({each.key: each for each in known})
    assert found(one_by_one) == found(listed) == expected


def test_who_is_told_of_a_change_finds_what_has_changed() -> None:
    seen: list[str | None] = []
    cache = StatefulSetCache(lambda old, new: seen.append(found(cache)))
    cache.replace({})
    cache.put(record("nb-a"))
    cache.put(record("nb-a", replicas=0))
    cache.put(record("nb-a", owner="other", uid="uid-of-other"))
    cache.put(record("nb-b"))
    cache.remove(("ann", "nb-b"))
    cache.replace({("ann", "nb-c"): record("nb-c")})  # and nb-a is gone
    assert seen == ["nb-a", "nb-a", None, "nb-b", None, "nb-c", "nb-c"]
    assert cache.of_notebook("ann", "other", "uid-of-other") is None


def test_a_name_is_led_back_to_the_notebook() -> None:
    cache = StatefulSetCache()
    cache.put(record("nb-x7k2p"))
    assert cache.owner_of(("ann", "nb-x7k2p")) == ("ann", "nb")
    assert cache.owner_of(("ann", "unknown")) == ("ann", "unknown")


def test_nothing_is_kept_of_owners_that_are_gone() -> None:
    cache = StatefulSetCache()
    for number in range(5):
        cache.put(record(f"nb-{number}"))
        cache.remove(("ann", f"nb-{number}"))
    assert cache._called_otherwise == {}
