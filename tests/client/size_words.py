"""The size keys of limits, and the words of their refusals."""

from __future__ import annotations

AMOUNT = "bitfusion.io/gpu-amount"
PERCENT = "bitfusion.io/gpu-percent"
MEMORY = "bitfusion.io/gpu-memory"
COUNT = "must be a whole number from 1 to 1024"
KEYS = (
    "is not a Bitfusion size; sizes are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 "
    "(percent), gpu-8gib and gpu-8000mib, also for 2 to 1024 GPUs at once: gpu-3x50"
)
QUANTITY = "must be an amount of at least 1 MiB, such as 8000Mi, 8Gi or 8G"
