"""Many notebooks start at once: each gets what was written on it a moment before, by a look-up of its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import stateful_set_of
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import CLIENT, REQUEST, TWO, ours_of, say
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

AT_ONCE = 100
HALF = "-n 1 -p 0.5"
FAILURES = "bitfusion_admission_lookup_failures_total"


@pytest.mark.timeout(240)
def test_a_hundred_creations_at_once_have_the_size_of_now(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as ours, ThreadPoolExecutor(AT_ONCE) as pool:
        names = [f"nb-{number}" for number in range(AT_ONCE)]
        made = list(pool.map(lambda name: room.create(name, limits=TWO), names))
        wait_until(lambda: ours.metric("bitfusion_watch_objects") >= AT_ONCE, limit_s=30)
        times = []

        def create(notebook: Object) -> dict[str, str]:
            body = stateful_set_of(notebook, "1.7")
            began = time.monotonic()
            written = room.client.create(room.stateful_sets, body)
            times.append(time.monotonic() - began)
            return ours_of(written["spec"]["template"]["metadata"].get("annotations") or {})

        def edit(name: str) -> None:
            room.annotate_with({REQUEST: HALF}, name)

        list(pool.map(edit, names))
        templates = list(pool.map(create, made))
        lookups = ours.metrics("bitfusion_admission_lookups_total")
        failed = ours.metric(FAILURES)
        buckets = ours.metrics("bitfusion_admission_live_lookup_duration_seconds_bucket")
        right = {**CLIENT, REQUEST: HALF}
        late = [name for name, template in zip(names, templates, strict=True) if template != right]
        # On a machine that is too busy some answers come too late: the reconciler heals what was made then.
        assert len(late) <= AT_ONCE / 4
        wait_until(
            lambda: all(ours_of(room.template_annotations(name)) == right for name in late), limit_s=30
        )
    times.sort()
    say(
        f"{AT_ONCE} StatefulSets created at once, each with one look-up: median {times[50] * 1000:.0f} ms, "
        f"p99 {times[-2] * 1000:.0f} ms; {failed:.0f} look-ups failed ({lookups}), "
        f"{len(late)} healed afterwards; {buckets}"
    )
