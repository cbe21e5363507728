"""The ports of the kernels that jupyter_client starts in a test process; a plugin of pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ports import free_port, return_port


@pytest.fixture(scope="session", autouse=True)
def kernel_ports() -> Iterator[None]:
    """Have jupyter_client take the ports of the kernels it starts in this process from here.

    It looks for a free port in the range of outgoing connections and closes it again. Until the kernel
    binds it, a connection of another test may have got that port.
    """
    from jupyter_client.connect import LocalPortCache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPortCache, "find_available_port", lambda self, ip: free_port())
        patch.setattr(LocalPortCache, "return_port", lambda self, port: return_port(port))
        yield
