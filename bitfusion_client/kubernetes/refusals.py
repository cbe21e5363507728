"""The message of a refused size: which value, what is allowed, what to do instead.

Admission and the hook show it in the form's error bar, the reconciler in an Event.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.keys import allowed_count
from bitfusion_client.kubernetes.names import SIZE_PREFIX
from bitfusion_client.request.quantities import parse_quantity

NO_GPU = "If the notebook needs no GPU, choose None for GPUs or leave the key out."
WHOLE_GPUS = f"For part of a GPU, request a share: {SIZE_PREFIX}50: 1 is half a GPU."


def refusal(error: InvalidRequest) -> str:
    """One line for the person who chose the size."""
    message = error.user_message
    if message[-1] not in ".!?":
        message += "."
    hint = _hint(error)
    return f"{message} {hint}" if hint else message


def _hint(error: InvalidRequest) -> str:
    if error.next_step or error.allowed != allowed_count(error.field):
        return error.next_step
    if isinstance(error.value, str) and error.value.rstrip().endswith("%"):
        return WHOLE_GPUS
    try:
        numerator, denominator = parse_quantity(error.value)
    except ValueError:
        return ""
    if numerator == 0:
        return NO_GPU
    return WHOLE_GPUS if numerator % denominator and numerator > 0 else ""
