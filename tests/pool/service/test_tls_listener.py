"""Where the service listens for other machines."""

from __future__ import annotations

import socket

import pytest

from bitfusion_client.listening.crowd import source_of
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.service.connections.tls_listener import bind_port
from tests.support.machine import scaled
from tests.support.ports import free_port


@pytest.mark.parametrize("host", ["", "127.0.0.1", "0.0.0.0"])
def test_a_port_without_a_host_is_open_at_every_address(host: str) -> None:
    port = free_port()
    with (
        bind_port(Address(host, port)) as listening,
        socket.create_connection(("127.0.0.1", port), scaled(10)),
    ):
        connected, address = listening.accept()
        connected.close()
        assert source_of(address[0]) == "127.0.0.1"
