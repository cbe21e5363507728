"""Random pods, common, rare and impossible, as an API server might send them for admission.

Of randomness only ``random()``: the same seed and number give the same pod with every Python, and Hypothesis
can shrink one. Image ``x`` is that of somebody else's container with a name of ours.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.gpu_nodes import GpuNodes
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import (
    FILTER,
    IMAGE,
    MANAGEMENT,
    OS,
    REQUEST,
    VERSION,
    Object,
)
from tests.bitfusion_device_plugin.injector.webhooks import WEBHOOKS, Change

T = TypeVar("T")

VMWARE = ClientRule("*", "*", "vmware", "registry.local/bitfusion:1", "bitfusion-client-ubuntu2204_4.5.4.deb")
SETTINGS = (
    DEFAULT_SETTINGS,
    InjectorSettings(gpu_memory_mib=16160),
    InjectorSettings((VMWARE,), gpu_memory_mib=16384),
    InjectorSettings(
        (ClientRule("ubuntu20", "*", "stand-in", "old:1"), ClientRule("ubuntu22", "*", "stand-in", "a"))
    ),
    InjectorSettings(gpu_memory_mib=16160, gates=True, hides_node_gpus=True),
    InjectorSettings(
        (ClientRule("*", "*", "pods", "client:1"),),
        gates=True,
        hides_node_gpus=True,
        sizes='{"sizes":[{"label":"$(HOME)"}]}',
        near_gpus=GpuNodes("nvidia.com/gpu.present", "true", "nvidia.com/gpu"),
    ),
)
NAMESPACES = ("ann", "ann", "ann", "ann", "", "kube-system", "ü")

SIZES: tuple[dict[str, Any], ...] = (
    {"bitfusion.io/gpu-amount": "1"},
    {"bitfusion.io/gpu-amount": "4", "bitfusion.io/gpu-percent": "50"},
    {"bitfusion.io/gpu-amount": "1", "bitfusion.io/gpu-memory": "8Gi"},
    {"bitfusion.io/gpu-50": "1"},
    {"bitfusion.io/gpu-1": "1024"},
    {"bitfusion.io/gpu-8gib": "2"},
    {"bitfusion.io/gpu-33": "3"},
)
WRONG_SIZES: tuple[dict[str, Any], ...] = (
    {"bitfusion.io/gpu-amount": "0"},
    {"bitfusion.io/gpu-percent": "50"},
    {"bitfusion.io/gpu-fifty": "1"},
    {"bitfusion.io/gpu-50": "1", "bitfusion.io/gpu-amount": "1"},
    {"bitfusion.io/gpu-9999999gib": "1"},
    {"bitfusion.io/gpu": "150"},
    {"bitfusion.io/gpus": "1"},
    {"bitfusion.io/GPU-50": "1"},
    {"bitfusion.io/gpu-ü": "1"},
    {"bitfusion.io/gpu-50": "-1"},
    {"bitfusion.io/gpu-50": 1.5},
    {"bitfusion.io/gpu-50": None},
)
OTHER_RESOURCES: tuple[dict[str, Any], ...] = (
    {},
    {"cpu": "1"},
    {"cpu": "500m", "memory": "1Gi"},
    {"memory": "1288490188800m", "ephemeral-storage": "1Gi"},
    {"nvidia.com/gpu": "1", "cpu": "2"},
    {"bitfusion.io/fpga": "1"},
)
PATHS = (
    "/home/jovyan",
    "/dev/shm",
    "/data",
    "/usr/local/share",
    "/opt/conda/bin/",
    "/bitfusion-data",
    "/etc/bitfusion/client.yaml",
    "/var/run/secrets/kubernetes.io/serviceaccount",
)
TAKEN_PATHS = (
    "/usr/local/bin",
    "/usr/local/bin/bitfusion",
    "/usr",
    "/bitfusion",
    "/bitfusion/pod/",
    "/bitfusion/identity",
    "/",
    "/etc/bitfusion",
    "/etc/bitfusion/tls/ca.crt",
    "//bitfusion//",
)
COMMANDS: tuple[list[Any], ...] = (
    ["/init"],
    ["python", "x.py", "--a=b c"],
    ["sh", "-c", "exec python x.py && echo $HOME; `id` | tee 'a b'"],
    ["/bin/bash", "-c", "bitfusion run -n 1 python"],
    ["bitfusion", "run", "-n", "1", "--", "x"],
    ["my program"],
    ["$(PROGRAM)", "$$x", "--", "--"],
    [""],
    [],
    ["x"] * 300,
)
FILTERS = ("a=b", "model=V100 x=$(id)`id`;rm", "", "nonsense", "=", "ü=ü")
REQUESTS = (
    "-n 1",
    "-n 2 -p 0.335",
    "-m 8192 -n 1",
    '{"gpus": 1}',
    "",
    " ",
    "-n 0",
    "nonsense",
    "'",
    "-n 1 --filter 'a=$(b) c'",
)
MANAGEMENTS = ("injection", "injection", "all", "all", "Yes", "none", "off", "", "nonsense")
FOREIGN_KEYS = (
    "sidecar.istio.io/inject",
    "poddefault.admission.kubeflow.org/poddefault-x",
    "a/b",
    "a~b/c",
    "xauto-management/bitfusion",
    "bitfusion.io/pending",
    "kubernetes.io/config.mirror",
    "kubectl.kubernetes.io/default-container",
    "ü/ñ~",
)
VALUES = ("", "true", "x", "ü 日本 😀\n", "y" * 500, "null")
ODD: tuple[Any, ...] = (None, [], {}, "", "text", 0, 1.5, True, [None], {"": None}, ["a", {"b": 1}], "\ud800")
GATES: tuple[list[Any], ...] = (
    [{"name": "example.com/x"}],
    [{"name": "example.com/x"}, {"name": "example.com/y"}],
    [{"name": "bitfusion.io/queue"}],
    [],
)
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Randomness(Protocol):
    """What is needed of `random.Random`; Hypothesis has one that can be shrunk."""

    def random(self) -> float:
        """A number from 0 up to 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pod, and all by which it is judged."""

    pod: Object
    namespace: str
    settings: InjectorSettings
    notebook: dict[str, Any] | None
    spoiled: bool = False
    """Something in the pod has an impossible shape."""


def case(seed: int, number: int) -> Case:
    """The pod with this number."""
    return random_case(random.Random(f"{seed}/{number}"))


def random_case(rng: Randomness) -> Case:
    """A pod made of common, rare and impossible parts."""
    chooser = Chooser(rng)
    notebook = chooser.annotations() if chooser.chance(0.3) else None
    pod = chooser.pod()
    return Case(pod, chooser.pick(NAMESPACES), chooser.pick(SETTINGS), notebook, chooser.spoiled)


class Chooser:
    """Draws parts of pods."""

    def __init__(self, rng: Randomness) -> None:
        self._random = rng.random
        self.spoiled = False

    def chance(self, share: float) -> bool:
        """Whether a rare thing happens; 0, to which Hypothesis shrinks, says no."""
        return self._random() >= 1 - share

    def pick(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[int(self._random() * len(values))]

    def pod(self) -> Object:
        """A whole pod, in two of three cases one that the API would take."""
        restricted = self.chance(0.5)
        names = ["nb", "istio-proxy", "side-1", "a" * 63]
        containers = [self.container(names[0], restricted, 0.85)]
        while self.chance(0.35) and len(containers) < 4:
            made = self.container(names[len(containers)], restricted, 0.3)
            containers.insert(int(self._random() * (len(containers) + 1)), made)
        spec: Object = {"containers": containers, "serviceAccountName": "default"}
        if self.chance(0.3):
            spec["initContainers"] = [
                self.container(f"init-{number}", restricted, 0.03)
                for number in range(1 + int(self._random() * 3))
            ]
            if self.chance(0.4):
                spec["initContainers"][0]["restartPolicy"] = "Always"
        self.add_volumes(spec)
        self.add_rest(spec, restricted)
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(), "spec": spec}
        if self.chance(0.12):
            self.spoiled = True
            self.spoil(made)
        return made

    def container(self, name: str, restricted: bool, asks: float) -> Object:
        """A container, of which that share asks."""
        made: Object = {"name": name, "image": self.pick((IMAGE, IMAGE, "team/x:1", "a@sha256:" + "0" * 64))}
        limits = dict(self.pick(OTHER_RESOURCES))
        requests = dict(limits) if self.chance(0.5) else {}
        if self.chance(asks):
            sizes = dict(self.pick(WRONG_SIZES if self.chance(0.06) else SIZES))
            limits |= sizes
            if self.chance(0.7):
                requests |= sizes
            elif self.chance(0.05):
                requests |= self.pick(SIZES)
        if limits or self.chance(0.5):
            made["resources"] = {"limits": limits, **({"requests": requests} if requests else {})}
        if self.chance(0.5):
            made["command"] = list(self.pick(COMMANDS[:7] if self.chance(0.95) else COMMANDS))
        if self.chance(0.4):
            made["args"] = ["a b", "--c", "$(D)"]
        if self.chance(0.4):
            made["env"] = [{"name": "LD_LIBRARY_PATH", "value": "/x"}, {"name": "PATH", "value": "/bin"}]
        mounts: list[Object] = []
        while self.chance(0.4):
            taken = self.chance(0.04)
            path = self.pick(TAKEN_PATHS if taken else PATHS)
            if path not in [mount["mountPath"] for mount in mounts]:
                mounts.append({"name": "home", "mountPath": path, "readOnly": self.chance(0.5)})
        if mounts:
            made["volumeMounts"] = mounts
        if restricted:
            made["securityContext"] = copy.deepcopy(RESTRICTED)
        elif self.chance(0.2):
            made["securityContext"] = {"runAsUser": 0, "privileged": True}
        return made

    def add_volumes(self, spec: Object) -> None:
        """The volume that containers mount, and sometimes one that has a name of ours."""
        spec["volumes"] = [{"name": "home", "emptyDir": {}}]
        if self.chance(0.05):
            name = self.pick(("bitfusion-client", "bitfusion-identity"))
            other: Object = {"secret": {"secretName": "bitfusion-client"}}
            sources: list[Object] = [
                {"emptyDir": {}},
                {"emptyDir": {"medium": "Memory"}} if "keys" in name else other,
            ]
            source = self.pick(sources)
            spec["volumes"].append({"name": name, **source})
        if self.chance(0.02):
            spec.setdefault("initContainers", []).append(
                {"name": self.pick(("bitfusion-client", "bitfusion-packages")), "image": "x"}
            )

    def add_rest(self, spec: Object, restricted: bool) -> None:
        """Fields that are nobody's business here."""
        if self.chance(0.3):
            spec["securityContext"] = {"fsGroup": 100}
            if self.chance(0.5):
                spec["securityContext"]["runAsUser"] = 1000 if restricted else self.pick((0, 1000))
        if self.chance(0.2):
            spec["tolerations"] = [{"key": self.pick(("x", "nvidia.com/gpu")), "operator": "Exists"}]
        if self.chance(0.1):
            spec["affinity"] = {"nodeAffinity": {}}
        if self.chance(0.1):
            spec["hostNetwork"] = not restricted
        if self.chance(0.1):
            spec["nodeName"] = "n1"
        if self.chance(0.05):
            spec["os"] = {"name": self.pick(("linux", "linux", "windows"))}
        if self.chance(0.1):
            spec["schedulingGates"] = list(self.pick(GATES))

    def metadata(self) -> Object:
        """Name, labels and annotations."""
        made: Object = {"name": "nb-0"}
        if self.chance(0.7):
            made["labels"] = {"notebook-name": self.pick(("nb", "nb", "other")), "app": "x"}
            if self.chance(0.03):
                made["labels"]["bitfusion.io/admission"] = self.pick(("ignore", "please"))
        if self.chance(0.9):
            made["annotations"] = self.annotations()
        return made

    def annotations(self) -> dict[str, Any]:
        """Those of ours and others."""
        made: dict[str, Any] = {}
        if self.chance(0.8):
            made[MANAGEMENT] = self.pick(MANAGEMENTS[:4] if self.chance(0.9) else MANAGEMENTS)
            made[OS] = self.pick(
                ("ubuntu22", "ubuntu20", "centos8", "../x") if self.chance(0.1) else ("ubuntu22",)
            )
            made[VERSION] = "454"
        if self.chance(0.2):
            made[REQUEST] = self.pick(REQUESTS[:2] if self.chance(0.5) else REQUESTS)
        if self.chance(0.15):
            made[FILTER] = self.pick(FILTERS)
        if self.chance(0.1):
            made["bitfusion.io/path"] = self.pick(("none", "none", "", "x"))
        if self.chance(0.05):
            made["auto-management/status"] = "injected"
        while self.chance(0.4):
            made[self.pick(FOREIGN_KEYS[:6] if self.chance(0.9) else FOREIGN_KEYS)] = self.pick(VALUES)
        return made

    def spoil(self, made: Object) -> None:
        """Put something in a place that the API would not let in, or take something away."""
        spec = made["spec"]
        container = spec["containers"][0]
        places: list[tuple[Any, Any]] = [
            (made, "metadata"),
            (made, "spec"),
            (spec, "containers"),
            (spec, "initContainers"),
            (spec, "volumes"),
            (spec, "securityContext"),
            (spec, "schedulingGates"),
            (spec, "nodeName"),
            (spec["containers"], 0),
            (made["metadata"], "annotations"),
            (made["metadata"], "labels"),
        ]
        places += [
            (container, key)
            for key in (
                "name",
                "image",
                "resources",
                "command",
                "args",
                "env",
                "volumeMounts",
                "volumeDevices",
            )
        ]
        resources = container.get("resources")
        if isinstance(resources, dict):
            places += [(resources, "limits"), (resources, "requests")]
        if spec["volumes"]:
            places.append((spec["volumes"], 0))
        annotations = made["metadata"].get("annotations")
        if annotations:
            places += [(annotations, key) for key in (MANAGEMENT, OS, REQUEST, FILTER, "bitfusion.io/path")]
        holder, key = self.pick(places)
        if isinstance(holder, dict) and self.chance(0.2):
            holder.pop(key, None)
        else:
            holder[key] = copy.deepcopy(self.pick(ODD))

    def webhooks(self) -> list[Change]:
        """Other people's webhooks, in the order of their turns; each comes once."""
        found: list[Change] = []
        while self.chance(0.6) and len(found) < 4:
            change = self.pick(WEBHOOKS)
            if change not in found:
                found.append(change)
        return found

    def disturb(self, made: Object) -> None:
        """What other webhooks and the API server may do to a pod between two passes."""
        spec = made["spec"]
        ours = spec["initContainers"][0]
        if self.chance(0.5):
            spec["initContainers"].insert(0, {"name": "late-init", "image": "x", "restartPolicy": "Always"})
        if self.chance(0.3):
            spec["containers"].insert(0, {"name": "late", "image": "x", "volumeMounts": []})
        if self.chance(0.15):
            spec["containers"].append(
                {"name": "late-asking", "image": "x", "resources": {"limits": dict(self.pick(SIZES))}}
            )
        if self.chance(0.3):
            ours["image"] = "mirror.local/" + ours["image"]
        if self.chance(0.3):
            ours["resources"] = {"limits": {"cpu": "7", "ephemeral-storage": "1Gi"}}
        if self.chance(0.3):
            ours["terminationMessagePath"] = "/dev/termination-log"
            ours["volumeMounts"].append({"name": "kube-api-access-x", "mountPath": "/var/run/secrets/x"})
        if self.chance(0.2):
            spec["volumes"].append({"name": "kube-api-access-x", "projected": {}})
        given = spec.get("schedulingGates") or []
        if isinstance(given, list) and self.chance(0.2):
            spec["schedulingGates"] = [{"name": "example.com/late"}, *given]
        if self.chance(0.1):
            asking = spec["containers"][-1]
            asking["volumeMounts"] = [
                *asking.get("volumeMounts", ()),
                {"name": "late", "mountPath": "/usr/local"},
            ]
