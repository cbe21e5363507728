"""List and watch against a server that misbehaves: the cache ends up right, in a bounded number of requests.

The bounds follow from the delays: after a failure 0.05 to 0.1 s, doubling to at most 0.4 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache, CacheAge, Key
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits
from tests.bitfusion_cluster.fake_api import LIST, WATCH, FakeApi, Handler
from tests.bitfusion_cluster.faults import Fault, bookmark, raw, reset, stall, status
from tests.bitfusion_cluster.log_fields import fields
from tests.bitfusion_cluster.watching.clock import Clock
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS, Object, notebook
from tests.support.machine import scaled
from tests.support.waiting import wait_until

QUICK = WatchLimits(
    page=2,
    shortest_watch=30,
    longest_watch=40,
    margin=5,
    quiet=20,
    steady=10,
    first_delay=0.1,
    longest_delay=0.4,
    # long enough for a busy machine: a time limit that is met would be a restart that no test expects
    list_timeout=(10, 10),
    watch_timeout=(10, 10),
)


class Loop:
    """A ListWatch of Notebooks with everything it told."""

    def __init__(self, api: FakeApi, limits: WatchLimits, age: CacheAge | None = None) -> None:
        self.registry = CollectorRegistry()
        self.bug = False
        self.changes: list[tuple[Key, str]] = []
        self.cache: Cache[NotebookRecord] = Cache(self._changed)
        self.watch = ListWatch(
            api.client(),
            WatchedResource("notebooks", NOTEBOOKS, self.trim),
            self.cache,
            WatchMetrics(self.registry),
            limits,
            age,
        )

    def trim(self, data: Mapping[str, Any]) -> NotebookRecord | None:
        if self.bug:
            raise ZeroDivisionError
        return notebook_record(data)

    def _changed(self, old: NotebookRecord | None, new: NotebookRecord | None) -> None:
        record = new or old
        assert record is not None
        self.changes.append((record.key, "new" if old is None else "gone" if new is None else "changed"))

    def names(self) -> list[str]:
        return sorted(name for _, name in self.cache.known_keys())

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"resource": "notebooks", **labels}) or 0.0

    def restarts(self, reason: str) -> float:
        return self.metric("bitfusion_watch_restarts_total", reason=reason)


@pytest.fixture
def loops(api: FakeApi) -> Iterator[Any]:
    made: list[Loop] = []

    def start(limits: WatchLimits = QUICK, age: CacheAge | None = None) -> Loop:
        loop = Loop(api, limits, age)
        made.append(loop)
        loop.watch.start()
        return loop

    yield start
    for loop in made:
        loop.watch.stop()
    for loop in made:
        assert loop.watch.join(scaled(5)), "the thread goes on after stop"


def fill(api: FakeApi, count: int) -> list[str]:
    names = [f"nb-{number}" for number in range(count)]
    for name in names:
        api.put(NOTEBOOKS, notebook(name))
    return names


def test_everything_is_listed_in_pages_and_then_watched(api: FakeApi, loops: Any) -> None:
    names = fill(api, 5)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    assert loop.cache.synced()
    assert api.count(LIST) == 3
    lists = [request.query for request in api.requests if request.verb == LIST]
    assert [query.get("limit") for query in lists] == ["2", "2", "2"]
    assert [query.get("continue") for query in lists] == [None, "2:105", "4:105"]
    assert all("resourceVersion" not in query for query in lists)
    (watch,) = [request.query for request in api.requests if request.verb == WATCH]
    assert watch["allowWatchBookmarks"] == "true"
    assert watch["resourceVersion"] == "105"
    assert 30 <= int(watch["timeoutSeconds"]) <= 40
    api.put(NOTEBOOKS, notebook("more"))
    api.remove(NOTEBOOKS, "ann", "nb-0")
    wait_until(lambda: loop.names() == ["more", *names[1:]] and len(loop.changes) == 7)
    assert loop.changes[-2:] == [(("ann", "more"), "new"), (("ann", "nb-0"), "gone")]
    assert api.count(LIST, WATCH) == 4
    assert loop.metric("bitfusion_watch_objects") == 5


def test_what_does_not_concern_us_wakes_nobody(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    loop = loops()
    wait_until(lambda: api.watching(NOTEBOOKS))
    # the culler does this once a minute
    culled = notebook("nb-0", annotations={"notebooks.kubeflow.org/last-activity": "2026-11-21T07:00:00Z"})
    api.put(NOTEBOOKS, culled)
    api.put(NOTEBOOKS, notebook("nb-0", annotations={"bitfusion.io/request": "-n 2"}))
    wait_until(lambda: len(loop.changes) >= 2)
    assert [what for _, what in loop.changes] == ["new", "changed"]
    assert loop.cache.get("ann", "nb-0").resource_version == str(api.version)


def test_bookmarks_move_the_place_a_watch_is_begun_again_at(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    api.misbehave(raw(bookmark(900)), WATCH)
    loops()
    wait_until(lambda: api.watching(NOTEBOOKS))
    versions = [request.query["resourceVersion"] for request in api.requests if request.verb == WATCH]
    assert versions == ["101", "900"]
    assert api.count(LIST) == 1


GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
BROKEN_STREAM = b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is away"}}\n'


@pytest.mark.parametrize(
    ("fault", "times", "reason", "lists", "most"),
    [
        pytest.param(status(410, "Expired"), 2, "gone", 3, 6, id="410 as status"),
        pytest.param(raw(GONE), 2, "gone", 3, 6, id="410 in the stream"),
        pytest.param(raw(BROKEN_STREAM), 2, "refused", 1, 4, id="500 in the stream"),
        pytest.param(status(500), 2, "refused", 1, 4, id="500"),
        pytest.param(status(400), 3, "refused", 2, 6, id="400, three times: the place is given up"),
        pytest.param(status(403, "Forbidden"), 2, "refused", 1, 4, id="403"),
        pytest.param(raw(b'{"type":"ADDED","obj'), 2, "closed", 1, 4, id="half a line, then the end"),
        pytest.param(raw(b'{"type":"ADDED","obj\n'), 2, "garbled", 1, 4, id="half a line as a line"),
        pytest.param(raw(b"null\n"), 3, "garbled", 2, 6, id="nonsense, three times"),
        pytest.param(
            raw(b'{"type":"ADDED","object":{}}\n'), 1, "garbled", 1, 3, id="an object without version"
        ),
        pytest.param(raw(then=reset), 2, "broken", 1, 4, id="RST in the stream"),
        pytest.param(reset, 2, "broken", 1, 4, id="RST before the answer"),
        pytest.param(raw(), 2, "closed", 1, 4, id="an empty watch"),
        pytest.param(raw(b"\n\n"), 1, "closed", 1, 3, id="empty lines"),
    ],
)
def test_a_broken_watch_is_begun_again(
    api: FakeApi, loops: Any, fault: Fault, times: int, reason: str, lists: int, most: int
) -> None:
    names = fill(api, 2)
    api.misbehave(fault, WATCH, times=times)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    api.put(NOTEBOOKS, notebook("new"))
    wait_until(lambda: "new" in loop.names())
    assert loop.restarts(reason) == times
    assert api.count(LIST) == lists
    assert api.count(LIST, WATCH) <= most


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(raw(GONE), id="410 for ever"),
        pytest.param(raw(b"}\n"), id="garbage for ever"),
        pytest.param(raw(), id="every watch ends at once"),
        pytest.param(raw(bookmark(101)), id="every watch ends after a bookmark"),
        pytest.param(reset, id="every connection is reset"),
        pytest.param(status(503), id="503 for ever"),
    ],
)
def test_a_server_that_breaks_every_watch_is_not_hammered(api: FakeApi, loops: Any, fault: Fault) -> None:
    fill(api, 1)
    api.misbehave(fault, WATCH, times=10_000)
    began = time.monotonic()
    loop = loops()
    wait_until(lambda: api.count(WATCH) >= 10)
    lists, watches = api.count(LIST), api.count(WATCH)
    # at best 0.05 + 0.1 + 0.2 s, then 0.2 s each; a list with each of them at most
    most = 4 + max(0, time.monotonic() - began - 0.35) / 0.2
    assert watches <= most
    assert lists <= most + 1
    api.behave()
    api.put(NOTEBOOKS, notebook("after"))
    wait_until(lambda: "after" in loop.names())


def test_a_list_that_expires_half_way_is_begun_again_with_smaller_pages(api: FakeApi, loops: Any) -> None:
    names = fill(api, 5)

    def compact_behind_the_first_page(handler: Handler) -> None:
        api.put(NOTEBOOKS, notebook("late"))
        handler.answer(
            200,
            {
                "metadata": {"resourceVersion": "1", "continue": "2:1"},
                "items": [notebook("nb-0"), notebook("stale")],
            },
        )
        api.compact()

    api.misbehave(compact_behind_the_first_page, LIST)
    loop = loops()
    wait_until(lambda: loop.names() == ["late", *names] and api.watching(NOTEBOOKS))
    lists = [request.query for request in api.requests if request.verb == LIST]
    assert lists[:2] == [{"limit": "2"}, {"limit": "2", "continue": "2:1"}]
    assert [query["limit"] for query in lists[2:]] == ["1", "2", "2", "2"]
    assert ["continue" in query for query in lists[2:]] == [False, True, True, True]
    assert ("ann", "stale") not in [key for key, _ in loop.changes]


def test_a_list_that_expires_each_time_is_never_read_in_one_piece(api: FakeApi, loops: Any) -> None:
    names = fill(api, 5)
    api.misbehave(status(410, "Expired"), LIST, times=7)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    limits = [int(request.query["limit"]) for request in api.requests if request.verb == LIST]
    assert limits == [2, 1, 1, 2, 1, 1, 2, 1, 2, 2]
    assert loop.restarts("gone") == 2


def test_pages_of_large_objects_are_read_with_fewer_of_them(api: FakeApi, loops: Any) -> None:
    """One tenant makes 30 Notebooks of 100 kB: no answer that is read is larger than the limit."""
    names = fill(api, 30)
    for number in range(10, 20):
        api.put(NOTEBOOKS, notebook(f"nb-{number}", annotations={"a/b": "x" * 100_000}))
    loop = loops(replace(QUICK, page=16, page_bytes=250_000))
    wait_until(lambda: loop.names() == sorted(names) and api.watching(NOTEBOOKS))
    limits = [int(request.query["limit"]) for request in api.requests if request.verb == LIST]
    assert limits[0] == 16
    assert 2 in limits
    assert len(limits) < 30


def test_one_object_that_is_too_large_is_told_and_tried_again(api: FakeApi, loops: Any) -> None:
    """It cannot be, as the API server's own limit is below; nothing may go round in circles for it."""
    fill(api, 1)
    api.put(NOTEBOOKS, notebook("large", annotations={"a/b": "x" * 300_000}))
    loop = loops(replace(QUICK, page=16, page_bytes=250_000))
    wait_until(lambda: loop.restarts("broken") >= 2)
    assert loop.names() == []
    api.remove(NOTEBOOKS, "ann", "large")
    wait_until(lambda: loop.names() == ["nb-0"])


def test_a_server_that_is_back_and_has_forgotten_is_listed_soon(
    api: FakeApi, loops: Any, caplog: pytest.LogCaptureFixture
) -> None:
    names = fill(api, 1)
    api.misbehave(reset, WATCH, times=5)
    # an apiserver that has just started has not read its roles yet
    api.misbehave(status(403, "Forbidden"), WATCH)
    api.misbehave(status(410, "Expired"), WATCH)
    limits = replace(QUICK, first_delay=0.1, longest_delay=5.0)
    loop = loops(limits)
    wait_until(lambda: loop.restarts("gone") == 1 and loop.names() == names, limit_s=20)
    wait_until(lambda: api.count(LIST) == 2)
    waits = [fields(record, "reason", "wait_s") for record in caplog.records if "watch ended" in record.msg]
    assert [reason for reason, _ in waits] == ["broken"] * 5 + ["refused", "gone"]
    # 0.1 and 0.2 s; as the sixth and seventh failure in a row they would be 1.6 and 2.5 s at least
    assert sum(seconds for _, seconds in waits[5:]) < 0.5


def test_a_loop_that_waits_for_a_server_that_was_away_can_be_hurried(api: FakeApi, loops: Any) -> None:
    names = fill(api, 1)
    api.misbehave(reset, LIST)
    loop = loops(replace(QUICK, first_delay=60, longest_delay=60))
    wait_until(lambda: loop.restarts("broken") == 1)
    loop.watch.retry_now()
    wait_until(lambda: loop.names() == names)


def test_retry_now_does_not_shorten_what_a_server_asked_for(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    api.misbehave(status(429, "TooManyRequests", Retry_After="60"), LIST)
    loop = loops()
    wait_until(lambda: loop.restarts("refused") == 1)
    for _ in range(20):
        loop.watch.retry_now()
        time.sleep(0.01)
    assert api.count(LIST) == 1


def test_retry_after_is_waited_for(api: FakeApi, loops: Any) -> None:
    names = fill(api, 1)
    api.misbehave(status(429, "TooManyRequests", Retry_After="1"), LIST)
    api.misbehave(status(429, "TooManyRequests", Retry_After="1"), WATCH)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    at = [request.at for request in api.requests]
    assert len(at) == 4, "one refused list, one list, one refused watch, one watch"
    assert at[1] - at[0] >= 1
    assert at[3] - at[2] >= 1


def test_deletes_that_were_missed_are_told_by_the_next_list(api: FakeApi, loops: Any) -> None:
    names = fill(api, 4)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    api.misbehave(reset, WATCH, times=10_000)
    api.end_watches()
    wait_until(lambda: not api.watching(NOTEBOOKS))
    api.remove(NOTEBOOKS, "ann", "nb-1")
    api.put(NOTEBOOKS, notebook("nb-2", annotations={"bitfusion.io/request": "-n 3"}))
    api.compact()
    loop.changes.clear()
    api.behave()
    wait_until(lambda: loop.names() == ["nb-0", "nb-2", "nb-3"])
    wait_until(lambda: loop.metric("bitfusion_watch_lists_total") == 2)
    assert loop.changes == [(("ann", "nb-1"), "gone"), (("ann", "nb-2"), "changed")]


@pytest.mark.parametrize("where", [LIST, WATCH])
def test_an_answer_that_never_begins_is_given_up(api: FakeApi, loops: Any, where: str) -> None:
    names = fill(api, 1)
    api.misbehave(stall, where)
    loop = loops(replace(QUICK, list_timeout=(10, 1), watch_timeout=(10, 1)))
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    assert loop.restarts("broken") >= 1
    assert api.count(LIST, WATCH) <= 5


def test_silence_beyond_the_servers_own_limit_ends_a_watch(api: FakeApi, loops: Any) -> None:
    names = fill(api, 1)
    api.misbehave(raw(then=stall), WATCH)
    limits = WatchLimits(shortest_watch=0.4, longest_watch=0.5, margin=0.3, first_delay=0.1, steady=30)
    loop = loops(limits)
    wait_until(lambda: loop.names() == names and loop.restarts("broken") >= 1)
    wait_until(lambda: api.count(WATCH) >= 2)
    first, second = [request for request in api.requests if request.verb == WATCH][:2]
    assert second.at - first.at >= 0.7


def test_once_bookmarks_are_seen_much_less_silence_is_enough(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    api.misbehave(raw(bookmark(300), then=stall), WATCH, times=2)
    limits = WatchLimits(shortest_watch=300, longest_watch=300, margin=30, quiet=0.3, first_delay=0.1)
    loop = loops(limits)
    wait_until(lambda: loop.restarts("broken") >= 2)
    assert api.count(LIST) == 1


def test_a_watch_that_ends_when_it_was_asked_to_is_followed_at_once(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    # however late this side sees its beginning, it has lived long enough to count as one that worked
    limits = WatchLimits(shortest_watch=1.0, longest_watch=1.0, steady=0, first_delay=60, longest_delay=60)
    loop = loops(limits)
    wait_until(lambda: loop.restarts("timeout") >= 2 and api.watching(NOTEBOOKS))
    assert api.count(LIST) == 1


def test_a_slow_list_is_waited_for(api: FakeApi, loops: Any) -> None:
    names = fill(api, 4)

    def slowly(handler: Handler) -> None:
        time.sleep(0.7)
        handler.server.api.serve(handler, "GET", NOTEBOOKS, {"limit": "2"}, None, arrived=False)

    api.misbehave(slowly, LIST)
    loop = loops()
    wait_until(lambda: loop.names() == names)
    assert loop.restarts("broken") == 0


def test_a_bug_in_what_is_called_does_not_end_the_loop(api: FakeApi, loops: Any) -> None:
    names = fill(api, 2)
    loop = loops()
    wait_until(lambda: loop.names() == names and api.watching(NOTEBOOKS))
    loop.bug = True
    api.put(NOTEBOOKS, notebook("while-broken"))
    wait_until(lambda: loop.restarts("failed") >= 1)
    loop.bug = False
    wait_until(lambda: "while-broken" in loop.names())


def test_objects_of_any_shape_are_tolerated(api: FakeApi, loops: Any) -> None:
    strange: list[Object] = [
        {"metadata": {"name": "a", "namespace": "ann", "annotations": None, "labels": []}},
        {
            "metadata": {"name": "b", "namespace": "ann", "annotations": {"bitfusion.io/request": 5}},
            "spec": [],
        },
        {
            "metadata": {"name": "c", "namespace": "ann"},
            "spec": {"template": {"spec": {"containers": [None, 3]}}},
        },
    ]
    for data in strange:
        api.put(NOTEBOOKS, data)
    loop = loops()
    wait_until(lambda: loop.names() == ["a", "b", "c"] and api.watching(NOTEBOOKS))
    assert loop.restarts("failed") == 0


def test_stop_ends_a_read_that_waits(api: FakeApi, loops: Any) -> None:
    fill(api, 1)
    loop = loops(replace(QUICK, shortest_watch=3600, longest_watch=3600))  # by itself it would not end
    wait_until(lambda: api.watching(NOTEBOOKS))
    threading.Timer(0.2, loop.watch.stop).start()
    assert loop.watch.join(scaled(10))
    assert loop.restarts("broken") == 0


def test_the_defaults_are_those_that_were_decided() -> None:
    limits = WatchLimits()
    assert limits.page == 500
    assert (limits.shortest_watch, limits.longest_watch) == (240, 480)
    assert limits.margin == 30
    assert (limits.first_delay, limits.longest_delay) == (1, 30)


AGE = "bitfusion_watch_cache_age_seconds"


def test_what_the_server_says_of_the_whole_cache_makes_it_young_again(
    api: FakeApi, loops: Any, clock: Clock
) -> None:
    fill(api, 1)
    loop = loops(age=CacheAge(clock))
    wait_until(lambda: api.watching(NOTEBOOKS))
    assert loop.metric(AGE) == 0
    clock.now += 70
    assert loop.metric(AGE) == 70  # a watch that is open says nothing by itself
    api.put(NOTEBOOKS, notebook("more"))
    wait_until(lambda: loop.metric(AGE) == 0)
    clock.now += 70
    api.end_watches()  # early: who knows what was not told
    wait_until(lambda: loop.restarts("closed") == 1 and api.watching(NOTEBOOKS))
    assert loop.metric(AGE) == 70


@pytest.mark.parametrize(
    ("limits", "bookmarks", "reason"),
    [
        pytest.param(QUICK, 0.05, "", id="bookmarks"),
        pytest.param(replace(QUICK, shortest_watch=1, longest_watch=1), None, "timeout", id="an orderly end"),
    ],
)
def test_a_quiet_watch_keeps_the_cache_young(
    api: FakeApi, loops: Any, clock: Clock, limits: WatchLimits, bookmarks: float | None, reason: str
) -> None:
    fill(api, 1)
    api.bookmark_every_s = bookmarks
    loop = loops(limits, CacheAge(clock))
    wait_until(lambda: api.watching(NOTEBOOKS))
    clock.now += 600
    wait_until(lambda: loop.metric(AGE) == 0)
    if reason:
        wait_until(lambda: loop.restarts(reason))


GONE_IN_STREAM = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(403, "Forbidden"), id="rights taken away"),
        pytest.param(raw(GONE_IN_STREAM), id="410 in every stream"),
        pytest.param(raw(b"half a li"), id="garbage"),
        pytest.param(reset, id="connections cut"),
    ],
)
def test_a_cache_that_nothing_true_is_said_of_grows_old_and_stays(
    api: FakeApi, loops: Any, clock: Clock, fault: Fault
) -> None:
    """Ten minutes of it: what is held stays there to be asked, and the replica goes on being ready."""
    fill(api, 2)
    loop = loops(age=CacheAge(clock))
    wait_until(lambda: api.watching(NOTEBOOKS))
    api.misbehave(fault, WATCH, times=1000)
    api.misbehave(status(403, "Forbidden"), LIST, times=1000)
    api.end_watches()
    api.put(NOTEBOOKS, notebook("not told"))
    asked = api.count(LIST, WATCH)
    clock.now += 600
    wait_until(lambda: api.count(LIST, WATCH) >= asked + 4)
    assert loop.metric(AGE) == 600
    assert loop.cache.synced()
    assert loop.names() == ["nb-0", "nb-1"]
    api.behave()
    wait_until(lambda: loop.metric(AGE) == 0 and "not told" in loop.names())


def test_an_age_is_shown_from_start_to_stop(api: FakeApi) -> None:
    loop = Loop(api, QUICK, CacheAge(lambda: 5.0))
    shown = {"resource": "notebooks"}
    assert loop.registry.get_sample_value(AGE, shown) is None
    loop.watch.start()
    assert loop.registry.get_sample_value(AGE, shown) == 0
    loop.watch.stop()
    assert loop.registry.get_sample_value(AGE, shown) is None
    assert loop.watch.join(scaled(5))
