"""Which namespaces are served: one that says so itself, and every profile that does not say otherwise. Pure.

The same rule stands in CEL in `manifests/components/profiles/policy.yaml`, which holds the controller's
account to the namespaces that are served; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bitfusion_client.kubernetes.names import ADMISSION_IGNORE, LABEL_ADMISSION

LABEL_IDENTITY = "bitfusion.io/identity"
SERVED, NOT_SERVED = "true", "false"
Profiles = tuple[str, str]
"""Key and value of the label that all profiles have."""

_is_name = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?").fullmatch
_is_prefix = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
).fullmatch


def parse_profiles(text: str) -> Profiles:
    """``app.kubernetes.io/part-of=kubeflow-profile``. Raises ValueError: what is allowed.

    One label and no selector of several: the policy compares the same pair, and webhooks have it as it is.
    """
    key, equals, value = text.partition("=")
    prefix, slash, name = key.rpartition("/")
    if not (equals and _is_name(name) and _is_name(value) and (_is_prefix(prefix) if slash else not prefix)):
        raise ValueError("must be one label, KEY=VALUE, such as app.kubernetes.io/part-of=kubeflow-profile")
    return key, value


def is_served(labels: Mapping[str, object], profiles: Profiles | None) -> bool:
    """Whether a namespace with these labels is served; `profiles` is None where each has to say so itself."""
    said = labels.get(LABEL_IDENTITY)
    if said == SERVED:
        return True
    if profiles is None or said == NOT_SERVED or labels.get(LABEL_ADMISSION) == ADMISSION_IGNORE:
        return False
    key, value = profiles
    return labels.get(key) == value
