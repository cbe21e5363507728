"""`list_gpus`, `smi`, `health`: what they print and that it is true."""

from __future__ import annotations

import re

from bitfusion_client.command.client_reports import parse_list_gpus, parse_waiting
from bitfusion_client.request.gpu_request import GpuRequest
from tests.pool.holders import Holders
from tests.pool.pool_client import PoolClient, uniform

LISTED = """\
- server 0 [10.0.0.1:56001]: running 1 tasks
   |- GPU 0: free memory 15109 MiB / 15109 MiB (Tesla T4 (simulated))
   |- GPU 1: free memory 7555 MiB / 15109 MiB (Tesla T4 (simulated))
   |  |- 7554 MiB held by tester: somebody (1 GPU × 50 %, since T)
- server 1 [10.0.0.2:56001]: running 0 tasks
- waiting, position 1: tester: large.ipynb (2 GPUs, since T)
- waiting, position 2: tester: small.ipynb (1 GPU, since T)
"""
SMI = """\
BITFUSION-SMI 4.0.0-00000000   embedded pool, simulated GPUs
┌────────────────┬─────┬──────────────────────┬────────────────────┐
│ Server         │ GPU │ Name                 │ Memory-Usage       │
├────────────────┼─────┼──────────────────────┼────────────────────┤
│ 10.0.0.1:56001 │ 0   │ Tesla T4 (simulated) │ 0MiB / 15109MiB    │
│ 10.0.0.1:56001 │ 1   │ Tesla T4 (simulated) │ 7554MiB / 15109MiB │
└────────────────┴─────┴──────────────────────┴────────────────────┘
┌────────────────┬─────┬────────┬──────────┬─────────┐
│ Server         │ GPU │ User   │ Task     │ Memory  │
├────────────────┼─────┼────────┼──────────┼─────────┤
│ 10.0.0.1:56001 │ 1   │ tester │ somebody │ 7554MiB │
└────────────────┴─────┴────────┴──────────┴─────────┘
"""
CONFIGURATION = """
[[servers]]
address = "10.0.0.1"
[[servers.devices]]
name = "Tesla T4"
memory_mib = 15109
count = 2
[[servers]]
address = "10.0.0.2"
"""


def half_of_gpu_1() -> GpuRequest:
    return GpuRequest(1, 0.5, filters=(("device.id", "1"),))


def test_list_gpus_and_smi(client: PoolClient) -> None:
    client.configure(CONFIGURATION)
    with client.ledger() as ledger:
        holders = Holders(ledger)
        holders.submit(half_of_gpu_1(), "somebody")
        holders.submit(GpuRequest(2), "large.ipynb")
        holders.submit(GpuRequest(1), "small.ipynb")
        listed = client.do("list_gpus")
        shown = client.do("smi")
        holders.end()
    assert (listed.returncode, re.sub(r"since [^)]+", "since T", listed.stdout)) == (0, LISTED)
    assert uniform(listed.stderr) == "[INFO] TIME Query server 10.0.0.1:56001 to claim client id: UUID\n"
    assert (shown.returncode, shown.stdout) == (0, SMI)
    servers = parse_list_gpus(listed.stdout)
    assert [(one.address, one.tasks, len(one.gpus)) for one in servers] == [
        ("10.0.0.1:56001", 1, 2),
        ("10.0.0.2:56001", 0, 0),
    ]
    assert all(gpu.simulated for gpu in servers[0].gpus)
    assert [len(gpu.holders) for gpu in servers[0].gpus] == [0, 1]
    assert len(parse_waiting(listed.stdout)) == 2
    assert client.do("smi").stdout.endswith("No running tasks found\n")
