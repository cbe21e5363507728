"""What `%bitfusion` subcommands may know of the kernel and change in it: implemented by the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bitfusion_client.command.find_client import FoundClient
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.pod.standing import Standing


class KernelView(Protocol):
    """The kernel as a `%bitfusion` subcommand sees it."""

    @property
    def running(self) -> bool:
        """Whether the kernel runs on its GPUs and executes cells."""

    @property
    def acquisition(self) -> Acquisition | None:
        """The `bitfusion run` that waits or runs now."""

    @property
    def last_acquisition(self) -> Acquisition | None:
        """The `bitfusion run` before the current one."""

    @property
    def request(self) -> GpuRequest:
        """What the next start asks for.

        Raises:
            WrongSetting: A setting has a wrong value.
        """

    @property
    def hints(self) -> list[str]:
        """What is odd in the settings, though nothing is wrong: a line each."""

    @property
    def takes_what_is_left(self) -> bool:
        """Whether the next start takes what is left of the pod's budget, `request` at most.

        Raises:
            WrongSetting: A setting has a wrong value.
        """

    @property
    def pod_budget(self) -> Standing | None:
        """How the budget of the pod stands now; None outside pods with an injected client.

        Raises:
            WrongSetting: A setting has a wrong value.
        """

    def check_request(self, request: GpuRequest) -> None:
        """Raise WrongSetting if `choose_request` would, OverBudget if no start could ever get it."""

    def choose_request(self, request: GpuRequest) -> None:
        """Ask for `request` from the next start on, also after restarts.

        Raises:
            WrongSetting: It differs from the settings in one that the administrator has locked.
            OSError: It could not be kept for a restart, but holds until then.
        """

    def forget_request(self) -> None:
        """Ask for what the settings say from the next start on."""

    def find_client(self) -> FoundClient:
        """The `bitfusion` command that is used.

        Raises:
            ClientNotFound: There is none.
            WrongSetting: A setting has a wrong value.
        """
