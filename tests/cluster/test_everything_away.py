"""All of ours in a cluster is killed at once: who waits for it, what is made meanwhile, and how it ends."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.installation import SYSTEM, Installation, Notebook, User
from tests.cluster.node import SMALL
from tests.cluster.notebook_controller import STOPPED
from tests.cluster.outages import REQUEST, ours_of, say
from tests.cluster.pods import SECURITY, Pods
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.apart,
    pytest.mark.timeout(1200),
]  # images are built when they never were

QUARTER = {"bitfusion.io/gpu-25": "1"}
SLEEPS = "trap exit TERM; while :; do /bin/busybox sleep 1; done"
AWAY, BACK = "BitfusionInjectorAway", "BitfusionInjectorBack"
OUTAGE_S = 25.0
"""Long enough for every Lease to be a dead process's."""


class OurPrograms:
    """The Deployments of the manifests, all of them."""

    def __init__(self, installation: Installation) -> None:
        self._node = installation.node
        self._cluster = installation.cluster
        found = self._cluster.client.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments")["items"]
        self._replicas = {each["metadata"]["name"]: int(each["spec"]["replicas"]) for each in found}

    def _pods(self) -> list[Object]:
        return list(self._cluster.client.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"])

    def die(self) -> None:
        """Killed, so that no Lease is given back and no review answered; and they do not come back."""
        containers = [
            container["containerID"].partition("://")[2]
            for pod in self._pods()
            for container in pod["status"]["containerStatuses"]
        ]
        assert len(containers) == sum(self._replicas.values())
        for container in containers:
            self._node.ctr("tasks", "kill", "--signal", "SIGKILL", container)
        for name in self._replicas:
            self._cluster.kubectl("-n", SYSTEM, "scale", f"deployment/{name}", "--replicas=0")
        wait_until(lambda: not self._pods(), f"no pod in {SYSTEM}", 60)

    def return_(self) -> float:
        """All at once; the seconds until all were ready."""
        began = time.monotonic()
        for name, replicas in self._replicas.items():
            self._cluster.kubectl("-n", SYSTEM, "scale", f"deployment/{name}", f"--replicas={replicas}")
        for name in self._replicas:
            limit = f"--timeout={scaled(120):.0f}s"
            self._cluster.kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{name}", limit, limit_s=130)
        return time.monotonic() - began


def asking(user: User, name: str, limits: dict[str, str] = QUARTER, **more: dict[str, str]) -> Notebook:
    """A small notebook, whose image needs no Jupyter for what is looked at here."""
    size = {"cpu": "50m", "memory": "64Mi"}
    resources = {"limits": {**size, **limits}, "requests": size}
    return user.notebook(
        name, {}, image=SMALL, command=["/bin/sh", "-c", SLEEPS], resources=resources, **more
    )


def events(user: User, name: str) -> list[str]:
    """Our Events on a notebook, the oldest first."""
    found = user.cluster.client.get(f"/api/v1/namespaces/{user.namespace}/events")["items"]
    ours = [
        (each["firstTimestamp"], each["reason"])
        for each in found
        if each["involvedObject"]["kind"] == "Notebook"
        and each["involvedObject"]["name"] == name
        and each["reason"].startswith("Bitfusion")
    ]
    return [reason for _, reason in sorted(ours)]


def is_told(user: User, name: str) -> bool:
    """The absence only if it lasted until the controller was back; and nothing of a change."""
    return events(user, name) in ([BACK], [AWAY, BACK])


def refused_pods(user: User, name: str) -> list[str]:
    """Why the notebook's StatefulSet could make no pod."""
    found = user.cluster.client.get(f"/api/v1/namespaces/{user.namespace}/events")["items"]
    return [
        each["message"]
        for each in found
        if each["involvedObject"]["name"] == name and each["reason"] == "FailedCreate"
    ]


def stateful_set(user: User, name: str) -> Object:
    return user.cluster.client.get(f"/apis/apps/v1/namespaces/{user.namespace}/statefulsets/{name}")


def is_injected(pod: Object) -> bool:
    container = pod["spec"]["containers"][0]
    return (
        pod["spec"].get("initContainers", [{"name": ""}])[0]["name"] == "bitfusion-client"
        and container["resources"]["limits"].get("bitfusion.io/gpu") == "25"
        and not any(key.startswith("bitfusion.io/gpu-") for key in container["resources"]["limits"])
    )


def test_who_does_not_ask_waits_for_nobody_and_who_asks_starts_after_the_return(
    installation: Installation, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = installation.cluster
    elsewhere = [
        Pods(installation.node, where) for where in (user.namespace, cluster.new_namespace(), "kube-system")
    ]
    runs, evicted, stopped = (asking(user, name) for name in ("runs", "evicted", "stopped"))
    before = runs.wait_ready()
    evicted.wait_ready()
    stopped.wait_ready()
    stopped.stop()
    programs = OurPrograms(installation)

    programs.die()
    died = time.monotonic()
    # Who does not ask: in every namespace, at once.
    for pods in elsewhere:
        pods.make("unrelated", SLEEPS)
    plain = asking(user, "plain", {})
    made_s = time.monotonic() - died
    # Who asks: the Notebook is made as it was written, its pod is not.
    new = asking(user, "new")
    by_annotation = asking(user, "by-annotation", {}, annotations={REQUEST: "-n 1 -p 0.25"})
    stopped.annotate({STOPPED: None})
    pod_path = f"/api/v1/namespaces/{user.namespace}/pods"
    cluster.client.delete(f"{pod_path}/evicted-0")
    by_hand: Object = {
        "metadata": {"name": "by-hand"},
        "spec": {
            "containers": [
                {"name": "c", "image": SMALL, "securityContext": SECURITY, "resources": {"limits": QUARTER}}
            ]
        },
    }
    with pytest.raises(Refused, match=r'failed calling webhook "pods\.bitfusion\.io"'):
        cluster.client.create(pod_path, by_hand)
    for pods in elsewhere:
        pods.wait_running("unrelated")
    plain.wait_ready()
    waiting = [new, evicted, stopped]
    for notebook in waiting:
        wait_until(partial(refused_pods, user, notebook.name), f"{notebook.name} is refused", 60)
        assert all('webhook "pods.bitfusion.io"' in why for why in refused_pods(user, notebook.name))
    wait_until(lambda: time.monotonic() - died >= OUTAGE_S, "the outage is long enough", OUTAGE_S + 5)
    assert ours_of(stateful_set(user, "new")["spec"]["template"]["metadata"].get("annotations") or {}) == {}
    assert all(notebook.pod() is None for notebook in waiting)
    assert all(events(user, notebook.name) == [] for notebook in waiting)
    # Its limits do not ask, so nothing holds it up: it runs without GPUs.
    assert not is_injected(by_annotation.wait_ready())

    ready_s = programs.return_()
    back = time.monotonic()
    for notebook in waiting:
        wait_until(notebook.pod, notebook.told, 20)
    pods_s = time.monotonic() - back
    for notebook in waiting:
        assert is_injected(notebook.wait_ready())
    run_s = time.monotonic() - back
    for notebook in waiting:
        wait_until(partial(is_told, user, notebook.name), partial(events, user, notebook.name), 20)
    wait_until(lambda: events(user, "by-annotation") == ["BitfusionChangePending"], "it is told", 20)
    now = runs.wait_ready()
    assert now["metadata"]["uid"] == before["metadata"]["uid"], "a running notebook was restarted"
    assert [each["restartCount"] for each in now["status"]["containerStatuses"]] == [0]
    for pods in elsewhere:
        pods.delete("unrelated")
    # As if nothing had been: the size that was asked for, from the next start.
    by_annotation.stop()
    assert is_injected(by_annotation.start())
    with capsys.disabled():
        say(
            f"all of ours killed for {OUTAGE_S:g} s: {len(elsewhere)} unrelated pods and a notebook made in "
            f"{made_s:.1f} s; ours are ready {ready_s:.1f} s after their start, and {pods_s:.1f} s later "
            f"{len(waiting)} notebooks have their pods, which run after {run_s:.1f} s"
        )
