"""Which namespaces the injector is asked about; several checks look at these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.kubernetes.label_selectors import selects
from bitfusion_client.kubernetes.names import PODS_WEBHOOK
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, mappings, metadata_of, text
from bitfusion_cluster.api.paths import NAMESPACES
from bitfusion_cluster.doctor.places import OURS, PART_OF, POD_WEBHOOKS, PROFILE, daemon_sets
from bitfusion_cluster.doctor.seen import Seen

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject


def served_namespaces(seen: Seen) -> set[str]:
    """Those that the injector is asked about. Raises Unseen."""
    selector = _selector(seen)
    return {
        _name(each)
        for each in seen.items(NAMESPACES)
        if selects(selector, labels_of(each)) and mapping(each.get("status")).get("phase") != "Terminating"
    }


def users_of(seen: Seen) -> set[str]:
    """Served namespaces of users. Where all namespaces are served, those of Kubeflow's profiles."""
    served, selector = served_namespaces(seen), _selector(seen)
    chosen = any(
        each.get("operator") in ("In", "Exists") for each in mappings(selector.get("matchExpressions"))
    )
    if chosen or selector.get("matchLabels"):
        return served
    return served & {
        _name(each) for each in seen.items(NAMESPACES) if labels_of(each).get(PART_OF) == PROFILE
    }


def own_daemon_sets(seen: Seen) -> list[RawObject]:
    """Ours, in any namespace but a user's, who may give theirs every name and label. Raises Unseen."""
    profiles = {_name(each) for each in seen.items(NAMESPACES) if labels_of(each).get(PART_OF) == PROFILE}
    users = users_of(seen) | profiles
    return [
        each
        for each in seen.items(daemon_sets())
        if labels_of(each).get(PART_OF) == OURS and text(metadata_of(each).get("namespace")) not in users
    ]


def _selector(seen: Seen) -> RawObject:
    """Of the injector's webhook; one that selects nothing where there is none."""
    for webhook in mappings((seen.one(POD_WEBHOOKS) or {}).get("webhooks")):
        if webhook.get("name") == PODS_WEBHOOK:
            return mapping(webhook.get("namespaceSelector"))
    return {"matchExpressions": [{"operator": "none"}]}


def _name(data: RawObject) -> str:
    return text(metadata_of(data).get("name"))
