"""Connections to the apiserver are cut, stall, or are refused for an old token: the reconciler recovers."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from bitfusion_cluster.watching.watched_resource import WatchLimits
from tests.cluster.api_client import ApiClient, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.lone_reconciler import api_port, reconciler
from tests.cluster.notebooks import Room
from tests.cluster.outages import (
    CLIENT,
    TWO,
    notes,
    say,
)
from tests.cluster.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def is_healed(room: Room, name: str) -> bool:
    return notes(room, name) == CLIENT


def is_refused(client: ApiClient) -> bool:
    try:
        client.get("/api")
    except Refused as refused:
        return refused.status == 401
    return False


@pytest.mark.long
@pytest.mark.timeout(120)
def test_connections_are_cut_again_and_again(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, WatchLimits()) as ours,
    ):
        room.create("nb-0", limits=TWO)
        wait_until(lambda: notes(room, "nb-0") == CLIENT, limit_s=20)
        sent, began = ours.sent, time.monotonic()
        times = []
        for number in range(1, 6):
            proxy.cut()
            cut = time.monotonic()
            room.create(f"nb-{number}", limits=TWO)
            wait_until(partial(is_healed, room, f"nb-{number}"), limit_s=60)
            times.append(time.monotonic() - cut)
        passed = time.monotonic() - began
        sent = ours.sent - sent
        shown = ", ".join(f"{seconds:.1f}" for seconds in times)
        say(f"connections cut 5 times: healed {shown} s after each cut; {sent} requests in {passed:.0f} s")
        # each cut: two watches, one write and its repetition, the lease each second or so
        assert sent <= 5 * 8 + passed * 1.5


@pytest.mark.timeout(120)
def test_a_token_that_is_no_longer_valid_is_read_again(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    accounts = f"/api/v1/namespaces/{room.namespace}/serviceaccounts"
    account = {"metadata": {"name": "runner"}}
    binding = {
        "metadata": {"name": f"runner-{room.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "runner", "namespace": room.namespace}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    room.client.create(accounts, account)
    room.client.create(bindings, binding)
    token = tmp_path / "token"
    token.write_text(cluster.service_account_token(room.namespace, "runner"))
    try:
        with (
            TcpProxy(api_port(cluster)) as proxy,
            reconciler(cluster, proxy, room, tmp_path, WatchLimits(), token) as ours,
        ):
            room.create("before", limits=TWO)
            wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
            sent, began = ours.sent, time.monotonic()
            # its tokens go with it; the apiserver believes one it has seen for 10 s more
            room.client.delete(f"{accounts}/runner")
            room.client.create(accounts, account)
            wait_until(partial(is_refused, cluster.client_as(token.read_text())), "the token is refused", 30)
            proxy.cut()
            wait_until(lambda: ours.restarts().get("notebooks: refused", 0) >= 2, limit_s=20)
            room.create("meanwhile", limits=TWO)
            wait_until(lambda: not ours.service.leading, limit_s=10)
            renewed = time.monotonic()
            token.write_text(cluster.service_account_token(room.namespace, "runner"))
            wait_until(lambda: notes(room, "meanwhile") == CLIENT, limit_s=40)
            healed, passed = time.monotonic() - renewed, time.monotonic() - began
            sent = ours.sent - sent
            say(f"token renewed: healed {healed:.1f} s after; {sent} requests in {passed:.0f} s")
            assert sent <= 25 + passed * 1.5
    finally:
        room.client.delete(f"{bindings}/runner-{room.namespace}")


@pytest.mark.timeout(120)
def test_connections_stall_half_open(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    # short watches, so that the silence that is allowed is short too
    limits = WatchLimits(shortest_watch=5, longest_watch=8, margin=2, steady=2, watch_timeout=(1, 2))
    with (
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, limits) as ours,
    ):
        room.create("before", limits=TWO)
        wait_until(lambda: notes(room, "before") == CLIENT, limit_s=20)
        wait_until(lambda: ours.service.leading, "the Lease")
        sent, began = ours.sent, time.monotonic()
        proxy.stall()
        room.create("meanwhile", limits=TWO)
        wait_until(lambda: not ours.service.leading, "the loss of the Lease", 5)
        lost = time.monotonic() - began
        time.sleep(12)
        assert notes(room, "meanwhile") == {}
        proxy.cut()
        proxy.flow()
        flowing = time.monotonic()
        wait_until(lambda: notes(room, "meanwhile") == CLIENT, limit_s=60)
        healed = time.monotonic() - flowing
        passed, sent = time.monotonic() - began, ours.sent - sent
        say(
            f"stalled half-open: stopped leading after {lost:.1f} s; healed {healed:.1f} s after the end of "
            f"the stall; {sent} requests in {passed:.0f} s; watches ended: {ours.restarts()}"
        )
        assert sent <= 25 + passed * 1.5
