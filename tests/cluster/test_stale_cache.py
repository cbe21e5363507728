"""Lists and watches are refused, or the apiserver does not tell a Notebook: what a pod starts with then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from bitfusion_cluster.notebooks.owners import LONGEST_LOOKUP
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.lone_reconciler import api_port
from tests.cluster.notebook_controller import stateful_set_of
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import NAME, OurController, our_controller
from tests.cluster.outages import CLIENT, PENDING, REQUEST, TWO, notes, ours_of, say, template
from tests.cluster.rights import may
from tests.cluster.tcp_proxy import TcpProxy
from tests.notebook_controller_patch.controller_process import LOOKUP_S
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

HALF, OTHER = "-n 1 -p 0.5", "-n 1 -p 0.25"
FAILURES = "bitfusion_admission_lookup_failures_total"
AGE = 'bitfusion_watch_cache_age_seconds{resource="notebooks"}'


class Setting:
    """Our controller behind a proxy, and its right to Notebooks."""

    def __init__(self, cluster: Cluster, proxy: TcpProxy, ours: OurController) -> None:
        self.cluster, self.proxy, self.ours = cluster, proxy, ours
        self._numbers = itertools.count()
        self.room = Room(cluster)
        """Where the tests write StatefulSets: no notebook controller does."""

    def allow(self, *verbs: str) -> None:
        """Of Notebooks, from now on, with connections that are made anew."""
        role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
        rules = self.cluster.client.get(role)["rules"]
        (place,) = [number for number, rule in enumerate(rules) if rule["resources"] == ["notebooks"]]
        operation = {"op": "replace", "path": f"/rules/{place}/verbs", "value": list(verbs)}
        self.cluster.client.patch(role, [operation])
        wait_until(lambda: self._may("watch") == ("watch" in verbs), "the API server knows the role", 20)
        before = self.refused()
        self.proxy.cut()
        if "watch" not in verbs:
            wait_until(lambda: self.refused() >= before + 2, "the watch is refused", 30)

    def _may(self, verb: str) -> bool:
        user = f"system:serviceaccount:{self.ours.namespace}:{NAME}"
        return may(self.cluster.client, user, group="kubeflow.org", resource="notebooks", verb=verb)

    def refused(self) -> float:
        name = "bitfusion_watch_restarts_total"
        return self.ours.metrics(name).get(f'{name}{{reason="refused",resource="notebooks"}}', 0)

    def failures(self) -> dict[str, float]:
        return self.ours.metrics(FAILURES)

    def age(self) -> float:
        return self.ours.metrics(AGE)[AGE]

    def ready(self) -> bool:
        return fetch(f"http://127.0.0.1:{self.ours.monitoring_port}/readyz") == "ok\n"

    def make(self, name: str, replicas: int = 0) -> Object:
        """A Notebook, and its StatefulSet as a notebook controller makes it."""
        made = self.room.create(name, limits=TWO)
        body = stateful_set_of(made, "1.7")
        body["spec"]["replicas"] = replicas
        return self.room.client.create(self.room.stateful_sets, body)

    def wait_for_the_watch(self) -> None:
        """Until an edit is told again. The age would show it only with the next bookmark, once a minute."""
        name = f"told-{next(self._numbers)}"
        self.make(name)
        self.room.annotate_with({REQUEST: HALF}, name)
        wait_until(lambda: template(self.room, name).get(REQUEST) == HALF, "the watch is back", 60)

    def settled(self, name: str) -> bool:
        """Whether its controller has seen the StatefulSet as it is."""
        found = self.room.client.get(f"{self.room.stateful_sets}/{name}")
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    def scale(self, name: str, replicas: int) -> dict[str, str]:
        """What the template has after the write that starts or stops it."""
        path = f"{self.room.stateful_sets}/{name}"
        written = self.room.client.merge(path, {"spec": {"replicas": replicas}})
        return ours_of(written["spec"]["template"]["metadata"].get("annotations") or {})


@pytest.fixture(scope="module")
def setting(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Setting]:
    """A test may say how many seconds a look-up may take."""
    lookup_s: float = getattr(request, "param", LOOKUP_S)
    with (
        TcpProxy(api_port(cluster)) as proxy,
        our_controller(cluster, api_port=proxy.port, lookup_s=lookup_s) as ours,
    ):
        yield Setting(cluster, proxy, ours)


@pytest.fixture(autouse=True)
def all_rights(setting: Setting) -> Iterator[None]:
    yield
    setting.proxy.flow()
    setting.allow("get", "list", "watch", "patch")
    setting.wait_for_the_watch()


@pytest.mark.timeout(240)
def test_with_lists_and_watches_refused_a_pod_starts_with_what_is_there_now(setting: Setting) -> None:
    room = Room(setting.cluster)
    with (
        setting.cluster.node_stub(room.namespace),
        setting.cluster.notebook_controller("1.7", room.namespace),
    ):
        room.create(limits=TWO)
        room.wait_running()
        setting.make("direct")
        setting.allow("get", "patch")
        young, before = setting.age(), setting.failures()
        # an edit, and then the user's stop and start
        room.annotate_with({REQUEST: HALF})
        room.stop()
        pod = room.start()
        assert ours_of(pod["metadata"]["annotations"]) == {**CLIENT, REQUEST: HALF}
        # an edit that is followed at once by a start
        for size in (OTHER, HALF, "-n 4"):
            setting.room.annotate_with({REQUEST: size}, "direct")
            assert setting.scale("direct", 1)[REQUEST] == size
            setting.scale("direct", 0)
        room.create("new", limits=TWO)
        assert ours_of(room.wait_running("new")["metadata"]["annotations"]) == CLIENT
        assert setting.age() > young
        assert setting.ready()
        assert setting.failures() == before


@pytest.mark.long
@pytest.mark.timeout(240)
def test_what_cannot_be_looked_up_is_what_the_cache_knows_and_is_healed(setting: Setting) -> None:
    room = setting.room
    forbidden = f'{FAILURES}{{decided_by="cache",reason="forbidden"}}'
    before = setting.failures().get(forbidden, 0)
    with setting.cluster.node_stub(room.namespace):
        setting.make("refused")
        room.annotate_with({REQUEST: HALF}, "refused")
        wait_until(lambda: template(room, "refused").get(REQUEST) == HALF, "healed while stopped", 20)
        setting.allow("patch")
        # A status written meanwhile would make the apiserver ask about the same start twice.
        wait_until(lambda: setting.settled("refused"), "the StatefulSet's status is written", 20)
        assert setting.scale("refused", 1) == {**CLIENT, REQUEST: HALF}
        assert setting.failures()[forbidden] == before + 1
        setting.scale("refused", 0)
        # neither the watch nor a look-up tells of this edit and of this removal: nothing is taken away
        room.annotate_with({REQUEST: None, "bitfusion-client/os": "centos8"}, "refused")
        assert setting.scale("refused", 1) == {**CLIENT, REQUEST: HALF}
        room.wait_running("refused")
        assert setting.ready()
        setting.allow("get", "list", "watch", "patch")
        wait_until(lambda: PENDING in notes(room, "refused"), "what was missed is told", 60)
        assert setting.scale("refused", 0)["bitfusion-client/os"] == "centos8"


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("setting", [LONGEST_LOOKUP], indirect=True, ids=["as it is"])
def test_an_apiserver_that_is_silent_is_waited_for_half_a_second(setting: Setting) -> None:
    room = setting.room
    setting.make("silent")
    room.annotate_with({REQUEST: HALF}, "silent")
    wait_until(lambda: template(room, "silent").get(REQUEST) == HALF, "healed while stopped", 20)
    # A status written meanwhile would make the apiserver ask about the same start twice.
    wait_until(lambda: setting.settled("silent"), "the StatefulSet's status is written", 20)
    slow = f'{FAILURES}{{decided_by="cache",reason="timeout"}}'
    before = setting.failures().get(slow, 0)
    setting.proxy.stall()
    try:
        began = time.monotonic()
        assert setting.scale("silent", 1) == {**CLIENT, REQUEST: HALF}
        seconds = time.monotonic() - began
    finally:
        setting.proxy.flow()
    say(f"the apiserver silent to us: a start took {seconds:.2f} s")
    assert setting.failures()[slow] == before + 1
    assert LONGEST_LOOKUP <= seconds < scaled(2)
    assert setting.ready()
