"""The folder that an injector makes in a container, for kernels of tests."""

from __future__ import annotations

import os
from pathlib import Path

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.account import standing
from bitfusion_kernel.pod.facts import ROOT_VARIABLE, Pod, read_pod
from bitfusion_kernel.pod.turns import Entry


class FakePod:
    """One container's `/bitfusion`."""

    def __init__(self, folder: Path, request: str = "-n 1", units: str = "100") -> None:
        self.root = folder / "bitfusion"
        files = {
            "name": "digits-0",
            "namespace": "team-a",
            "uid": "8c1f6c1e-0000-4000-8000-3f6d3d3d3d3d",
            "notebook": "digits",
            "container": "digits",
            "request": request,
            "units": units,
            "client": "stand-in",
            "package": "",
        }
        for name, text in files.items():
            self.write(f"pod/{name}", text)

    def write(self, name: str, text: str) -> None:
        """Write one file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process believe that it runs there."""
        return {ROOT_VARIABLE: str(self.root)}

    @property
    def pod(self) -> Pod:
        """As the kernel reads it."""
        pod = read_pod(self.environment)
        assert pod is not None
        return pod

    def entries(self) -> list[Entry]:
        """Who holds or waits now."""
        return list(standing(self.pod, os.environ).entries)

    def held(self) -> list[GpuRequest]:
        """What is held."""
        return [entry.request for entry in self.entries() if entry.holds]
