"""What `%bitfusion` subcommands may know of the kernel and change in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from bitfusion_client.command.find_client import FoundClient
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.pod.account import Standing

    class Lifecycle(Protocol):
        """What is asked of `proxy.lifecycle.KernelLifecycle`."""

        acquisition: Acquisition | None
        last_acquisition: Acquisition | None

        @property
        def connected(self) -> bool:
            """Whether the kernel answers."""


class KernelView:
    """The kernel as a subcommand sees it. The proxy makes one for its command cells and its magic socket.

    `look` gives the state that is published; `on_choice` is called when another size has been chosen.
    """

    def __init__(
        self,
        starter: KernelStarter,
        lifecycle: Lifecycle,
        look: Callable[[], dict[str, Any]],
        on_choice: Callable[[], None],
    ) -> None:
        self._starter = starter
        self._lifecycle = lifecycle
        self._look = look
        self._on_choice = on_choice
        self.cancel_wait: Callable[[], bool] = lambda: False
        """End the wait for a GPU, if there is one; whether there was."""
        self.cancel_resize: Callable[[], bool] = lambda: False
        """End the wait for another size, if there is one; whether there was."""
        self.idle_status: Callable[[], str] = lambda: ""
        """What an idle kernel does next, where its GPUs are given back after a time."""
        self.ask_anew: Callable[[], bool] = lambda: False
        """Have what waits ask for the size that is chosen now; whether something waits."""

    @property
    def state(self) -> dict[str, Any]:
        """What is published of it, as ``docs/kernel-state.schema.json`` says."""
        return self._look()

    @property
    def running(self) -> bool:
        """Whether the kernel runs on its GPUs and executes cells."""
        return self._lifecycle.connected

    @property
    def acquisition(self) -> Acquisition | None:
        """The `bitfusion run` that waits or runs now."""
        return self._lifecycle.acquisition

    @property
    def last_acquisition(self) -> Acquisition | None:
        """The `bitfusion run` before the current one."""
        return self._lifecycle.last_acquisition

    @property
    def request(self) -> GpuRequest:
        """What the next start asks for. Raises WrongSetting."""
        return self._starter.request

    @property
    def hints(self) -> list[str]:
        """What is odd in the settings, though nothing is wrong: a line each."""
        return self._starter.hints

    @property
    def takes_what_is_left(self) -> bool:
        """Whether the next start takes what is left of the pod's budget. Raises WrongSetting."""
        return self._starter.takes_what_is_left

    @property
    def pod_budget(self) -> Standing | None:
        """How the budget of the pod stands now, if this is one. Raises WrongSetting."""
        pod = self._starter.pod
        if pod is None:
            return None
        from bitfusion_kernel.pod.account import standing

        return standing(pod, os.environ)

    def check_request(self, request: GpuRequest) -> None:
        """Raise WrongSetting if a locked setting differs, OverBudget if the pod can never have it."""
        self._starter.settings.check_unlocked(request)
        self._starter.check_budget(request)

    def choose_request(self, request: GpuRequest) -> None:
        """Ask for `request` from the next start on. Raises WrongSetting, OSError, as its starter does."""
        try:
            self._starter.choose(request)
        finally:
            self._on_choice()

    def forget_request(self) -> None:
        """Ask for what the settings say from the next start on."""
        self._starter.forget_choice()
        self._on_choice()

    def find_client(self) -> FoundClient:
        """The `bitfusion` command that is used. Raises ClientNotFound, WrongSetting."""
        return self._starter.find_client()
