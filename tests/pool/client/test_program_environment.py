"""What a program finds in its environment."""

from __future__ import annotations

import json
import os

from tests.pool.pool_client import PoolClient


def test_the_program_finds_its_lease_in_the_environment(client: PoolClient) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "X": "a\nb", "BITFUSION_KERNEL_STATE": "/nowhere"}
    done = client.do("run", "-n", "2", "-p", "0.25", "--", "env", "-0", env=env)
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert found["X"] == "a\nb"
    assert "BITFUSION_KERNEL_STATE" not in found  # a command in it is no kernel
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert len(found["BITFUSION_POOL_LEASE"]) == 16
    assert json.loads(found["BITFUSION_POOL_DEVICES"]) == [
        {
            "id": number,
            "name": "Simulated Tesla V100-PCIE-16GB",
            "memory_mib": 4040,
            "total_mib": 16160,
            "server": "127.0.0.1:56001",
            "simulated": True,
        }
        for number in (0, 1)
    ]
    assert os.path.isfile(found["BF_BIN_PATH"] + "/bitfusion")
    assert found["BF_ADAPTOR_PATH"].endswith("/bitfusion_pool/")
    assert found["BF_ADAPTOR_RDMA"] == "0"
    assert found["BITFUSION_POOL_LOCK_FD"].isdigit()


def test_odd_device_names_are_still_json(client: PoolClient) -> None:
    client.configure('[[servers]]\n[[servers.devices]]\nname = "Tesla \\"Ü\\" \\\\"\n')
    done = client.do("run", "-n", "1", "--", "printenv", "BITFUSION_POOL_DEVICES")
    assert json.loads(done.stdout)[0]["name"] == 'Tesla "Ü" \\'
