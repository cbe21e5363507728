"""How much of the pool a namespace may have: quota and annotations, within what the administrator set. Pure.

The limit in units follows from the namespace's ResourceQuota of ``requests.bitfusion.io/gpu``: what its pods
may ask for together is what its programs may take together. It is not divided by the device plugin's
overcommit factor: a pod that the quota lets in must be able to take what it asked for, if only after a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.one_line import shown_value
from bitfusion_client.request.decimals import plain_number
from bitfusion_client.request.shares import parse_share

LIMIT_PREFIX = "bitfusion.io/limit-"  # of a namespace's annotations
LARGEST_COUNT = 100_000  # as the pool has it
LARGEST_UNITS = 10_000_000
KINDS = ("gpus", "share", "leases", "waiting", "units")
Limits = Mapping[str, float]
"""By kind; one that is missing is the issuer's own. A share is above 0 and at most 1."""


@dataclass(frozen=True, slots=True)
class LimitRules:
    """What the administrator set: where a namespace says nothing, and at most."""

    default: tuple[tuple[str, float], ...] = ()
    most: tuple[tuple[str, float], ...] = ()


def namespace_limits(
    annotations: Mapping[str, str], rules: LimitRules, quota: int | None = None
) -> tuple[Limits, tuple[str, ...]]:
    """The limits of a namespace, and what is wrong with its annotations or quota, for a person.

    `quota` is what its ResourceQuotas allow in units, None if none says anything; an annotation can lower it.
    A wrong value counts as absent, one that is too large as the largest: no namespace loses its access to the
    pool by a slip of the pen.
    """
    default, most = dict(rules.default), dict(rules.most)
    found: dict[str, float] = {}
    problems = []
    for kind in KINDS:
        name = f"{LIMIT_PREFIX}{kind}"
        bound = most.get(kind)
        wanted = default.get(kind, bound)
        if kind == "units" and quota is not None:
            if bound is not None and quota > bound:
                most_allowed = f"the token's limit is at most {plain_number(bound)}"
                problems.append(f"the quota of {QUOTA_UNITS} is {quota}, and {most_allowed}")
            wanted = bound = min(quota, LARGEST_UNITS if bound is None else bound)
        if name in annotations:
            try:
                wanted = PARSERS[kind](annotations[name].strip())
            except ValueError as error:
                problems.append(f'{name}="{shown_value(annotations[name])}" {error}')
        if wanted is not None and bound is not None and wanted > bound:
            problems.append(f"{name} is {plain_number(wanted)}, and at most {plain_number(bound)} is allowed")
            wanted = bound
        if wanted is not None:
            found[kind] = wanted
    unknown = sorted(name for name in annotations if name[len(LIMIT_PREFIX) :] not in KINDS)
    problems += [f"{shown_value(name)} is not a limit; the limits are {', '.join(KINDS)}" for name in unknown]
    return found, tuple(problems)


def limits_text(limits: Limits) -> str:
    """For people and as a fingerprint: ``gpus 2, share 0.5``."""
    return ", ".join(f"{kind} {plain_number(limits[kind])}" for kind in KINDS if kind in limits) or "none"


def parse_count(text: str) -> float:
    """A limit that counts. Raises ValueError: what is allowed."""
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= LARGEST_COUNT):
        raise ValueError(f"must be a whole number from 1 to {LARGEST_COUNT}")
    return float(text)


def parse_units(text: str) -> float:
    """A limit in hundredths of a GPU. Raises ValueError: what is allowed."""
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and int(text) <= LARGEST_UNITS):
        raise ValueError(f"must be a whole number from 0 to {LARGEST_UNITS}; 100 units are one GPU")
    return float(text)


def parse_limit_share(text: str) -> float:
    """The share of a GPU. Raises ValueError: what is allowed."""
    try:
        return parse_share(text, "share")
    except InvalidRequest:
        raise ValueError("must be above 0 and at most 1, such as 0.5") from None


PARSERS: Mapping[str, Callable[[str], float]] = {
    "gpus": parse_count,
    "share": parse_limit_share,
    "leases": parse_count,
    "waiting": parse_count,
    "units": parse_units,
}
