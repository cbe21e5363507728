"""A pod of each of the `kinds` on a node: all made at once, waited for together, and then looked into."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitfusion_client.pod.pod_contract import CLIENT_VOLUME, COMMAND_PATH
from tests.cluster.api_client import Object, Refused
from tests.cluster.installation import User
from tests.cluster.kinds import Kind
from tests.cluster.pods import SECURITY
from tests.cluster.pool_service import PoolService
from tests.support.machine import scaled
from tests.support.waiting import wait_until

AT_ONCE = 2
"""So many clients compute at once: the namespace's token is for two GPUs."""

# Runs with the GPU until its input ends.
_PROGRAM = """
import json, os, shutil, sys
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "home": os.environ.get("HOME"),
    # without what the pool adds
    "path": [each for each in os.environ["PATH"].split(":") if not each.startswith("/bitfusion/")],
    "python": shutil.which("python3"), "shell": os.path.exists("/bin/sh"),
    "writes": os.access("/tmp", os.W_OK),
}), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, eq=False)
class Place:
    """A container of a kind's pod, and the percent of a GPU that it asks for."""

    title: str
    kind: Kind
    pod: str
    container: str
    percent: int

    @property
    def command(self) -> tuple[str, ...]:
        """What runs a program on all of it."""
        share = f"{self.percent / 100:g}"
        return (self.kind.client, "run", "-n", "1", "-p", share, "--", "python3", "-c", _PROGRAM)


@dataclass(frozen=True)
class Row:
    """What was seen in one container, for a person, and what of it is not as its kind says."""

    place: Place
    seen: str
    wrong: Sequence[str] = ()


def places(kinds: Mapping[str, Kind]) -> list[Place]:
    """All containers; neighbours differ in what they ask for."""
    found: list[Place] = []
    for number, (title, kind) in enumerate(kinds.items()):
        for name in kind.containers:
            found.append(Place(title, kind, f"kind-{number}", name, 2 + len(found) % 7))
    return found


class KindPods:
    """The pods of all kinds in one user's namespace, which has a ResourceQuota and a LimitRange."""

    def __init__(self, user: User, kinds: Mapping[str, Kind]) -> None:
        self.user = user
        self.places = places(kinds)
        self._base = f"/api/v1/namespaces/{user.namespace}"
        self._cluster = user.cluster
        self._of_pods: dict[str, list[Place]] = {}
        for place in self.places:
            self._of_pods.setdefault(place.pod, []).append(place)

    def limit_namespace(self) -> None:
        """What an administrator sets for a team."""
        hard = {
            "limits.cpu": "40",
            "limits.memory": "20Gi",
            "requests.cpu": "4",
            "requests.memory": "4Gi",
            "requests.bitfusion.io/gpu": "200",
        }
        limits = {
            "type": "Container",
            "default": {"cpu": "1", "memory": "256Mi"},
            "defaultRequest": {"cpu": "10m", "memory": "32Mi"},
            "max": {
                "cpu": "2",
                "memory": "1Gi",
                "bitfusion.io/gpu": "400",
            },  # which becomes everyone's default
        }
        for kind, name, spec in (
            ("resourcequotas", "quota", {"hard": hard}),
            ("limitranges", "limits", {"limits": [limits]}),
        ):
            self._cluster.client.create(f"{self._base}/{kind}", {"metadata": {"name": name}, "spec": spec})

    def create(self) -> dict[str, str]:
        """All of them; by title the words of those that were refused."""
        refused = {}
        for beside in self._of_pods.values():
            try:
                self._cluster.client.create(f"{self._base}/pods", pod_of(beside))
            except Refused as error:
                refused[beside[0].title] = error.message
        return refused

    def wait(self, limit_s: float) -> dict[str, Object]:
        """Until each is ready, or not started as its kind says; the pods by name.

        A failure tells of each other one what `kubectl describe` says, and all its containers.
        """
        found: dict[str, Object] = {}
        wanted = [beside[0] for beside in self._of_pods.values() if not beside[0].kind.refused]

        def unsettled() -> list[str]:
            return [
                each.pod
                for each in wanted
                if each.pod not in found or not _settled(found[each.pod], each.kind)
            ]

        def all_settled() -> bool:
            for pod in self._cluster.client.get(f"{self._base}/pods")["items"]:
                found[pod["metadata"]["name"]] = pod
            return not unsettled()

        wait_until(all_settled, lambda: self.told(unsettled()), limit_s)
        return found

    def told(self, pods: Sequence[str]) -> str:
        """All about these pods, for failures."""
        namespace = ("-n", self.user.namespace)
        parts = []
        for name in pods:
            described = self._cluster.try_kubectl(*namespace, "describe", "pod", name)
            logs = self._cluster.try_kubectl(
                *namespace, "logs", name, "--all-containers", "--prefix", "--tail=40"
            )
            parts.append(
                f"=== {self._of_pods[name][0].title}\n{(described.stdout + described.stderr)[-6000:]}"
            )
            parts.append(f"--- its containers say\n{(logs.stdout + logs.stderr)[-2000:]}")
        return "\n".join(parts)

    def say(self, place: Place, *command: str) -> str:
        """What a command in that container says, wherever it says it."""
        done = self._cluster.try_kubectl(*self._exec(place), *command)
        return done.stdout + done.stderr

    @contextmanager
    def computing(self, chosen: Sequence[Place], folder: Path) -> Iterator[dict[Place, str]]:
        """A program runs with the GPU in each of these containers, for `with`; what has been said there."""
        files = {place: folder / f"{place.pod}-{place.container}" for place in chosen}
        with ExitStack() as stack:
            running = {place: stack.enter_context(self._run(place, file)) for place, file in files.items()}

            def said() -> dict[Place, str]:
                return {place: file.read_text(errors="replace") for place, file in files.items()}

            def all_have_spoken() -> bool:
                return all(
                    "}\n" in text or running[place].poll() is not None for place, text in said().items()
                )

            wait_until(all_have_spoken, said, 60)
            yield said()

    @contextmanager
    def _run(self, place: Place, file: Path) -> Iterator[subprocess.Popen[bytes]]:
        with file.open("wb") as output:
            process = self._cluster.start_kubectl(*self._exec(place, "-i"), *place.command, output=output)
        try:
            yield process
            process.communicate(timeout=scaled(60))  # its input ends, and so does the program
        finally:
            process.kill()
            process.communicate()

    def _exec(self, place: Place, *options: str) -> tuple[str, ...]:
        return ("-n", self.user.namespace, "exec", *options, place.pod, "-c", place.container, "--")


def pod_of(places: Sequence[Place]) -> Object:
    """The pod of these containers as its user writes it."""
    name, kind = places[0].pod, places[0].kind
    annotations = {"auto-management/bitfusion": "injection", **kind.annotations}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [_container(each) for each in places]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {**spec, **kind.pod}}


def _container(place: Place) -> Object:
    kind = place.kind
    size = kind.size or {f"bitfusion.io/gpu-{place.percent}": "1"}
    resources: Object = {"limits": {**size, **kind.limits}}
    if kind.limits:
        resources["requests"] = {"cpu": "10m", "memory": "32Mi"}
    return {
        "name": place.container,
        "image": kind.image,
        "command": ["/bin/sleep", "1000"],
        "securityContext": SECURITY,
        "resources": resources,
        **kind.container,
    }


def look_at_all(
    pods: KindPods, pool: PoolService, made: Mapping[str, Object], refused: Mapping[str, str], folder: Path
) -> list[Row]:
    """A row for each container. `made` and `refused` are of `wait` and `create`; `folder` is for output."""
    rows: dict[Place, Row] = {}
    for place in pods.places:
        kind = place.kind
        if kind.refused:
            rows[place] = _words(place, "is refused: ", kind.refused, refused.get(place.title, ""))
        elif kind.not_started:
            rows[place] = _words(
                place, "is not started: ", kind.not_started, _told_by_kubelet(made[place.pod])
            )
        elif kind.says:
            rows[place] = _words(place, "", kind.says, pods.say(place, *place.command))
    left = [place for place in pods.places if place not in rows]
    gpu_mib = pool.status()["servers"][0]["devices"][0]["memory_mib"]
    for batch in (left[start : start + AT_ONCE] for start in range(0, len(left), AT_ONCE)):
        with pods.computing(batch, folder) as said:
            leases = pods.user.leases()
            for place, text in said.items():
                own = [_percent(each, gpu_mib) for each in leases if f"/{place.pod}: " in each["label"]]
                wrong = _wrong_pod(made[place.pod], place.kind) + _wrong_container(text, place.kind)
                if place.percent not in own:
                    wrong.append(f"the pool shows {own} % and not {place.percent} %")
                if place.kind.version not in pods.say(place, place.kind.client, "version"):
                    wrong.append(f"it does not say {place.kind.version!r}")
                seen = f"{place.kind.client} computes on {place.percent} % of a GPU, given back"
                rows[place] = Row(place, seen, wrong)
        wait_until(lambda: not pods.user.leases(), pods.user.leases, 30)
    return [rows[place] for place in pods.places]


def _words(place: Place, what: str, words: str, seen: str) -> Row:
    return Row(place, what + words, () if words in seen else [f"it says {seen!r}"])


def _percent(lease: Mapping[str, Any], gpu_mib: int) -> int:
    leased: int = sum(device["memory_mib"] for device in lease["devices"])
    return round(100 * leased / gpu_mib)


def _settled(pod: Object, kind: Kind) -> bool:
    if kind.not_started:
        return kind.not_started in _told_by_kubelet(pod)
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _told_by_kubelet(pod: Object) -> str:
    """Why containers could not be started, as `kubectl describe pod` shows it."""
    words = []
    for status in pod["status"].get("containerStatuses", []):
        for state in (*status.get("state", {}).values(), *status.get("lastState", {}).values()):
            words.append(state.get("message", ""))
    return "\n".join(words)


def _wrong_pod(pod: Object, kind: Kind) -> list[str]:
    """What is not as it should be in what the injector made."""
    wrong = []
    users = set()
    for container in pod["spec"]["containers"]:
        users.add(container["securityContext"]["runAsUser"])
        mounts = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == COMMAND_PATH]
        if (CLIENT_VOLUME in mounts) != kind.mounted:
            wrong.append(f"at the path of {container['name']} is {mounts}")
    for container in pod["spec"]["initContainers"]:
        if container["securityContext"]["runAsUser"] not in users:
            wrong.append(f"{container['name']} does not run as one of {users}")
        for part in ("limits", "requests"):
            if not {"cpu", "memory"} <= container["resources"].get(part, {}).keys():
                wrong.append(f"{container['name']} has no {part} of cpu and memory")
    return wrong


def _wrong_container(said: str, kind: Kind) -> list[str]:
    """What is not as the row says where a program ran."""
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        return [f"it says {said!r}"]
    seen: dict[str, Any] = json.loads(lines[0])
    return [f"{key} is {seen.get(key)!r}" for key, value in kind.is_so.items() if seen.get(key) != value]
