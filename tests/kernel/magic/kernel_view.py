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
        self.state: dict[str, Any] = {"state": "none", "idle_since": None, "lease": None}
        self.cancelled = self.asked_anew = 0
        self.resizes = False
        self.ends_what_waits = True
        """Whether something waits that could be asked for anew."""
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

    def cancel_wait(self) -> bool:
        """As the proxy; there is a wait whenever this is asked."""
        self.cancelled += 1
        return True

    def cancel_resize(self) -> bool:
        """As the proxy; whether there was one."""
        asked, self.resizes = self.resizes, False
        return asked

    def idle_status(self) -> str:
        """As the proxy where nothing is given back."""
        return ""

    def ask_anew(self) -> bool:
        """As the proxy; whether something waits."""
        self.asked_anew += self.ends_what_waits
        return self.ends_what_waits

    def forget_request(self) -> None:
        """Back to the settings."""
        self.request = GpuRequest()

    def find_client(self) -> FoundClient:
        """The client, unless it was taken away."""
        if self.client is None:
            raise ClientNotFound(["/opt/bitfusion/bin/bitfusion"])
        return self.client
