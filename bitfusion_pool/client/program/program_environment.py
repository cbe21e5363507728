"""The environment of a program that runs with a lease: BITFUSION_POOL_*, BF_*, CUDA_VISIBLE_DEVICES, PATH."""

from __future__ import annotations

import os
import sys

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.device_sources import gpu_variables
from bitfusion_pool.json_text import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.client.lease import Lease

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def program_environment(environ: Mapping[str, str], lease: Lease) -> dict[str, str]:
    """The environment of the program; docs/pool.md explains the variables.

    Args:
        environ: The environment of the command.
        lease: The GPUs that the program uses.
    """
    added = {
        "BF_BIN_PATH": f"{_PACKAGE}/bin",
        "BF_ADAPTOR_PATH": f"{_PACKAGE}/",
        "BF_ADAPTOR_RDMA": "1" if lease.server.has_rdma else "0",
        "BITFUSION_POOL_LEASE": lease.entry.entry_id,
        "BITFUSION_POOL_DEVICES": dumps(leased_devices(lease)),
        "BITFUSION_POOL_LOCK_FD": str(lease.lock.fd),
        # for nvidia-smi on its PATH, and for this command inside the program
        "BITFUSION_PYTHON": environ.get("BITFUSION_PYTHON") or sys.executable,
    }
    leased = [(lease.server.device(share.number), share.memory_mib) for share in lease.entry.shares]
    return {**environ, **added, **gpu_variables(leased, environ)}


def leased_devices(lease: Lease) -> list[dict[str, object]]:
    """BITFUSION_POOL_DEVICES: one object per GPU, in the order in which the program sees them."""
    found: list[dict[str, object]] = []
    for share in lease.entry.shares:
        device = lease.server.device(share.number)
        found.append(
            {
                "id": share.number,
                "name": device.name,
                "memory_mib": share.memory_mib,
                "total_mib": device.memory_mib,
                "server": lease.server.key,
                "simulated": device.simulated,
                **({} if device.simulated else {"uuid": device.uuid}),
            }
        )
    return found
