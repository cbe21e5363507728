"""Which engine is installed, by the map of clients and the settings of GPU pods. Pure but for `Seen`."""

from __future__ import annotations

from typing import NamedTuple

from bitfusion_client.errors import BitfusionError
from bitfusion_client.gpu_pods.settings import parse_settings
from bitfusion_client.gpu_pods.size_rules import SizeRule
from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, text
from bitfusion_client.one_line import one_line
from bitfusion_cluster.doctor.finding import LONGEST
from bitfusion_cluster.doctor.places import clients, gpu_pod_settings
from bitfusion_cluster.doctor.seen import Seen

PODS, STAND_IN, VMWARE = "pods", "stand-in", "vmware"  # the kinds of the map of clients
MEANINGS = {
    PODS: "GPUs of the cluster itself, in GPU pods",
    STAND_IN: "a pool served by this project's own client, simulated unless it has cards",
    VMWARE: "VMware's product",
}


class Client(NamedTuple):
    """One line of the map of clients."""

    kind: str
    image: str


class Engine(NamedTuple):
    """What notebooks compute by.

    Attributes:
        clients: The lines of the map, of known kinds.
        rules: Of GPU pods; empty where there are none, or none that can be read.
        wrong: What is wrong with one of the files; empty for nothing.
    """

    clients: tuple[Client, ...]
    rules: tuple[SizeRule, ...]
    wrong: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Each once, in the order of the map."""
        return tuple(dict.fromkeys(client.kind for client in self.clients))

    @property
    def has_pods(self) -> bool:
        """Whether cells compute in GPU pods."""
        return PODS in self.kinds

    @property
    def has_pool(self) -> bool:
        """Whether cells compute on a pool."""
        return STAND_IN in self.kinds or VMWARE in self.kinds

    @property
    def resources(self) -> tuple[str, ...]:
        """The GPU resources that GPU pods ask for; none where they ask in another way, by a claim for one."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.resources))

    @property
    def quota_keys(self) -> tuple[str, ...]:
        """The keys of a ResourceQuota that limit GPUs."""
        found = [f"requests.{name}" for name in self.resources] if self.has_pods else []
        return tuple(found + [QUOTA_UNITS] * self.has_pool)


def engine_of(seen: Seen) -> Engine:
    """The engine. Raises Unseen."""
    found = seen.one(clients(seen.namespace))
    if found is None:
        return Engine((), (), f"there is no ConfigMap bitfusion-clients in namespace {seen.namespace}")
    data, wrong = _yaml(found, "clients.yaml")
    lines = [Client(text(each.get("kind")), text(each.get("image"))) for each in mappings(data)]
    known = tuple(line for line in lines if line.kind in MEANINGS)
    if not wrong and not known:
        wrong = "clients.yaml names no client"
    if not any(line.kind == PODS for line in known):
        return Engine(known, (), wrong)
    settings, wrong_settings = _yaml(seen.one(gpu_pod_settings(seen.namespace)) or {}, "pods.yaml")
    try:
        rules = tuple(parse_settings(settings, "pods.yaml").rules)
    except BitfusionError as error:
        return Engine(known, (), wrong or one_line(error.user_message, LONGEST))
    return Engine(known, rules, wrong or wrong_settings)


def _yaml(config_map: object, name: str) -> tuple[object, str]:
    import yaml

    content = mapping(mapping(config_map).get("data")).get(name)
    try:
        return yaml.safe_load(content if isinstance(content, str) else ""), ""
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        return None, f"{name} is not YAML: {one_line(error, LONGEST)}"
