"""What the controller's tests share with those of other programs in a cluster."""

from __future__ import annotations

from tests.bitfusion_cluster.conftest import api, api_server, clock

__all__ = ["api", "api_server", "clock"]
