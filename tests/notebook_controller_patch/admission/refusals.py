"""Sizes that cannot be, and the words in which the person who asked for one is told so."""

from __future__ import annotations

from typing import Any

from tests.notebook_controller_patch.admission.reviews import AMOUNT, MEMORY, PERCENT, REQUEST

HALF = "bitfusion.io/gpu-50"
COUNT = "must be a whole number from 1 to 1024."
NO_GPU = "Choose None for GPUs, or leave the key out, if the notebook needs no GPU."
SHARE = "For a part of a GPU ask for a share: bitfusion.io/gpu-50: 1 is half a GPU."
PERCENTS = "must be a whole number from 1 to 100."
OTHER = "Choose another size; if the form offers this one, its administrator has to correct the list."
KNOWN = (
    "is no known size; known are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), "
    "gpu-8gib and gpu-8000mib."
)

# limits, annotations, and the message or what it begins with
REFUSALS: list[tuple[dict[str, Any], dict[str, str] | None, str]] = [
    # 0 GPUs
    ({AMOUNT: "0"}, None, f'Invalid value "0" for {AMOUNT}: {COUNT} {NO_GPU}'),
    ({AMOUNT: 0}, None, f'Invalid value "0" for {AMOUNT}: {COUNT} {NO_GPU}'),
    ({HALF: "0"}, None, f'Invalid value "0" for {HALF}: {COUNT} {NO_GPU}'),
    # 0.5 GPUs
    ({AMOUNT: "0.5"}, None, f'Invalid value "0.5" for {AMOUNT}: {COUNT} {SHARE}'),
    ({AMOUNT: "500m"}, None, f'Invalid value "500m" for {AMOUNT}: {COUNT} {SHARE}'),
    # share 0 or 101
    ({AMOUNT: "1", PERCENT: "0"}, None, f'Invalid value "0" for {PERCENT}: {PERCENTS}'),
    ({AMOUNT: "1", PERCENT: "101"}, None, f'Invalid value "101" for {PERCENT}: {PERCENTS}'),
    ({"bitfusion.io/gpu-0": "1"}, None, f'Invalid value "gpu-0" for bitfusion.io/gpu-0: {KNOWN} {OTHER}'),
    (
        {"bitfusion.io/gpu-101": "1"},
        None,
        f'Invalid value "gpu-101" for bitfusion.io/gpu-101: {KNOWN} {OTHER}',
    ),
    # share and memory together
    (
        {AMOUNT: "1", PERCENT: "50", MEMORY: "8Gi"},
        None,
        f'Invalid value "8Gi" for {MEMORY}: gpu-percent and gpu-memory exclude each other. '
        "Leave one of the two out.",
    ),
    (
        {HALF: "1", "bitfusion.io/gpu-8gib": "1"},
        None,
        'Invalid value "1" for bitfusion.io/gpu-8gib: only one size may be given; '
        f"there is also {HALF}.",
    ),
    # not a number
    ({AMOUNT: "two"}, None, f'Invalid value "two" for {AMOUNT}: {COUNT}'),
    ({AMOUNT: "-1"}, None, f'Invalid value "-1" for {AMOUNT}: {COUNT}'),
    ({AMOUNT: "1", PERCENT: "half"}, None, f'Invalid value "half" for {PERCENT}: {PERCENTS}'),
    (
        {AMOUNT: "1", MEMORY: "much"},
        None,
        f'Invalid value "much" for {MEMORY}: must be an amount of at least 1 MiB like 8000Mi, 8Gi or 8G.',
    ),
    # unparsable key
    (
        {"bitfusion.io/gpu-half": "1"},
        None,
        f'Invalid value "gpu-half" for bitfusion.io/gpu-half: {KNOWN} {OTHER}',
    ),
    # half of a pair
    ({PERCENT: "50"}, None, f'Invalid value "50" for {PERCENT}: needs {AMOUNT} beside it.'),
    # the annotation
    (
        {AMOUNT: "1"},
        {REQUEST: "-n 1 -p 0.5 -m 8Gi"},
        f'Invalid value "-n 1 -p 0.5 -m 8Gi" for {REQUEST}: ',
    ),
    (
        {AMOUNT: "1"},
        {REQUEST: '{"gpus": 0}'},
        f'Invalid value "{{"gpus": 0}}" for {REQUEST}: '
        f'invalid value "0" for gpus: {COUNT}',
    ),
]  # fmt: skip
