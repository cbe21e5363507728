"""A kernel for the answers of `%bitfusion`, without a proxy."""

from __future__ import annotations

from typing import Any

from bitfusion_client.command.find_client import FoundClient
from bitfusion_client.errors import ClientNotFound, WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.pod.account import Standing
from bitfusion_kernel.pod.budget import check_fits

_Anything: Any = object


class FakeKernel(_Anything):  # type: ignore[misc]  # it stands for a `KernelView`
    """Looks like `KernelView`; every attribute may be set."""

    def __init__(self) -> None:
        self.running = False
        self.acquisition: Acquisition | None = None
        self.last_acquisition: Acquisition | None = None
        self.request = GpuRequest()
        self.locked = False
        self.hints: list[str] = []
        self.not_kept: OSError | None = None
        self.takes_what_is_left = False
        self.pod_budget: Standing | None = None
        self.client: FoundClient | None = FoundClient("/opt/bitfusion/bin/bitfusion", "path", False)

    def check_request(self, request: GpuRequest) -> None:
        """The administrator's lock."""
        if self.locked:
            raise WrongSetting("gpus", request.gpus, "is locked by your administrator")
        if self.pod_budget is not None:
            check_fits(self.pod_budget.pod.budget, request)

    def choose_request(self, request: GpuRequest) -> None:
        """Takes effect at once."""
        self.check_request(request)
        self.request = request
        if self.not_kept:
            raise self.not_kept

    def forget_request(self) -> None:
        """Back to the settings."""
        self.request = GpuRequest()

    def find_client(self) -> FoundClient:
        """The client, unless it was taken away."""
        if self.client is None:
            raise ClientNotFound(["/opt/bitfusion/bin/bitfusion"])
        return self.client
