"""What is told to others of the kernel's state: made from lifecycle and acquisition. Pure.

`lifecycle` owns what is so; here is how that is called outside (`bitfusion_client.kernel_state.states`), and
what else is told. `state_board` is the one place that publishes it.

Who waits for what the kernel holds is not told: no client says it to a holder, only a look at the pool does
(`bitfusion list_gpus`), and a proxy that looked by itself would have each kernel ask the pool although nobody
watches. Whoever shows many kernels looks once for all of them; `%bitfusion` looks when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bitfusion_client.kernel_state import states
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle, KernelState

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition

Json = dict[str, Any]


class Facts(NamedTuple):
    """What a state's name depends on beside `KernelState`."""

    works: bool = False
    """Whether code runs in the kernel."""
    exists: bool = True
    """Whether there is a `bitfusion run` that has not ended."""
    granted: bool = False
    """Whether that has got GPUs, as far as it has said."""
    kept: bool = False
    """Whether it is kept for the next proxy when this one ends."""


PUBLISHED: dict[KernelState, Callable[[Facts], str]] = {
    KernelState.NOT_REQUESTED: lambda _: states.NONE,
    KernelState.WAITING: lambda facts: states.STARTING if facts.granted else states.WAITING,
    KernelState.STARTING: lambda _: states.STARTING,
    KernelState.RUNNING: lambda facts: states.RUNNING if facts.works else states.IDLE,
    KernelState.SHUTTING_DOWN: lambda facts: states.PARKED if facts.kept else states.RELEASING,
    KernelState.RELEASING: lambda _: states.RELEASING,
    KernelState.CANCELLING: lambda _: states.RELEASING,
    KernelState.OVER: lambda facts: (
        states.NONE if not facts.exists else states.PARKED if facts.kept else states.RELEASING
    ),
}
"""How each state is called outside."""


def name(lifecycle: KernelLifecycle, *, works: bool, kept: bool) -> str:
    """One of `states.STATES`; the arguments as in `Facts`."""
    acquisition = lifecycle.acquisition
    exists = acquisition is not None and acquisition.wrapper_status is None
    granted = acquisition is not None and _is_granted(acquisition)
    return PUBLISHED[lifecycle.state](Facts(works, exists, granted, kept))


def _is_granted(acquisition: Acquisition) -> bool:
    """Whether it holds GPUs, be it that the kernel after a restart does not run on them yet."""
    return acquisition.granted or acquisition.lock_file is not None or bool(acquisition.gpu_ids)


def headline(state: str, since: float, notebook: str) -> Json:
    """What the file tells. `since` is in seconds since the epoch, as all times here."""
    return {
        "version": states.VERSION,
        "state": state,
        "since": since,
        "idle_since": since if state == states.IDLE else None,
        "notebook": notebook or None,
    }


class Asked(NamedTuple):
    """What is asked for, be it only by the next cell."""

    request: GpuRequest
    takes_what_is_left: bool = False
    """Whether it is what is left of the pod's budget, and the request the most of it."""
    text: str = ""
    """As a person reads it, unless that is the request's own text."""


def details(
    acquisition: Acquisition | None,
    asked: Asked | None,
    kernel_id: str | None,
    asked_at: float | None,
    granted_at: float | None,
    idle_release_at: float | None = None,
) -> Json:
    """The rest of the answer. `asked` is None where a setting is wrong, so that nothing can be asked for.

    `idle_release_at` is when an idle kernel gives its GPUs back, None if it does not.
    """
    waited = None if asked_at is None or granted_at is None else max(0.0, granted_at - asked_at)
    return {
        "kernel_id": kernel_id,
        "request": None if asked is None else _request(asked),
        "asked_at": asked_at,
        "granted_at": granted_at,
        "waited_s": None if waited is None else round(waited, 3),
        "idle_release_at": idle_release_at,
        "queue": None if acquisition is None else _queue(acquisition),
        "lease": None if acquisition is None or not _is_granted(acquisition) else _lease(acquisition),
    }


def _request(asked: Asked) -> Json:
    text = asked.text or asked.request.describe()
    return {"text": text, "what_is_left": asked.takes_what_is_left, **asked.request.to_json()}


def _queue(acquisition: Acquisition) -> Json | None:
    queue = acquisition.queue
    if queue is None or _is_granted(acquisition):
        return None
    return {
        "of": "pod" if acquisition.waits_for_pod else "pool",
        "position": queue.queue_position,
        "length": queue.queue_length,
        "held_by": list(queue.held_by),
        "before": list(queue.before),
        "why": queue.why or None,
    }


def _lease(acquisition: Acquisition) -> Json:
    devices = [
        {
            "id": device.id,
            "name": device.name,
            "memory_mib": device.memory_mib,
            "total_mib": device.total_mib,
            "server": device.server or None,
            "simulated": device.simulated,
        }
        for device in acquisition.devices
    ]
    if not devices:  # another client than the stand-in describes none
        devices = [
            {
                "id": number,
                "name": None,
                "memory_mib": acquisition.memory_mib,
                "total_mib": None,
                "server": None,
                "simulated": False,
            }
            for number in acquisition.gpu_ids
        ]
    return {"devices": devices, "server": acquisition.server, "simulated": acquisition.simulated}
