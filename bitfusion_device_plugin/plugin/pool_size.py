"""How many units the pool has: 100 for each of its GPUs, times the overcommit factor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bitfusion_client.command.client_reports import ServerStatus
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU

LARGEST_UNITS = 100_000
"""1,000 GPUs. The kubelet reads a message of 4 MiB at most (gRPC's default), and these are 2.5 MB."""


def pool_units(servers: Sequence[ServerStatus], overcommit: float = 1.0) -> int:
    """The units of all GPUs that the servers have, free or not; never more than `LARGEST_UNITS`.

    Args:
        servers: As ``bitfusion list_gpus`` has told them.
        overcommit: How much the units may exceed the pool: 1.5 offers 150 units for each GPU.
    """
    gpus = sum(len(server.gpus) for server in servers)
    # as it was written: 1.1 × 100 is 110 and not 110.00000000000001
    return min(LARGEST_UNITS, int(gpus * UNITS_PER_GPU * Fraction(repr(overcommit))))
