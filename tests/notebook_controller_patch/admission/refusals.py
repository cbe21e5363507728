"""Sizes that cannot be, and the words in which the person who asked for one is told so."""

from __future__ import annotations

from typing import Any

from tests.notebook_controller_patch.admission.reviews import AMOUNT, MEMORY, PERCENT, REQUEST

HALF = "bitfusion.io/gpu-50"
COUNT = "must be a whole number from 1 to 1024."
NO_GPU = "If the notebook needs no GPU, choose None for GPUs or leave the key out."
SHARE = "For part of a GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU."
QUANTITY = "must be an amount of at least 1 MiB, such as 8000Mi, 8Gi or 8G"
PERCENTS = "must be a whole number from 1 to 100."
LIST = "If the form offers it, ask your administrator to correct the form's list."
KNOWN = (
    "is not a Bitfusion size; sizes are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 "
    f"(percent), gpu-8gib and gpu-8000mib, also for 2 to 1024 GPUs at once: gpu-3x50. {LIST}"
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
    ({"bitfusion.io/gpu-0": "1"}, None, f"bitfusion.io/gpu-0 {KNOWN}"),
    ({"bitfusion.io/gpu-101": "1"}, None, f"bitfusion.io/gpu-101 {KNOWN}"),
    ({AMOUNT: "1", PERCENT: "50%"}, None, f'Invalid value "50%" for {PERCENT}: {PERCENTS[:-1]}; write 50.'),
    # share and memory together
    (
        {AMOUNT: "1", PERCENT: "50", MEMORY: "8Gi"},
        None,
        f"{MEMORY} cannot be combined with {PERCENT}. Remove one of the two.",
    ),
    (
        {HALF: "1", "bitfusion.io/gpu-8gib": "1"},
        None,
        f"bitfusion.io/gpu-8gib is a second size in addition to {HALF}. Keep one of them.",
    ),
    # not a number
    ({AMOUNT: "two"}, None, f'Invalid value "two" for {AMOUNT}: {COUNT}'),
    ({AMOUNT: "-1"}, None, f'Invalid value "-1" for {AMOUNT}: {COUNT}'),
    ({AMOUNT: "1", PERCENT: "half"}, None, f'Invalid value "half" for {PERCENT}: {PERCENTS}'),
    ({AMOUNT: "1", MEMORY: "much"}, None, f'Invalid value "much" for {MEMORY}: {QUANTITY}.'),
    (
        {AMOUNT: "1", MEMORY: "16000"},
        None,
        f'Invalid value "16000" for {MEMORY}: {QUANTITY}; without a unit the value is in bytes: write '
        '16000Mi.',
    ),
    # unknown keys
    (
        {"bitfusion.io/gpu-half": "1"},
        None,
        f"bitfusion.io/gpu-half is not a Bitfusion size; did you mean {HALF}? {LIST}",
    ),
    (
        {"bitfusion.io/gpu-8Gi": "1"},
        None,
        f"bitfusion.io/gpu-8Gi is not a Bitfusion size; did you mean bitfusion.io/gpu-8gib? {LIST}",
    ),
    # half of a pair
    ({PERCENT: "50"}, None, f"{PERCENT} also needs {AMOUNT}. Add {AMOUNT}: 1."),
    # the annotation
    (
        {AMOUNT: "1"},
        {REQUEST: "-n 1 -p 0.5 -m 8Gi"},
        f'Invalid value "-n 1 -p 0.5 -m 8Gi" for {REQUEST}: -m "8Gi" must be a whole number of MiB, '
        "at least 1; write -m 8192.",
    ),
    (
        {AMOUNT: "1"},
        {REQUEST: "-n 1 --gpu 2"},
        f'Invalid value "-n 1 --gpu 2" for {REQUEST}: --gpu is not an option; the options are -n GPUS, '
        "-p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, --timeout 30m.",
    ),
    (
        {AMOUNT: "1"},
        {REQUEST: '{"gpus": 0}'},
        f'Invalid value "{{"gpus": 0}}" for {REQUEST}: gpus "0" {COUNT}',
    ),
]  # fmt: skip
