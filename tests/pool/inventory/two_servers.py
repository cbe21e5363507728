"""Two servers that differ in everything a filter can ask for."""

from __future__ import annotations

from bitfusion_pool.inventory.servers import Device, Server

V100 = tuple(Device(number, "Tesla V100-PCIE-16GB", 16160) for number in range(2))
T4 = tuple(Device(number, "Tesla T4", 15109) for number in range(4))
FIRST = Server("first", "10.0.0.1", 56001, V100, hostname="bf-one", has_rdma=True, cuda_version="11.2")
SECOND = Server(
    "second", "10.0.0.2", 56001, T4, hostname="bf-two", cuda_version="10.2", driver_version="450.1"
)
SERVERS = (FIRST, SECOND)
A, B = FIRST.key, SECOND.key
