"""The extension of the Jupyter server: the pool and this server's Bitfusion kernels, as REST and events.

`openapi.yaml` is the contract with whoever shows it. Without jupyter_server nothing here is loaded.
"""

from __future__ import annotations

from typing import Any

from bitfusion_client.version import VERSION

__version__ = VERSION  # `jupyter server extension list` shows it


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by the Jupyter server, for each package that its configuration names."""
    from jupyter_ext.server.extension import BitfusionExtension

    return [{"module": "jupyter_ext.server.extension", "app": BitfusionExtension}]
