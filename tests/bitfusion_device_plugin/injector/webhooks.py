"""Other people's mutating webhooks, as they are called before and after ours: each changes a pod once.

`katib_collected` is compared with what Katib's own code makes, see `katib.json`. `vault_env_in_front` does
what ``mutateContainers`` of bank-vaults does, `recommended` what the Vertical Pod Autoscaler does,
`overridden` what OpenShift's ClusterResourceOverride does.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from tests.bitfusion_device_plugin.injector.pods import LOCAL_VOLUMES, Object

Change = Callable[[Object], None]
Words = Callable[[list[str]], list[str]]

DONE = "other.example.com/"  # an annotation: the webhook has been here
METRICS = "/var/log/katib/metrics.log"
COMPLETED = "echo completed > /var/log/katib/$$$$.pid"
EARLY_STOPPED = (
    "if test -f /var/log/katib/$$$$.pid && [ $(head -n 1 /var/log/katib/$$.pid) = early-stopped ]; then "
    "echo Training Container was Early Stopped; else echo Training Container was Failed; exit 1; fi"
)
COLLECTOR = "metrics-logger-and-collector"
RENAMED = "renamed-"
COPIED = ("cpu", "memory", "ephemeral-storage")


def applied(pod: Object, changes: Iterable[Change]) -> Object:
    """The pod after these webhooks, in this order; the one given is not written to."""
    pod = json.loads(json.dumps(pod))  # as it travels: no part is the same object as another one
    for change in changes:
        done = DONE + change.__name__.replace("_", "-")
        annotations = pod["metadata"].setdefault("annotations", {})
        if annotations is None:
            annotations = pod["metadata"]["annotations"] = {}
        if done not in annotations:
            annotations[done] = ""
            change(pod)
    return pod


def katib_collected(pod: Object, primary: str = "", early_stopping: bool = False) -> None:
    """Katib's webhook with its StdOut collector: ``wrapWorkerContainer`` and what stands around it.

    `primary`: the trial's container; the first that has a command, if none is named.
    """
    spec = pod["spec"]
    for container in spec["containers"]:
        if _words(container) and primary in ("", container["name"]):
            break
    else:
        return
    shell, words = ["sh", "-c"], _words(container)
    if words[0] in ("sh", "bash") and words[1:2] == ["-c"]:
        shell, words = words[:2], words[2:]
    stopping = ["||", EARLY_STOPPED] if early_stopping else []
    line = [*words, f"1>{METRICS} 2>&1", *stopping, "&&", COMPLETED]
    container["command"], container["args"] = shell, [" ".join(line)]
    spec["containers"].append({"name": COLLECTOR, "image": "katib/file-metrics-collector"})
    spec["shareProcessNamespace"] = True
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": "metrics-volume", "emptyDir": {}}]
    for each in (container, spec["containers"][-1]):
        mount = {"name": "metrics-volume", "mountPath": "/var/log/katib"}
        each["volumeMounts"] = [*(each.get("volumeMounts") or ()), mount]


def vault_env_in_front(pod: Object) -> None:
    """All words become arguments of another program, which is put there by an init container of its own."""
    first = {"name": "copy-vault-env", "image": "vault-env"}
    pod["spec"]["initContainers"] = [first, *(pod["spec"].get("initContainers") or ())]
    for container in pod["spec"]["containers"]:
        if words := _words(container):
            container["command"], container["args"] = ["/vault/vault-env"], words


def launcher_in_front(pod: Object) -> None:
    """A tracing tool's launcher before the command."""
    _each_command(pod, lambda words: ["ddtrace-run", *words])


def init_in_front(pod: Object) -> None:
    """A small init system before the command, which ends its options."""
    _each_command(pod, lambda words: ["tini", "--", *words])


def in_a_shell(pod: Object) -> None:
    """A shell that does something first, and gets the words as its arguments."""
    _each_command(pod, lambda words: ["sh", "-c", ': ready; exec "$0" "$@"', *words])


def quoted_in_a_line(pod: Object) -> None:
    """A shell's line made with care."""
    _each_command(pod, lambda words: ["bash", "-c", f": ready; {shlex.join(words)}"])


def container_in_front(pod: Object) -> None:
    """A sidecar before all containers, an init container before all of those."""
    spec = pod["spec"]
    mounts = [{"name": "sidecar-data", "mountPath": "/data"}]
    spec["containers"].insert(0, {"name": "first", "image": "i", "volumeMounts": mounts})
    first = {"name": "first-init", "image": "i", "restartPolicy": "Always"}
    spec["initContainers"] = [first, *(spec.get("initContainers") or ())]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": "sidecar-data", "emptyDir": {}}]


def volumes_renamed(pod: Object) -> None:
    """Every volume has another name, wherever it is mentioned."""
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ()), {"volumeMounts": spec["volumes"]}):
        for named in each.get("volumeMounts") or ():
            named["name"] = RENAMED + named["name"]


def local_volume_named(pod: Object) -> None:
    """A volume of another webhook's is named to the cluster autoscaler."""
    annotations = pod["metadata"]["annotations"]
    annotations[LOCAL_VOLUMES] = ",".join(filter(None, [annotations.get(LOCAL_VOLUMES), "another"]))


def recommended(pod: Object, cpu: str = "50m", memory: str = "128Mi") -> None:
    """Requests of containers by what they have used, limits in proportion; init containers are not seen."""
    for container in pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        resources["requests"] = {**(resources.get("requests") or {}), "cpu": cpu, "memory": memory}
        limits = resources.get("limits") or {}
        resources["limits"] = {
            name: {"cpu": cpu, "memory": memory}.get(name, value) for name, value in limits.items()
        }


def raised(pod: Object) -> None:
    """The same, by more than anybody asked for."""
    recommended(pod, "7", "60Gi")


def overridden(pod: Object) -> None:
    """Requests of all containers, init containers among them, become a small part of their limits."""
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())):
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        small = {name: small for name, small in (("cpu", "10m"), ("memory", "1Mi")) if name in limits}
        if small:
            resources["requests"] = {**(resources.get("requests") or {}), **small}


def without_limits(pod: Object) -> None:
    """No container has a limit of CPU, and of memory none that is more than what it asks for."""
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        limits = {name: value for name, value in (resources.get("limits") or {}).items() if name != "cpu"}
        memory = (resources.get("requests") or {}).get("memory")
        resources["limits"] = {**limits, **({"memory": memory} if memory else {})}
        if resources["limits"]:
            container["resources"] = resources


MAKES_LINES: tuple[Change, ...] = (katib_collected, quoted_in_a_line, in_a_shell)
MOVES: tuple[Change, ...] = (*MAKES_LINES, vault_env_in_front, launcher_in_front, init_in_front)
LOWERS: tuple[Change, ...] = (recommended, overridden, without_limits)
OTHERS: tuple[Change, ...] = (container_in_front, volumes_renamed, local_volume_named)
WEBHOOKS: tuple[Change, ...] = (*MOVES, *LOWERS, raised, *OTHERS)


def _words(container: Object) -> list[Any]:
    """Command and arguments; none where there is no command, which is in the image."""
    return [*container["command"], *(container.get("args") or ())] if container.get("command") else []


def _each_command(pod: Object, change: Words) -> None:
    for container in pod["spec"]["containers"]:
        if words := _words(container):
            container["command"] = change(words)
            container.pop("args", None)
