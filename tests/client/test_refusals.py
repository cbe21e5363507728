"""What a person reads when a size is refused: the value, what is allowed, and what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_client.kubernetes.request import request_from_kubernetes

AMOUNT = "bitfusion.io/gpu-amount"
COUNT = "must be a whole number from 1 to 1024"
THREE_HALVES = "bitfusion.io/gpu-3x50"
THREES = "must be a whole number from 1 to 341, each of 3 GPUs"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {AMOUNT: "0"},
            f'Invalid value "0" for {AMOUNT}: {COUNT}. '
            "If the notebook needs no GPU, choose None for GPUs or leave the key out.",
        ),
        (
            {AMOUNT: "0.5"},
            f'Invalid value "0.5" for {AMOUNT}: {COUNT}. '
            "For part of a GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU.",
        ),
        # nothing sensible can be said about these
        ({AMOUNT: "two"}, f'Invalid value "two" for {AMOUNT}: {COUNT}.'),
        ({AMOUNT: "-0.5"}, f'Invalid value "-0.5" for {AMOUNT}: {COUNT}.'),
        ({AMOUNT: "2000"}, f'Invalid value "2000" for {AMOUNT}: {COUNT}.'),
        (
            {AMOUNT: "50%"},
            f'Invalid value "50%" for {AMOUNT}: {COUNT}. '
            "For part of a GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU.",
        ),
        (
            {"bitfusion.io/gpu-x": "1"},
            "bitfusion.io/gpu-x is not a Bitfusion size; sizes are gpu-amount (with gpu-percent or "
            "gpu-memory), gpu-1 to gpu-100 (percent), gpu-8gib and gpu-8000mib, also for 2 to 1024 GPUs at "
            "once: gpu-3x50. If the form offers it, ask your administrator to correct the form's list.",
        ),
        (
            {THREE_HALVES: "0"},
            f'Invalid value "0" for {THREE_HALVES}: {THREES}. '
            "If the notebook needs no GPU, choose None for GPUs or leave the key out.",
        ),
        (
            {THREE_HALVES: "400"},
            f'Invalid value "400" for {THREE_HALVES}: {THREES}.',
        ),
        (
            {THREE_HALVES: "0.5"},
            f'Invalid value "0.5" for {THREE_HALVES}: {THREES}. '
            "For part of a GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU.",
        ),
        (
            {"bitfusion.io/gpu-1x50": "1"},
            "bitfusion.io/gpu-1x50 is not a Bitfusion size; did you mean bitfusion.io/gpu-50? "
            "If the form offers it, ask your administrator to correct the form's list.",
        ),
        (
            {"bitfusion.io/gpu-050": "1"},
            "bitfusion.io/gpu-050 is not a Bitfusion size; did you mean bitfusion.io/gpu-50? "
            "If the form offers it, ask your administrator to correct the form's list.",
        ),
        (
            {AMOUNT: "1", "bitfusion.io/gpu-percent": "50", "bitfusion.io/gpu-memory": "8Gi"},
            "bitfusion.io/gpu-memory cannot be combined with bitfusion.io/gpu-percent. Remove one of the "
            "two.",
        ),
        (
            {"bitfusion.io/gpu-percent": "50"},
            f"bitfusion.io/gpu-percent also needs {AMOUNT}. Add {AMOUNT}: 1.",
        ),
        (
            {AMOUNT: "1", "bitfusion.io/gpu-50": "50"},
            f"bitfusion.io/gpu-50 is a second size in addition to {AMOUNT}. Keep one of them.",
        ),
    ],
)
def test_the_message_says_what_to_do_instead(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_from_kubernetes(limits)
    assert refusal(caught.value) == message
