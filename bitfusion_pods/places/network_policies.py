"""What NetworkPolicies of a namespace say of the way from the notebook to its GPU pods. Pure.

By k8s.io/api/networking/v1: who is selected by no policy of a direction is open there; else one rule of one
of its policies has to let it through. Whether anybody enforces them the API does not tell.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.label_selectors import selects
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, mappings, metadata_of, text
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

EGRESS, INGRESS = "Egress", "Ingress"
_PARTS = {EGRESS: ("egress", "to"), INGRESS: ("ingress", "from")}
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Each namespace has it; of its other labels an account of a notebook may know nothing."""
MOST_NAMED, LONGEST_NAME = 5, 63


@dataclass(frozen=True, slots=True)
class Direction:
    """Out of the notebook, or into the GPU pod.

    Attributes:
        policies: Names of those that select the pod.
        is_open: Whether they let the port through; None: by addresses or labels that are not known here.
    """

    policies: tuple[str, ...]
    is_open: bool | None

    @property
    def names(self) -> str:
        """For a message."""
        named = ", ".join(one_line(name, LONGEST_NAME) for name in self.policies[:MOST_NAMED])
        more = len(self.policies) - MOST_NAMED
        return f"{named} and {more} more" if more > 0 else named


def direction(
    policies: object, which: str, of: RawObject, peer: RawObject, namespace: str, port: int
) -> Direction:
    """What they say of one direction.

    Args:
        policies: ``items`` of a NetworkPolicyList of the namespace, of any shape.
        which: `EGRESS` or `INGRESS`.
        of: The pod whose direction it is: the notebook's for `EGRESS`, the GPU pod for `INGRESS`.
        peer: The other one.
        namespace: That of both.
        port: Of the GPU pod, TCP.
    """
    rules, peers = _PARTS[which]
    names: list[str] = []
    found: list[bool | None] = []
    for policy in mappings(policies):
        spec = mapping(policy.get("spec"))
        types = spec.get("policyTypes")
        if not types or not isinstance(types, list):
            types = [INGRESS, *([EGRESS] if spec.get("egress") else [])]
        if which not in types or not selects(spec.get("podSelector"), labels_of(of)):
            continue
        names.append(text(metadata_of(policy).get("name")))
        for rule in mappings(spec.get(rules)):
            if _has_port(rule.get("ports"), port):
                found += _has_peer(rule.get(peers), peer, namespace)
    is_open: bool | None = not names or True in found
    return Direction(tuple(sorted(names)), None if not is_open and None in found else is_open)


def _has_port(ports: object, port: int) -> bool:
    return not ports or any(_is_port(each, port) for each in mappings(ports))


def _is_port(given: RawObject, port: int) -> bool:
    number = given.get("port")
    if given.get("protocol", "TCP") != "TCP":
        return False
    if isinstance(number, int):
        last = given.get("endPort")
        return number <= port <= (last if isinstance(last, int) else number)
    return number is None  # a name is one of the container's ports, of which a GPU pod has none


def _has_peer(peers: object, pod: RawObject, namespace: str) -> list[bool | None]:
    """For each whether it is the pod; None: perhaps."""
    return [_is_peer(each, pod, namespace) for each in mappings(peers)] if peers else [True]


def _is_peer(peer: RawObject, pod: RawObject, namespace: str) -> bool | None:
    if "ipBlock" in peer:
        return None  # of pods' addresses, which each network takes in another way
    if "podSelector" in peer and not selects(peer["podSelector"], labels_of(pod)):
        return False
    if peer.get("namespaceSelector") is None:
        return "podSelector" in peer
    selector = mapping(peer["namespaceSelector"])
    named = {each.get("key") for each in mappings(selector.get("matchExpressions"))}
    if {*named, *mapping(selector.get("matchLabels"))} - {NAMESPACE_LABEL}:
        return None
    return selects(selector, {NAMESPACE_LABEL: namespace})
