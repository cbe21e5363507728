"""How a pod's budget stands at this moment: who holds what, who waits, what is left."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_kernel.pod.account import living_entries
from bitfusion_kernel.pod.turns import held

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod.facts import Pod
    from bitfusion_kernel.pod.turns import Entry


@dataclass(frozen=True, slots=True)
class Standing:
    """One look. `bitfusion run` in cells is in no account: the pool limits it."""

    pod: Pod
    entries: tuple[Entry, ...]

    @property
    def holders(self) -> tuple[Entry, ...]:
        """The kernels that hold something, or have asked the pool for it."""
        return tuple(entry for entry in self.entries if entry.holds)

    @property
    def waiting(self) -> tuple[Entry, ...]:
        """The kernels that wait for others of this pod, in order."""
        return tuple(entry for entry in self.entries if not entry.holds)

    @property
    def left(self) -> GpuRequest | None:
        """What a kernel without a size would take if nobody else waited; None if nothing."""
        budget = self.pod.budget
        return budget.part(budget.total - held(budget, self.entries), budget.request)

    def describe_left(self) -> str:
        """The same as text; `nothing` where nothing is left."""
        return self.left.describe() if self.left else "nothing"


def standing(pod: Pod, environ: Mapping[str, str]) -> Standing:
    """How it stands now."""
    return Standing(pod, tuple(living_entries(pod, environ)))
