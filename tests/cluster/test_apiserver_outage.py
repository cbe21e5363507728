"""The apiserver ends, or freezes, and comes back: the controller goes on by itself, with few requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_cluster.watching.watched_resource import WatchLimits
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.lone_reconciler import api_port, reconciler
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import (
    CLIENT,
    PENDING,
    REQUEST,
    TWO,
    Asked,
    notes,
    say,
    template,
)
from tests.cluster.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

AWAY = (Refused, OSError)

pytestmark = pytest.mark.slow


@pytest.fixture
def recovered(cluster: Cluster) -> Iterator[None]:
    """Afterwards Kubernetes' own controllers are fresh: theirs wait long after the apiserver was away."""
    yield
    if not cluster.apiserver.running:
        cluster.apiserver.start()
    cluster.controller_manager.restart(signal.SIGKILL)
    cluster.new_namespace()  # gets its ServiceAccount from them


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        # the API server waits a minute for its watches to end
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=[pytest.mark.long, pytest.mark.apart]),
    ],
)
@pytest.mark.usefixtures("recovered")
def test_the_apiserver_ends_and_comes_back(cluster: Cluster, number: signal.Signals) -> None:
    room = Room(cluster)
    with our_controller(cluster) as ours:
        controller = cluster.notebook_controller("1.7", room.namespace)
        with cluster.node_stub(room.namespace), controller:
            room.create("before", limits=TWO)
            pod = room.wait_running("before")
            asked = Asked(ours)
            pid = ours.process.pid
            away = time.monotonic()
            try:
                down = cluster.apiserver.stop(number)
                time.sleep(5)
            finally:
                if not cluster.apiserver.running:
                    cluster.apiserver.start()
            began = time.monotonic()
            # the reconciler's, without the webhooks' help
            room.annotate_with({REQUEST: "-n 4"}, "before")
            wait_until(lambda: PENDING in notes(room, "before"), limit_s=60)
            told_after = time.monotonic() - began
            wait_until(lambda: room.create("after", limits=TWO), limit_s=30, errors=AWAY)
            wait_until(lambda: template(room, "after") == CLIENT, limit_s=60, errors=AWAY)
            back = time.monotonic() - began
            say(
                f"apiserver ended by {number.name} (took {down:.1f} s, then 5 s away): a change told "
                f"{told_after:.1f} s after its return, a new notebook right {back:.1f} s after; "
                f"{asked.since('bitfusion_watch')} lists and watches, "
                f"{asked.since('bitfusion_reconcile')} writes"
            )
            assert ours.process.pid == pid
            assert ours.process.running
            now = room.pod("before")
            assert now is not None
            assert now["metadata"]["uid"] == pod["metadata"]["uid"]
            # four loops; each failure waits longer than the one before, at most 30 s
            assert asked.since("bitfusion_watch") <= 4 * (6 + (time.monotonic() - away) / 8)
            assert asked.since("bitfusion_reconcile") <= 12


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("recovered")
def test_the_apiserver_freezes(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    limits = WatchLimits(shortest_watch=5, longest_watch=8, margin=2, steady=2, watch_timeout=(1, 2))
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, limits) as ours,
    ):
        room.create("before", limits=TWO)
        wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
        sent, began = ours.sent, time.monotonic()
        cluster.apiserver.freeze()
        try:
            time.sleep(12)
            assert not ours.service.leading
        finally:
            cluster.apiserver.thaw()
        thawed = time.monotonic()
        wait_until(lambda: room.create("after", limits=TWO), limit_s=20, errors=AWAY)
        wait_until(lambda: notes(room, "after") == CLIENT, limit_s=60)
        healed, passed = time.monotonic() - thawed, time.monotonic() - began
        sent = ours.sent - sent
        say(f"apiserver frozen for 12 s: healed {healed:.1f} s after; {sent} requests in {passed:.0f} s")
        assert sent <= 25 + passed * 1.5
