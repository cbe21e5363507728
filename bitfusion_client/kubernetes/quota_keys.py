"""Keys of a ResourceQuota: the one that counts units, and those that look like it and limit nothing. Pure.

The API server takes any name of a resource there, and counts extended ones by ``requests.NAME`` alone; sizes
such as ``bitfusion.io/gpu-50`` it never sees in a pod, as the injector has made units of them. Where programs
run in GPU pods there are no units either: use what those pods ask for.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.names import QUOTA_UNITS, is_gpu_resource
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_KEYS = 3
"""So many are named: a quota can have thousands."""
LONGEST_KEY = 80
KUBEFLOWS_QUOTA = "kf-resource-quota"
"""The name of the one that Kubeflow makes of a Profile's ``resourceQuotaSpec``, and writes anew."""


def looks_like_a_quota_key(key: str) -> bool:
    """Whether whoever wrote it into a quota meant Bitfusion's GPUs."""
    return is_gpu_resource(key.removeprefix("requests.").removeprefix("limits."))


def wrong_quota_keys(hard: Mapping[str, object], counts: Sequence[str] = (QUOTA_UNITS,)) -> tuple[str, ...]:
    """The first keys of a quota's ``hard`` that limit nothing, sorted, as one prints them.

    Args:
        hard: The quota's.
        counts: The keys that limit GPUs; another spelling of one limits nothing.
    """
    names = {key.removeprefix("requests.") for key in counts}
    wrong = sorted(
        key
        for key in hard
        if key not in counts and (looks_like_a_quota_key(key) or key.removeprefix("limits.") in names)
    )
    return tuple(one_line(key, LONGEST_KEY) for key in wrong[:MOST_KEYS])


def wrong_quota_text(keys: tuple[str, ...], counts: Sequence[str] = (QUOTA_UNITS,)) -> str:
    """That they limit nothing, and which ones count."""
    units = QUOTA_UNITS in counts
    how = (
        "in hundredths of a GPU, 150 for one and a half" if units else "because notebooks compute in GPU pods"
    )
    return f"does not limit GPUs by {', '.join(keys)}: use {' and '.join(counts)}, {how}"
