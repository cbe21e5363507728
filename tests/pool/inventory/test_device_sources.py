"""What a program gets to use its GPUs, simulated or real, and what must not be hidden from it."""

from __future__ import annotations

import pytest

from bitfusion_pool.inventory.device_sources import SIMULATED_COMMANDS, gpu_variables
from bitfusion_pool.inventory.servers import Device

SIMULATED = Device(0, "Simulated Tesla", 16160)
REAL = Device(1, "Tesla", 16160, simulated=False, uuid="GPU-1")
PART = Device(2, "Tesla MIG 1g.5gb", 4864, simulated=False, uuid="MIG-2")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/bin:/bin", f"{SIMULATED_COMMANDS}:/usr/bin:/bin"),
        (f"/usr/bin:{SIMULATED_COMMANDS}", f"{SIMULATED_COMMANDS}:/usr/bin"),
        (f"{SIMULATED_COMMANDS}:/usr/bin", f"{SIMULATED_COMMANDS}:/usr/bin"),
        (None, f"{SIMULATED_COMMANDS}:/bin:/usr/bin"),
    ],
)
def test_simulated_gpus_hide_the_real_ones_from_cuda_and_from_nvidia_smi(
    path: str | None, expected: str
) -> None:
    environ = {} if path is None else {"PATH": path}
    found = gpu_variables([(SIMULATED, 1), (SIMULATED, 1)], environ)
    assert found == {"CUDA_VISIBLE_DEVICES": "", "PATH": expected}


@pytest.mark.parametrize(
    ("environ", "changed"),
    [
        ({"PATH": "/usr/bin:/bin"}, {"PATH": "/usr/bin:/bin"}),
        ({"PATH": f"{SIMULATED_COMMANDS}:/usr/bin"}, {"PATH": "/usr/bin"}),
        ({}, {}),
    ],
)
def test_real_gpus_keep_the_real_nvidia_smi_also_under_a_program_with_simulated_ones(
    environ: dict[str, str], changed: dict[str, str]
) -> None:
    found = gpu_variables([(REAL, 16160)], environ)
    assert found == {"CUDA_VISIBLE_DEVICES": "GPU-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **changed}


def test_cuda_sees_the_leased_devices_by_uuid_in_the_order_of_the_lease() -> None:
    found = gpu_variables([(REAL, 16160), (PART, 4864)], {"CUDA_VISIBLE_DEVICES": "7"})
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1,MIG-2"
